"""A deadlock, and a connection cut at the commit: the same follow-ups come through, and nothing comes twice (B013)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apps.staging import Follow, Stage
from apps.staging import client as app
from pool_rig import PoolProcess, pool, wait_until
from proxy import Proxy, proxy
from servers import Server

from awa_pool import Client

HOLD_S = float(os.environ.get("AWA_POOL_TEST_HOLD_S", "2"))
"""How long a producer sits on a key; at 30 it is a long test."""


@pytest.fixture
def between(pg_server: Server) -> Iterator[Proxy]:
    with proxy(pg_server) as running:
        yield running


def client_for(dsn: str) -> Client:
    client = Client(dsn)
    client.registry = app.registry
    return client


def completed(client: Client, ids: list[int], process: PoolProcess) -> None:
    """Wait until all these jobs have completed, each in its first attempt."""

    def left() -> list[int]:
        rows = [client.get_job(job_id) for job_id in ids]
        return [row.id for row in rows if row is None or row.state != "completed"]

    try:
        wait_until("all have completed", lambda: not left())
    except AssertionError as late:
        raise AssertionError(f"{late}: {left()[:5]} of {len(left())}\n{process.log[-4000:]}") from None
    rows = [client.get_job(job_id) for job_id in ids]
    assert {row.attempt for row in rows if row is not None} == {1}


def staged(dsn: str) -> dict[str, int]:
    """How many follow-ups there are of each name."""
    with psycopg.connect(dsn) as conn:
        return dict(
            conn.execute(
                "select args ->> 'of', count(*) from awa_pool.jobs where kind = 'follow' group by 1"
            ).fetchall()
        )


def raise_in_the_database(dsn: str, sqlstate: str, times: int) -> None:
    """Have the first inserts of follow-ups fail so; a sequence remembers what a rollback does not."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create sequence failures")
        conn.execute(
            "create function fail() returns trigger language plpgsql as $$ begin "
            f"if new.kind = 'follow' and nextval('public.failures') <= {times} then "
            f"raise exception 'forced' using errcode = '{sqlstate}'; end if; return new; end $$"
        )
        conn.execute(
            "create trigger fail before insert on awa_pool.jobs_ready for each row execute function fail()"
        )


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
def test_a_conflict_is_tried_again_with_the_same_follow_ups(dsn: str, tmp_path: Path, sqlstate: str) -> None:
    raise_in_the_database(dsn, sqlstate, 3)
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        ids = client.insert_many([Stage(f"s{n}", count=2) for n in range(20)])
        completed(client, ids, process)
        assert staged(dsn) == {f"s{n}": 2 for n in range(20)}


def test_one_that_does_not_go_away_ends_the_attempt_promptly_with_that_error(
    dsn: str, tmp_path: Path
) -> None:
    raise_in_the_database(dsn, "40P01", 1_000_000)
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        job_id = client.insert(Stage("never"))
        wait_until(
            "the attempt has ended",
            lambda: (row := client.get_job(job_id)) is not None and row.state == "retryable",
        )
        row = client.get_job(job_id)
        assert row is not None and "forced" in row.errors[-1]["error"], process.log
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select last_value from failures").fetchone() == (
                4,
            )  # once, and three times again
        assert staged(dsn) == {}


def test_a_connection_cut_at_the_commit_replays_as_stale_and_nothing_comes_twice(
    dsn: str, tmp_path: Path, between: Proxy
) -> None:
    with (
        pool(tmp_path, between.dsn(dsn), app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        process.ready()
        for at in range(3):
            seen = between.cuts
            between.swallow_answers(b"finish_staged")
            names = [f"cut {at} {n}" for n in range(30)]
            ids = client.insert_many([Stage(name, count=2) for name in names])
            wait_until("an answer is swallowed", lambda seen=seen: between.cuts > seen)
            completed(client, ids, process)
            found = staged(dsn)
            assert {name: found.get(name) for name in names} == dict.fromkeys(names, 2)


def test_while_a_producer_holds_a_key_only_those_who_want_it_wait(dsn: str, tmp_path: Path) -> None:
    """B013: many want the key, and everybody else's finishes go on for as long as it is held."""
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        process.ready()
        with psycopg.connect(dsn) as producer:
            client.insert(Follow("held"), unique_opts={}, conn=producer)
            waiting = client.insert_many([Stage(f"w{n}", count=0, keys=["held"]) for n in range(60)])
            until, rounds = time.monotonic() + HOLD_S, 0
            while time.monotonic() < until or not rounds:
                completed(client, client.insert_many([Stage(f"o{rounds} {n}") for n in range(20)]), process)
                rounds += 1
            rows = [client.get_job(job_id) for job_id in waiting]
            assert {row.state for row in rows if row is not None} == {"running"}
            producer.rollback()
        completed(client, waiting, process)
        assert staged(dsn)["held"] == 1
