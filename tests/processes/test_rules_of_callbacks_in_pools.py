"""Handlers of a pool give their callbacks rules, which travel to the database and decide on what others send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apps.ruled import Pay, PayAsync, Wait, WaitAsync
from apps.ruled import client as app
from pool_rig import pool, wait_until

from awa_pool import Client, JobRow


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def row(client: Client, job_id: int) -> JobRow:
    found = client.get_job(job_id)
    assert found is not None
    return found


def waiting(client: Client, asks: Pay) -> tuple[int, str]:
    """Put a job in -> its id, and that of its callback, once it waits."""
    job_id, note = client.insert(asks), Path(asks.note)
    callback = wait_until("an id", lambda: note.exists() and note.read_text())
    wait_until("it waits", lambda: row(client, job_id).state == "waiting_external")
    return job_id, callback


def paid(dsn: str) -> list[dict[str, object]]:
    with psycopg.connect(dsn) as conn:
        stored = conn.execute("select args from awa_pool.jobs where kind = 'paid' order by id").fetchall()
    return [args for (args,) in stored]


def test_rules_let_a_parked_job_go_on_complete_or_fail_and_keep_out_what_is_not_meant_for_it(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    with pool(tmp_path, dsn, app="apps.ruled:client", queues=["default"]):
        first, callback = waiting(client, Pay(str(tmp_path / "first")))
        assert (tmp_path / "first.before").read_text() == "False"  # what has no rules loads nothing
        assert (
            client.resolve_callback(callback, {"order": 8, "status": "refused"}, "resume").reason == "filter"
        )
        assert row(client, first).state == "waiting_external"
        resumed = client.resolve_callback(callback, {"order": 7, "status": "paid", "cents": 1200}, "resume")
        assert (resumed.outcome, resumed.number, resumed.payload) == ("resumed", 2, {"paid": 12})
        wait_until("it goes on", lambda: row(client, first).state == "completed")

        second, callback = waiting(client, PayAsync(str(tmp_path / "second")))
        failed = client.resolve_callback(callback, {"order": 7, "status": "refused"}, "resume")
        assert failed.outcome == "failed" and row(client, second).reason == "callback_failed"
        third, callback = waiting(client, PayAsync(str(tmp_path / "third")))
        assert client.resolve_callback(callback, {"order": 7, "status": "free"}).outcome == "completed"
        assert row(client, third).state == "completed"
    assert paid(dsn) == [{"of": first, "payload": {"paid": 12}}]


@pytest.mark.parametrize("asks", [Wait, WaitAsync])
def test_a_handler_that_waits_gets_what_the_rules_let_through(
    client: Client, dsn: str, tmp_path: Path, asks: type[Wait]
) -> None:
    with pool(tmp_path, dsn, app="apps.ruled:client", queues=["default"]) as process:
        first, callback = waiting(client, asks(str(tmp_path / "first")))
        assert client.resolve_callback(callback, {"order": 8}, "resume").outcome == "ignored"
        assert row(client, first).state == "waiting_external"
        letter = {"order": 7, "status": "paid", "cents": 1200}
        assert client.resolve_callback(callback, letter, "resume")[::5] == ("resumed", {"paid": 12})
        wait_until("it goes on", lambda: row(client, first).state == "completed")

        second, callback = waiting(client, asks(str(tmp_path / "second")))
        assert (
            client.resolve_callback(callback, {**letter, "status": "free"}, "resume").outcome == "completed"
        )
        third, callback = waiting(client, asks(str(tmp_path / "third")))
        assert (
            client.resolve_callback(callback, {**letter, "status": "refused"}, "resume").outcome == "failed"
        )
        process.process.terminate()
        assert process.ended() == 0, process.log
    assert [row(client, job_id).state for job_id in (second, third)] == ["completed", "failed"]
    assert paid(dsn) == [{"of": first, "payload": {"paid": 12}}]  # what the others staged is dropped
