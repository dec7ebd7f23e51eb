"""The server goes away under a working pool and comes back: nobody exits, no attempt is used up."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
from apps import supervised
from pool_rig import PoolProcess, pool, wait_until
from servers import Server

from awa_pool import Client, InsertRequest


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def test_a_restart_of_the_server_costs_no_attempt_and_ends_no_process(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    jobs = 2000
    with Client(dsn) as client:
        acts = [supervised.Act("spin", 0.002) for _ in range(jobs)]
        client.insert_many([InsertRequest(args=act, kind="act", max_attempts=3) for act in acts])
    with pool(tmp_path, dsn, metrics_port=0) as running:
        running.ready()
        with Client(dsn) as client:
            wait_until("some jobs are done", lambda: completed(client) > 200)
        before = set(running.children())
        pg_server.stop(signal.SIGQUIT)
        try:
            running.logged("the database is away")
            wait_until("readiness names it", lambda: running.fetch("/readyz")[0] == 503, 10.0)
            assert json.loads(running.fetch("/readyz")[1])["parts"]["database"].startswith("away")
            assert running.fetch("/healthz")[0] == 200
        finally:
            pg_server.start()
        with Client(dsn) as client:
            wait_until("all jobs are completed", lambda: completed(client) == jobs)
        with psycopg.connect(dsn) as conn:
            attempts = conn.execute("select attempt, count(*) from awa_pool.jobs group by 1").fetchall()
        assert attempts == [(1, jobs)]
        wait_until("it is ready again", lambda: running.fetch("/readyz")[0] == 200)
        assert before <= set(running.children())
        assert running.log.count("supervisor: the database is away") == 1


def test_an_outage_that_a_process_slept_through_is_none_when_it_wakes_up(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        with Client(dsn) as client:
            client.insert(supervised.Act("spin", 0.0), kind="act")
            wait_until("the job is done", lambda: completed(client) == 1)
        pg_server.stop(signal.SIGQUIT)
        try:
            running.logged("the database is away")
        finally:
            pg_server.start()
        running.logged("connected to the database", count=2)
        with Client(dsn) as client:
            client.insert(supervised.Act("spin", 0.0), kind="act")
            wait_until("the next is done", lambda: completed(client) == 2)
        assert "finalizer: store.away" not in running.log  # it had nothing to ask meanwhile


def test_a_server_that_turns_read_only_is_as_good_as_away(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    jobs = 300
    with Client(dsn) as client:
        acts = [supervised.Act("spin", 0.005) for _ in range(jobs)]
        client.insert_many([InsertRequest(args=act, kind="act", max_attempts=1) for act in acts])
    with pool(tmp_path, dsn, metrics_port=0) as running:
        running.ready()
        try:
            pg_server.execute("alter system set default_transaction_read_only = on")
            pg_server.execute("select pg_reload_conf()")
            running.logged("the database is away")
            wait_until("readiness names it", lambda: running.fetch("/readyz")[0] == 503, 10.0)
        finally:
            with psycopg.connect(
                pg_server.dsn(), autocommit=True, options="-c default_transaction_read_only=off"
            ) as conn:
                conn.execute("alter system reset default_transaction_read_only")
                conn.execute("select pg_reload_conf()")
        with Client(dsn) as client:
            wait_until("all jobs are completed", lambda: completed(client) == jobs)
        wait_until("it is ready again", lambda: running.fetch("/readyz")[0] == 200)
        assert running.log.count("store.away") <= 6  # a line or two of each actor, not one for each try


def stopped_in_time(running: PoolProcess, deadline_s: float) -> None:
    running.signal(signal.SIGTERM)
    assert running.ended(deadline_s) == 0, running.log
    assert "did not end in time" not in running.log


def test_a_pool_that_is_stopped_while_the_database_is_away_ends_promptly(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    with pool(tmp_path, dsn, drain_timeout_s=600.0) as running:
        running.ready()
        running.logged("connected to the database")
        pg_server.stop(signal.SIGQUIT)
        try:
            running.logged("dispatcher: store.away")
            running.logged("the database is away")
            stopped_in_time(running, 40.0)
        finally:
            pg_server.start()


def test_a_pool_whose_schema_became_another_clusters_ends_promptly(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn, drain_timeout_s=600.0) as running:
        running.ready()
        running.logged("connected to the database")
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("update awa_pool.meta set system_identifier = system_identifier + 1")
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name like 'awa-pool %' and datname = current_database()"
            )
        running.logged("dispatcher: store.away")
        running.logged("made in another PostgreSQL cluster")
        stopped_in_time(running, 40.0)


@contextlib.contextmanager
def holding_a_job_without_a_server(
    folder: Path, dsn: str, server: Server, drain_timeout_s: float
) -> Iterator[PoolProcess]:
    """A pool in which a job runs until `ledger.go` is there, and whose server is away."""
    book = folder / "ledger"
    with Client(dsn) as client:
        client.insert(supervised.Act("hold", 60.0, path=str(book)), kind="act")
    with pool(folder, dsn, drain_timeout_s=drain_timeout_s) as running:
        running.ready()
        wait_until("it runs", book.exists)
        server.stop(signal.SIGQUIT)
        try:
            running.logged("dispatcher: store.away")
            yield running
        finally:
            server.start()


def test_results_wait_for_the_database_as_long_as_the_pool_has_to_drain(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    with holding_a_job_without_a_server(tmp_path, dsn, pg_server, 6.0) as running:
        (tmp_path / "ledger.go").touch()  # its result waits with the finalizer
        running.logged("finalizer: store.away")
        running.signal(signal.SIGTERM)
        assert running.ended(6.0 + 20.0) in (0, 1)  # 1: the result was not stored, the job runs again
        assert "did not end in time" not in running.log


def test_a_pool_that_is_stopped_while_the_database_is_away_says_what_it_could_not_give_back(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    with holding_a_job_without_a_server(tmp_path, dsn, pg_server, 1.0) as running:
        running.signal(signal.SIGTERM)
        assert running.ended(60.0) == 1
        assert "1 claimed jobs could not be given back: after --stale-after they are rescued" in running.log


def test_a_working_pool_waits_for_a_schema_that_is_gone_while_it_is_restored(
    tmp_path: Path, dsn: str
) -> None:
    with pool(tmp_path, dsn, heartbeat_s=0.2) as running, psycopg.connect(dsn, autocommit=True) as conn:
        running.ready()
        conn.execute("alter schema awa_pool rename to elsewhere")
        try:
            running.logged("the database is away, the pool goes on trying: schema 'awa_pool' is missing")
            running.logged("store.away")
        finally:
            conn.execute("alter schema elsewhere rename to awa_pool")
        with Client(dsn) as client:
            client.insert_many([InsertRequest(args=supervised.Act(), kind="act") for _ in range(20)])
            wait_until("jobs are done again", lambda: completed(client) == 20)
        stopped_in_time(running, 40.0)
