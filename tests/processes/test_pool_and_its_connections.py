"""A whole pool and what lies between it and the database: poolers, lost listeners, transactions that end late or never."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from client_rig import pgbouncer
from pool_rig import pool, wait_until
from servers import Server

from awa_pool import Client
from awa_pool.job import JobRow

POLL_S = 1.0
SLACK_S = 4.0  # of a machine that does much else


def end_listener(dsn: str) -> int:
    """End the pool's listening session without waiting for it; returns how many there were."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        return conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'awa-pool listener' and datname = current_database()"
        ).rowcount


def completed(client: Client, job_id: int) -> bool:
    row = client.get_job(job_id)
    return row is not None and row.state == "completed"


def lag_s(row: JobRow | None) -> float:
    assert row is not None and row.attempted_at is not None and row.created_at is not None
    return (row.attempted_at - row.created_at).total_seconds()


def test_a_pool_works_behind_a_pooler_in_transaction_mode(
    tmp_path: Path, pg_server: Server, dsn: str
) -> None:
    """B075."""
    found = re.search(r"dbname=(\w+)", dsn)
    assert found is not None
    with pgbouncer(pg_server, found[1]) as pooled:
        for listen in ({}, {"listen_dsn": dsn}):
            with Client(pooled) as client, pool(tmp_path, pooled, **listen) as running:
                running.ready()
                ids = client.insert_many([({"what": "pass"}, {"kind": "act"})] * 300)
                ids += [
                    client.insert({"what": "kill"}, kind="act"),
                    client.insert({"what": "nonsense", "n": 1}, kind="act"),
                ]
                wait_until(
                    "all have ended",
                    lambda: all(
                        row is not None and row.finalized_at
                        for row in map(client.get_job, ids)  # noqa: B023
                    ),
                )
                states = [row.state for row in map(client.get_job, ids) if row is not None]
                assert states == ["completed"] * 301 + ["failed"]
                log = running.log
            assert "prepared statement" not in log and "cannot go on" not in log
            assert ("pooler" in log) == (not listen), log
        assert pg_server.execute(
            "select count(*) from pg_locks where locktype = 'advisory' and not granted", found[1]
        ) == [(0,)]


def test_no_job_waits_longer_than_a_poll_while_the_listener_is_ended_again_and_again(
    tmp_path: Path, dsn: str
) -> None:
    """B077."""
    with Client(dsn) as client, pool(tmp_path, dsn) as running:
        running.ready()
        wait_until("it listens", lambda: end_listener(dsn))
        ids = []
        for _ in range(10):
            end_listener(dsn)
            ids.append(client.insert({}, kind="act"))
            wait_until("it has run", partial(completed, client, ids[-1]))
        waits = [lag_s(client.get_job(job_id)) for job_id in ids]
        assert max(waits) < POLL_S + SLACK_S, waits
        assert "cannot go on" not in running.log and "replacing it" not in running.log


def test_a_job_runs_after_its_transaction_has_committed_or_not_at_all(tmp_path: Path, dsn: str) -> None:
    """B129; distilled 31."""
    with (
        Client(dsn) as client,
        psycopg.connect(dsn) as undone,
        psycopg.connect(dsn) as half,
        psycopg.connect(dsn) as late,
        pool(tmp_path, dsn) as running,
    ):
        running.ready()
        roads: list[Any] = [
            lambda conn: client.insert({}, kind="act", conn=conn),
            lambda conn: client.insert_many([({}, {"kind": "act"})], conn=conn),
            lambda conn: client.insert_many_copy([({}, {"kind": "act"})], conn=conn),
            lambda conn: conn.execute("select awa_pool.enqueue('act', '{}')"),
        ]
        for put in roads:
            put(late)
            put(undone)
            try:
                with half.transaction(), half.transaction():
                    put(half)
                    raise LookupError
            except LookupError:
                pass
        kept = client.insert({}, kind="act", conn=half)
        undone.rollback()
        half.commit()
        wait_until("what was committed has run", partial(completed, client, kept))
        for _ in range(20):  # many rounds of claims pass the open transaction by
            beside = client.insert({}, kind="act")
            wait_until("jobs beside it run", partial(completed, client, beside))
        assert len(client.list_jobs()) == 21
        late.execute("select now()")
        committed_at = time.time()
        late.commit()
        wait_until("what committed late has run", lambda: len(client.list_jobs(state="completed")) == 25)
        rows = client.list_jobs()
        assert len(rows) == 25
        first = sorted(rows, key=lambda row: row.id)[: len(roads)]
        assert all(row.attempted_at and row.attempted_at.timestamp() > committed_at for row in first)


def test_a_job_that_postpones_itself_again_and_again_completes_on_its_first_attempt(
    tmp_path: Path, dsn: str
) -> None:
    """B128."""
    times = 8
    with Client(dsn) as client, pool(tmp_path, dsn, app="apps.hostile:client"):
        job_id = client.insert({"times": times}, kind="postpone")
        wait_until("it has run", partial(completed, client, job_id))
        row = client.get_job(job_id)
        assert row is not None and (row.state, row.attempt, row.snoozes) == ("completed", 1, times)
        assert row.errors == []
