"""What the socket layer has to bear: peers that die, stall, come late, and signals at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from apps import supervised, unruly
from pool_rig import PoolProcess, alive, pool, wait_until

from awa_pool import Client, InsertRequest

UNRULY = "apps.unruly:client"


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        yield client


def insert(client: Client, kind: str, *args: object) -> list[int]:
    return client.insert_many([InsertRequest(args=each, kind=kind) for each in args])  # type: ignore[arg-type]


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def have_completed(client: Client, jobs: int) -> bool:
    return completed(client) >= jobs


def signal_each(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        if alive(pid):
            os.kill(pid, number)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_pool_whose_finalizer_is_gone_or_frozen_ends_within_its_grace(
    tmp_path: Path, dsn: str, client: Client, how: signal.Signals
) -> None:
    """B042."""
    with pool(tmp_path, dsn, drain_timeout_s=2.0) as running:
        running.ready()
        ids = insert(client, "act", *[supervised.Act("sleep", 0.05) for _ in range(20)])
        wait_until("some are done", partial(have_completed, client, 2))
        os.kill(running.children("finalizer")[0], how)
        below = running.children()
        running.signal(signal.SIGTERM)
        assert running.ended(40.0) == 0, running.log
        wait_until("nobody is left", lambda: not any(alive(pid) for pid in below), 10.0)
        rows = [client.get_job(job) for job in ids]
        assert {(row.state, row.attempt) for row in rows} <= {("available", 0), ("completed", 1)}


def test_work_for_workers_that_die_or_are_just_being_born_goes_to_others(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B044."""
    ledger = tmp_path / "ledger"
    with pool(tmp_path, dsn, app=UNRULY) as running:
        running.ready()
        ids = insert(client, "mark", *[unruly.Mark(str(ledger), 0.01) for _ in range(400)])
        for round_number in range(1, 6):
            wait_until("some are done", partial(have_completed, client, 40 * round_number))
            os.kill(running.children(f"worker {1 + round_number % 2}")[0], signal.SIGKILL)
        wait_until("all are completed", partial(have_completed, client, 400))
        rows = client.list_jobs(state="completed", limit=500)
        assert {row.id for row in rows} == set(ids)
        assert sum(row.attempt - 1 for row in rows) <= 5  # only what ran in a killed worker
        assert max(row.attempt for row in rows) <= 3


def test_claiming_rests_while_results_cannot_be_stored_and_all_resumes_by_itself(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B047."""
    jobs = 10_000
    with (
        pool(tmp_path, dsn, heartbeat_s=0.5, stale_s=3.0, metrics_port=0) as running,
        psycopg.connect(dsn) as locked,
        psycopg.connect(dsn, autocommit=True) as looking,
    ):
        running.ready()
        locked.execute("lock table awa_pool.completions in access exclusive mode")
        insert(client, "act", *[supervised.Act() for _ in range(jobs)])

        def figures() -> tuple[int, float]:
            claimed, beat_s = looking.execute(
                "select (select coalesce(sum(n), 0) from awa_pool.receipts), "
                "(select extract(epoch from clock_timestamp() - max(heartbeat_at)) from awa_pool.runtimes)"
            ).fetchone()  # type: ignore[misc]
            return int(claimed), float(beat_s)

        wait_until("claiming has begun", lambda: figures()[0] > 0)
        before, since = -1, 0
        while since < 20:  # twenty looks, 0.2 s each, at which nothing more was claimed
            claimed, beat_s = figures()
            assert beat_s < 3.0
            since, before = (since + 1 if claimed == before else 0), claimed
            looking.execute("select pg_sleep(0.2)")
        assert before < jobs
        locked.rollback()
        wait_until("all are completed", partial(have_completed, client, jobs))
        rows = looking.execute("select state, count(*) from awa_pool.jobs group by state").fetchall()
        assert dict(rows) in ({}, {"completed": jobs})
        assert "replacing" not in running.log


def test_windows_that_change_and_pauses_of_any_process_pass_unnoticed(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B050."""
    with pool(tmp_path, dsn) as running:
        running.ready()
        everybody = [running.pid, *running.children()]
        insert(client, "act", *[supervised.Act("sleep", 0.02) for _ in range(200)])
        for round_number in range(1, 6):
            wait_until("some are done", partial(have_completed, client, 30 * round_number))
            signal_each(everybody, signal.SIGWINCH)
            signal_each(everybody, signal.SIGSTOP)
            signal_each(everybody[::-1], signal.SIGCONT)
        wait_until("all are completed", partial(have_completed, client, 200))
        assert all(row.attempt == 1 for row in client.list_jobs(state="completed", limit=300))
        assert "Traceback" not in running.log and "killed" not in running.log and "replac" not in running.log


def test_a_cancel_reaches_a_job_in_a_worker_that_has_only_just_come(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B055."""
    begun = tmp_path / "begun"

    def begins(job: int) -> Callable[[], bool]:
        return lambda: begun.exists() and str(job) in begun.read_text().split()

    with pool(tmp_path, dsn, app=UNRULY, workers=1, max_jobs_per_worker=1) as running:
        running.ready(1)
        for _ in range(15):
            (job,) = insert(client, "heed", unruly.Heed(str(begun)))
            wait_until("it runs", begins(job))
            client.cancel(job)
            assert client.get_job(job).state == "cancelled"
        (last,) = insert(client, "mark", unruly.Mark(str(tmp_path / "mark")))
        wait_until("the lane is free again", lambda: client.get_job(last).state == "completed")
        assert "never cancelled" not in running.log


def test_a_stop_reaches_workers_that_have_only_just_come(tmp_path: Path, dsn: str) -> None:
    """B055."""
    for _ in range(2):
        running = PoolProcess(tmp_path, dsn, workers=4)
        try:
            running.logged("is ready")
            running.signal(signal.SIGTERM)
            assert running.ended(30.0) == 0, running.log
        finally:
            running.close()
