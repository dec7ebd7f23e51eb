"""A pool's handlers give their callbacks rules, which travel to the database and decide on what others send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apps.ruled import Pay, PayAsync
from apps.ruled import client as app
from pool_rig import pool, wait_until

from awa_pool import Client, JobRow


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def test_rules_let_a_parked_job_go_on_complete_or_fail_and_keep_out_what_is_not_meant_for_it(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    def row(job_id: int) -> JobRow:
        found = client.get_job(job_id)
        assert found is not None
        return found

    def parked(asks: Pay) -> tuple[int, str]:
        job_id, note = client.insert(asks), Path(asks.note)
        callback = wait_until("an id", lambda: note.exists() and note.read_text())
        wait_until("it is parked", lambda: row(job_id).state == "waiting_external")
        return job_id, callback

    with pool(tmp_path, dsn, app="apps.ruled:client", queues=["default"]):
        first, callback = parked(Pay(str(tmp_path / "first")))
        assert (tmp_path / "first.before").read_text() == "False"  # what has no rules loads nothing
        assert (
            client.resolve_callback(callback, {"order": 8, "status": "refused"}, "resume").reason == "filter"
        )
        assert row(first).state == "waiting_external"
        resumed = client.resolve_callback(callback, {"order": 7, "status": "paid", "cents": 1200}, "resume")
        assert (resumed.outcome, resumed.number, resumed.payload) == ("resumed", 2, {"paid": 12})
        wait_until("it goes on", lambda: row(first).state == "completed")

        second, callback = parked(PayAsync(str(tmp_path / "second")))
        failed = client.resolve_callback(callback, {"order": 7, "status": "refused"}, "resume")
        assert failed.outcome == "failed" and row(second).reason == "callback_failed"
        third, callback = parked(PayAsync(str(tmp_path / "third")))
        assert client.resolve_callback(callback, {"order": 7, "status": "free"}).outcome == "completed"
        assert row(third).state == "completed"
    with psycopg.connect(dsn) as conn:
        stored = conn.execute("select args from awa_pool.jobs where kind = 'paid'").fetchall()
    assert stored == [({"of": first, "payload": {"paid": 12}},)]
