"""Ids beyond 32 bits through a whole pool; pools and schemas of different versions."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import psycopg
import pytest
from apps import supervised
from cli_rig import command, environment
from pool_rig import DEADLINE_S, PoolProcess, pool, wait_until

from awa_pool import Client, InsertRequest
from awa_pool.sqlfiles import SCHEMA_VERSION
from awa_pool.store.migrate import migrate

NEARLY_2_31 = 2_147_483_640
SEQUENCES = ("job_id_seq", "receipt_id_seq", "cursor_seq", "window_id_seq")


def states(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("select state, count(*) from awa_pool.jobs group by 1").fetchall())


def test_ids_beyond_32_bits_go_through_success_failure_retry_cancel_and_the_dead_letter_queue(
    tmp_path: Path, dsn: str
) -> None:
    """B107: every sequence of ours starts just below 2**31, and passes it."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for sequence in SEQUENCES:
            conn.execute("select setval(%s, %s)", (f"awa_pool.{sequence}", NEARLY_2_31))
    with Client(dsn) as client, pool(tmp_path, dsn) as running:
        running.ready()
        book = tmp_path / "book"
        good = list(
            client.insert_many([InsertRequest(args=supervised.Act(path=str(book))) for _ in range(30)])
        )
        again = client.insert(supervised.Act("kill"))  # a second attempt
        unknown = [client.insert({}, kind="nobodys_kind") for _ in range(3)]  # fail for good
        later = client.insert({}, kind="act", queue="elsewhere")
        assert client.cancel(later) == "cancelled"
        held = client.insert(supervised.Act("hold", 60.0, path=str(tmp_path / "held")))
        wait_until("it runs", lambda: (tmp_path / "held").exists())
        client.cancel(held)
        (tmp_path / "held.go").touch()
        wait_until("all is done", lambda: states(dsn) == {"completed": 31, "failed": 3, "cancelled": 2})
        everything = [*good, again, *unknown, later, held]
        assert min(everything) > NEARLY_2_31 and max(everything) > 2**31
        assert sorted(int(line.split()[0]) for line in book.read_text().splitlines()) == good
        row = client.get_job(again)
        assert row is not None and (row.id, row.attempt, row.state) == (again, 2, "completed")
        assert client.retry(unknown[0]) == "available"
        wait_until("it has failed again", lambda: states(dsn).get("failed") == 3)
        shown = subprocess.run(
            command(["job", str(unknown[0]), "--json", "--dsn", dsn]), env=environment(), capture_output=True,
            text=True, timeout=DEADLINE_S, check=True,
        )  # fmt: skip
        assert json.loads(shown.stdout)["id"] == unknown[0]
        with psycopg.connect(dsn) as conn:
            for table in ("receipts", "completions"):
                found = conn.execute(f"select max(receipt_id) from awa_pool.{table}").fetchone()
                assert found and found[0] > NEARLY_2_31


def refused(dsn: str, folder: Path) -> str:
    """Start a pool that is refused at once; returns what it says."""
    running = PoolProcess(folder, dsn)
    try:
        assert running.ended() == 2, running.log
        return running.log
    finally:
        running.close()


@pytest.mark.parametrize(
    "change", ["version = version + 1, works_from = version + 1", "version = version - 1"]
)
def test_a_pool_that_does_not_fit_the_schema_is_refused_at_start_with_both_versions(
    tmp_path: Path, dsn: str, change: str
) -> None:
    """B111: an old pool on a newer schema that broke with it, and a new pool on an old one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"update awa_pool.meta set {change}")  # type: ignore[arg-type]
        (there,) = conn.execute("select version from awa_pool.meta").fetchone() or (0,)
    told = refused(dsn, tmp_path)
    assert re.search(rf"\b{there}\b.*\b{SCHEMA_VERSION}\b", told), told


def test_pools_go_on_while_the_schema_is_upgraded_and_after_they_have_reconnected(
    tmp_path: Path, dsn: str
) -> None:
    """B111: the supported direction, schema first: no job fails, and a start on it works as well."""
    with Client(dsn) as client, pool(tmp_path, dsn) as running:
        running.ready()
        acts = [InsertRequest(args=supervised.Act("spin", 0.002), max_attempts=1) for _ in range(600)]
        client.insert_many(acts)
        migrate(dsn)  # every function anew under a working pool
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("update awa_pool.meta set version = version + 1")  # as a compatible step leaves it
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name like 'awa-pool%'"
                " and application_name <> 'awa-pool client' and pid <> pg_backend_pid()"
            )
        client.insert_many(acts)
        wait_until("all are completed", lambda: states(dsn) == {"completed": 1200})
        assert running.process.poll() is None
        with pool(tmp_path, dsn, workers=1) as second:
            second.ready(1)
            os.kill(running.pid, 15)
            client.insert_many(acts[:50])
            wait_until("the new pool works too", lambda: states(dsn) == {"completed": 1250})
