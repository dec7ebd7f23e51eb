"""Whole pools under load while parts of them are killed: nothing is lost, nothing is done twice without need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest
from apps import supervised
from pool_rig import PoolProcess, alive, named, pool, wait_until

from awa_pool import Client, InsertRequest


@pytest.fixture
def client(dsn: str) -> Client:
    return Client(dsn)


def insert(client: Client, *acts: supervised.Act) -> list[int]:
    return client.insert_many([InsertRequest(args=act, kind="act", max_attempts=3) for act in acts])


def states(client: Client) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in client.queue_stats():
        for state in ("available", "running", "scheduled", "retryable", "failed", "cancelled", "completed"):
            counts[state] = counts.get(state, 0) + getattr(row, state)
    return counts


def all_completed(client: Client, jobs: int) -> Callable[[], bool]:
    return lambda: states(client)["completed"] == jobs


def more_completed(client: Client, jobs: int) -> bool:
    return states(client)["completed"] > jobs


def starts(path: Path) -> dict[int, int]:
    """Return how often each job has begun, as the handlers wrote it down."""
    found: dict[int, int] = {}
    for line in path.read_text().splitlines():
        job = int(line.split()[0])
        found[job] = found.get(job, 0) + 1
    return found


def runs_in(path: Path) -> int:
    """Wait for a job that writes there when it begins; return its process."""
    line = wait_until(
        "the job runs", lambda: path.exists() and path.read_text()
    )  # it is made first, then written
    return int(line.split()[2])


def test_a_draining_pool_does_all_there_is_and_ends(tmp_path: Path, dsn: str, client: Client) -> None:
    insert(client, *[supervised.Act() for _ in range(500)])
    with pool(tmp_path, dsn, drain=True) as running:
        assert running.ended() == 0, running.log
        assert states(client)["completed"] == 500
        assert "drained: nothing is available or running" in running.log


@pytest.mark.parametrize(
    ("how", "named"), [("kill", "signal 9 (SIGKILL)"), ("segfault", "signal 11 (SIGSEGV)")]
)
def test_a_worker_that_dies_in_a_job_costs_that_job_one_attempt_naming_the_signal(
    tmp_path: Path, dsn: str, client: Client, how: str, named: str
) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        (fatal,) = insert(client, supervised.Act(how))
        others = insert(client, *[supervised.Act("sleep", 0.02) for _ in range(60)])
        wait_until("all jobs are completed", all_completed(client, 61))
        row = client.get_job(fatal)
        assert row.attempt == 2
        assert named in row.errors[0]["error"]
        assert all(client.get_job(job).attempt == 1 for job in others)
        assert running.log.count("replacing it") == 1


@pytest.mark.parametrize("role", ["dispatcher", "finalizer", "maintenance"])
def test_an_actor_killed_under_load_loses_nothing(
    tmp_path: Path, dsn: str, client: Client, role: str
) -> None:
    jobs = 1500
    insert(client, *[supervised.Act("spin", 0.001) for _ in range(jobs)])
    with pool(tmp_path, dsn) as running:
        running.ready()
        for count in (2, 3):
            wait_until("some jobs are done", partial(more_completed, client, 100 * count))
            os.kill(running.children(role)[0], signal.SIGKILL)
            running.logged(f"{role} is ready", count=count)
        wait_until("all jobs are completed", all_completed(client, jobs))
        assert states(client)["failed"] == 0


def test_a_stop_signal_lets_running_jobs_end_and_gives_back_the_rest(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B147."""
    begun = tmp_path / "begun"
    insert(client, *[supervised.Act("sleep", 1.0, str(begun)) for _ in range(100)])
    with pool(tmp_path, dsn) as running:
        wait_until("jobs run", begun.exists)
        running.signal(signal.SIGTERM)
        assert running.ended() == 0, running.log
        counts = states(client)
        assert counts["running"] == 0 and counts["retryable"] == 0, counts
        assert counts["completed"] == len(starts(begun))
        assert counts["available"] == 100 - counts["completed"]
        assert all(row.attempt == 0 for row in client.list_jobs(state="available", limit=100))


def test_a_job_cut_at_the_drain_timeout_is_claimable_at_once_with_no_attempt_used(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    begun = tmp_path / "begun"
    (job,) = insert(client, supervised.Act("spin", 600.0, str(begun)))
    with pool(tmp_path, dsn, drain_timeout_s=0.5) as running:
        wait_until("the job runs", begun.exists)
        running.signal(signal.SIGTERM)
        assert running.ended() == 0, running.log
        row = client.get_job(job)
        assert (row.state, row.attempt) == ("available", 0)


def test_a_second_signal_ends_the_pool_at_once(tmp_path: Path, dsn: str, client: Client) -> None:
    begun = tmp_path / "begun"
    (job,) = insert(client, supervised.Act("sleep", 600.0, str(begun)))
    with pool(tmp_path, dsn, drain_timeout_s=600) as running:
        wait_until("the job runs", begun.exists)
        running.signal(signal.SIGINT)
        running.logged("SIGINT: draining")

        def insisted() -> bool:
            running.signal(signal.SIGINT)  # one that comes too soon counts as the first
            return "SIGINT again" in running.log

        wait_until("a later signal is taken for a second one", insisted)
        assert running.ended(20.0) == 130
        assert client.get_job(job).state in ("available", "running", "retryable")


def test_a_killed_worker_takes_what_its_job_started_with_it(tmp_path: Path, dsn: str, client: Client) -> None:
    begun = tmp_path / "begun"
    with pool(tmp_path, dsn, workers=1) as running:
        running.ready(1)
        seconds = 600.0 + os.getpid() / 2**23  # so that no other test's program has the same name
        insert(client, supervised.Act("child", seconds, str(begun)))
        worker = runs_in(begun)
        grandchildren = wait_until("the program runs", lambda: named(f"sleep {seconds}"))
        os.kill(worker, signal.SIGKILL)
        wait_until("the program is gone", lambda: not any(alive(pid) for pid in grandchildren), 10.0)


def test_when_a_whole_pool_is_killed_another_does_its_work(tmp_path: Path, dsn: str, client: Client) -> None:
    begun = tmp_path / "begun"
    quick = {"heartbeat_s": 0.3, "stale_s": 1.0}
    (job,) = insert(client, supervised.Act("sleep", 600.0, str(begun)))
    with pool(tmp_path, dsn, workers=1, **quick) as first:
        wait_until("the job runs", begun.exists)
        with pool(tmp_path, dsn, workers=1, **quick) as second:
            second.ready(1)
            first.signal(signal.SIGKILL)
            wait_until("the job is tried again", lambda: starts(begun).get(job) == 2)
            assert client.get_job(job).attempt == 2


def test_a_worn_worker_is_replaced_without_losing_a_job(tmp_path: Path, dsn: str, client: Client) -> None:
    with pool(tmp_path, dsn, workers=1, max_jobs_per_worker=50) as running:
        running.ready(1)
        for batch in range(1, 4):
            insert(client, *[supervised.Act() for _ in range(100)])
            wait_until("the batch is completed", all_completed(client, 100 * batch))
            running.logged("worker 1 is replaced after", count=batch)
            running.logged("worker 1 is ready", count=batch + 1)
        assert "failed to start" not in running.log
        assert all(row.attempt == 1 for row in client.list_jobs(state="completed", limit=500))


def test_counters_agree_with_the_database_across_a_killed_finalizer(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    with pool(tmp_path, dsn, metrics_port=0) as running:
        running.ready()
        insert(client, *[supervised.Act() for _ in range(200)])
        wait_until("they are completed", all_completed(client, 200))
        wait_until("they are counted", lambda: counted(running) == 200)
        os.kill(running.children("finalizer")[0], signal.SIGKILL)
        running.logged("finalizer is ready", count=2)
        insert(client, *[supervised.Act() for _ in range(100)])
        wait_until("they are completed", all_completed(client, 300))
        wait_until("they are counted", lambda: counted(running) == 300)
        text = running.fetch("/metrics")[1]
        assert 'awa_pool_process_restarts_total{role="finalizer"} 1.0' in text


def counted(running: PoolProcess) -> float:
    for line in running.fetch("/metrics")[1].splitlines():
        if line.startswith('awa_pool_attempts_total{kind="act",outcome="completed"}'):
            return float(line.split()[-1])
    return 0.0


def test_a_script_runs_its_own_handlers_and_a_script_without_a_guard_starts_no_second_pool(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B032."""
    body = f"""
from dataclasses import dataclass
from awa_pool import Client, InsertRequest
client = Client({dsn!r})
@dataclass
class Mark:
    n: int
@client.task(Mark)
def mark(job):
    pass
"""
    run = "client.insert(Mark(1)); raise SystemExit(client.run(workers=1, drain=True))"
    guarded = tmp_path / "guarded.py"
    guarded.write_text(f"{body}\nif __name__ == '__main__':\n    {run}\n")
    done = subprocess.run([sys.executable, guarded], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert states(client)["completed"] == 1
    bare = tmp_path / "bare.py"
    bare.write_text(f"{body}\n{run}\n")
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, bare], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode != 0 and "__main__" in done.stderr
    assert time.monotonic() - began_s < 60


def test_a_runtime_that_was_rescued_stops_its_handlers_and_goes_on_under_a_new_id(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    begun = tmp_path / "begun"
    with pool(tmp_path, dsn, workers=1, heartbeat_s=0.3, stale_s=2.0) as running:
        running.ready(1)
        (job,) = insert(client, supervised.Act("sleep", 600.0, str(begun)))
        first = runs_in(begun)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(
                "update awa_pool.runtimes set state = 'gone', heartbeat_at = now() - interval '1 hour'"
            )
        running.logged("taken for dead and rescued")
        wait_until("the handler has ended", lambda: not alive(first))
        wait_until("the job is tried again", lambda: starts(begun)[job] >= 2)
        # The new id may do so before its first sign of life; and a pool that gets no turn for the stale time is rescued again.
        with psycopg.connect(dsn, autocommit=True) as conn:
            alive_ones = "select count(*) from awa_pool.runtimes where state = 'alive'"
            wait_until("one runtime is alive", lambda: conn.execute(alive_ones).fetchone() == (1,))


def test_jobs_that_wait_for_their_time_do_not_keep_a_draining_pool(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    client.insert(supervised.Act(), kind="act", run_at=later)
    with pool(tmp_path, dsn, drain=True) as running:
        assert running.ended() == 0, running.log
        assert "1 wait for their time or in paused queues" in running.log
