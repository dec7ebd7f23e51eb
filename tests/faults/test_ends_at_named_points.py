"""Processes that end or stand still in each window between claim and record; the ledger judges."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from ledger import Ledger
from pool_rig import PoolProcess, alive, pool, wait_until

from awa_pool.faults import POINTS

QUICK = {"heartbeat_s": 0.5, "stale_s": 2.0, "log_level": "info"}
ACTORS = [point for point in POINTS if not point.startswith(("worker.", "handler.", "supervisor."))]


def at(folder: Path, action: str, *points: str) -> str:
    """Write what AWA_POOL_FAULTS has to say for that."""
    return " ".join([f"marks={folder}", *(f"{point}={action}:2" for point in points)])


def met(folder: Path, *points: str) -> dict[str, int]:
    """Wait until every point was reached; returns who reached it."""
    marks = [Path(folder, point) for point in points]
    wait_until(f"{', '.join(points)}", lambda: all(mark.exists() for mark in marks))
    return {mark.name: int(mark.read_text()) for mark in marks}


def gone(pids: dict[str, int], deadline_s: float = 30.0) -> None:
    wait_until("they are gone", lambda: not any(alive(pid) for pid in pids.values()), deadline_s)


def load_until_all_ends(ledger: Ledger, running: PoolProcess, jobs: int = 400) -> None:
    """Some jobs first, so that chunks and batches are those of a pool at work; then more."""
    ledger.put(jobs // 2, "spin", 0.002)
    running.logged("serving default")
    ledger.put(jobs // 2)


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_actors_that_end_or_stand_still_in_any_window_lose_nothing_and_use_no_attempt(
    tmp_path: Path, dsn: str, action: str
) -> None:
    """A frozen one is noticed within seconds, killed and replaced."""
    marks = tmp_path / "marks"
    marks.mkdir()
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, dsn, faults=at(marks, action, *ACTORS), **QUICK) as running:
        load_until_all_ends(ledger, running)
        gone(met(marks, *ACTORS))
        ledger.put(50)
        ledger.await_ends()
        ledger.judge()
        assert ledger.attempts() == {1: len(ledger.jobs)}
        assert "AWA_POOL_FAULTS is set" in running.log


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_a_worker_that_ends_or_stands_still_in_any_window_costs_one_attempt_at_most_and_only_of_what_ran(
    tmp_path: Path, dsn: str, action: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    ledger = Ledger(tmp_path / "ledger", dsn)
    points = [point for point in POINTS if point.startswith("worker.")]
    with pool(tmp_path, dsn, faults=at(marks, action, *points), workers=3, **QUICK) as running:
        load_until_all_ends(ledger, running, 1000)
        gone(met(marks, *points))
        ledger.put(50)
        ledger.await_ends()
        ledger.judge()
        # The one whose page said that it runs is tried again; what had run, or had not begun, is not.
        assert ledger.attempts() == {1: len(ledger.jobs) - 1, 2: 1}
        assert set(ledger.starts().values()) == {1}


def test_a_fork_server_that_is_stopped_hides_no_death_and_one_that_is_killed_is_replaced(
    tmp_path: Path, dsn: str
) -> None:
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, dsn, **QUICK | {"log_level": "debug"}) as running:
        running.ready()
        ledger.put(300, "spin", 0.005)
        worker = running.children("worker 1")[0]
        server = parent_of(worker)
        os.kill(server, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        running.logged("worker 1 is ready", count=2)
        os.kill(server, signal.SIGKILL)
        running.logged("worker 1 is ready", count=3)
        running.logged("worker 2 is ready", count=2)
        ledger.put(50)
        ledger.await_ends()
        ledger.judge()
        attempts = ledger.attempts()
        assert sum(jobs for attempt, jobs in attempts.items() if attempt > 1) <= 3, attempts  # those that ran


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_supervisor_that_is_killed_after_a_heartbeat_leaves_its_work_to_another(
    tmp_path: Path, dsn: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, dsn, faults=at(marks, "kill", "supervisor.beat"), **QUICK) as first:
        ledger.put(300, "spin", 0.01)
        first.ended()
        wait_until("its children are gone", lambda: not first.children(), 10.0)
        with pool(tmp_path, dsn, **QUICK):
            ledger.await_ends()
        ledger.judge()


def test_a_pool_that_stood_still_until_it_was_rescued_writes_nothing_twice(tmp_path: Path, dsn: str) -> None:
    """The host was suspended: its results are stale when it wakes up, and it goes on under a new id."""
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, dsn, **QUICK) as frozen:
        frozen.logged("serving default")
        ledger.put(600, "spin", 0.01)
        wait_until("jobs run", lambda: len(ledger.starts()) > 20)
        everybody = [frozen.pid, *frozen.children()]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        with pool(tmp_path, dsn, **QUICK) as other:
            other.logged("rescued")
            for pid in everybody:
                os.kill(pid, signal.SIGCONT)
            frozen.logged("taken for dead and rescued")
            ledger.await_ends()
        ledger.judge()


def test_messages_lost_doubled_late_and_in_another_order_lose_nothing(tmp_path: Path, dsn: str) -> None:
    ledger = Ledger(tmp_path / "ledger", dsn)
    faults = "seed=3 drop=0.03 double=0.03 late=0.03 late_s=0.3 reorder=0.03"
    with pool(tmp_path, dsn, faults=faults, **QUICK) as running:
        running.logged("serving default")
        ledger.put(500, "spin", 0.001)
        ledger.await_ends()
        ledger.judge()
        assert ledger.attempts() == {1: 500}
        assert running.log.count("Traceback") == 0
