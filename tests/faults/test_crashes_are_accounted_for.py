"""Workers that die: which attempt it costs, what its error tells, and who is not hurt."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from apps import crashing
from pool_rig import alive, descendants, pool, wait_until

from awa_pool import Client, InsertRequest

APP = "apps.crashing:client"


@pytest.fixture
def client(dsn: str) -> Client:
    return Client(dsn)


def insert(client: Client, kind: str, *args: object, **options: int) -> list[int]:
    return client.insert_many([InsertRequest(args=each, kind=kind, **options) for each in args])


def lines(path: Path) -> list[tuple[int, int, int]]:
    """Return what handlers noted: (job, attempt, process)."""
    if not path.exists():
        return []
    found = [line.split() for line in path.read_text().splitlines()]
    return [(int(job), int(attempt), int(pid)) for job, attempt, pid in found]


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def ended(client: Client, jobs: list[int]) -> bool:
    return all(client.get_job(job).state in ("completed", "failed") for job in jobs)


def errors(client: Client, job: int) -> list[str]:
    return [entry["error"] for entry in client.get_job(job).errors]


def test_the_error_tells_how_the_worker_died_how_large_it_was_and_in_which_phase(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B001, B002."""
    cases = {
        "kill": "killed by signal 9 (SIGKILL)",
        "segfault": "killed by signal 11 (SIGSEGV)",
        "abort": "killed by signal 6 (SIGABRT)",
        "exit": "exited with status 7",
    }
    path = str(tmp_path / "lines")
    jobs = {how: insert(client, "crash", crashing.Crash(how, path, mib=200))[0] for how in cases}
    with pool(tmp_path, dsn, app=APP) as running:
        wait_until("all are completed", lambda: completed(client) == len(cases))
        for how, text in cases.items():
            row = client.get_job(jobs[how])
            (error,) = row.errors
            assert row.attempt == 2
            assert error["error"].startswith(text)
            assert int(error["error"].split("peak memory ")[1].split()[0]) >= 200
            assert ("out of memory" in error["error"]) == (how == "kill")
            assert error["type"] == "WorkerDied" and error["phase"] == "handler"
            running.logged(
                f"job {row.id}, kind crash, attempt 1 of {row.max_attempts} failed, next try in about 2 s: WorkerDied: {text}"
            )
        assert running.log.count("replacing it") == len(cases)
        assert "failed to start" not in running.log


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_twenty_sleepers_on_other_workers_end_on_their_first_attempt(
    tmp_path: Path, dsn: str, client: Client, how: signal.Signals
) -> None:
    """B001, B002: ten sleep on the worker that dies, too; they run again within seconds."""
    path = tmp_path / "lines"
    with pool(tmp_path, dsn, app=APP, workers=3, concurrency=10) as running:
        running.ready(3)
        insert(client, "doze", *[crashing.Stay(str(path)) for _ in range(30)])
        wait_until("all thirty sleep", lambda: len(lines(path)) == 30)
        on = Counter(pid for _, _, pid in lines(path))
        assert sorted(on.values()) == [10, 10, 10]
        victim = next(iter(on))
        struck = {job for job, _, pid in lines(path) if pid == victim}
        os.kill(victim, how)
        wait_until("the ten run again within seconds", lambda: len(lines(path)) == 40, 15.0)
        Path(f"{path}.go").touch()
        wait_until("all are completed", lambda: completed(client) == 30)
        assert {job for job, attempt, _ in lines(path) if attempt == 2} == struck
        assert all(how.name in errors(client, job)[0] for job in struck)
        assert set(on) - {victim} <= set(running.children("worker"))
        assert running.log.count("replacing it") == 1


def test_jobs_that_kill_their_worker_each_time_end_after_exactly_their_attempts_and_slow_nobody(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    path = tmp_path / "lines"
    deadly = insert(
        client, "crash", *[crashing.Crash("kill always", str(path)) for _ in range(200)], max_attempts=2
    )
    plain = insert(client, "plain", *[crashing.Plain(str(path)) for _ in range(1000)])
    with pool(tmp_path, dsn, app=APP) as running:
        wait_until("all have ended", lambda: ended(client, plain) and ended(client, deadly), 120.0)
        assert {client.get_job(job).state for job in plain} == {"completed"}
        assert {client.get_job(job).attempt for job in plain} == {1}
        assert Counter(job for job, _, _ in lines(path)) == dict.fromkeys(deadly, 2)
        for job in deadly:
            row = client.get_job(job)
            assert (row.state, row.attempt, row.dead) == ("failed", 2, True)
            assert ["SIGKILL" in error["error"] for error in row.errors] == [True, True]
        assert "failed to start" not in running.log  # so no pause has grown


def test_a_worker_that_a_signal_stops_for_good_is_replaced_and_its_job_runs_again(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    path = tmp_path / "lines"
    with pool(tmp_path, dsn, app=APP, heartbeat_s=0.5, stale_s=2.0) as running:
        running.ready()
        (job,) = insert(client, "stay", crashing.Stay(str(path)))
        ((_, _, pid),) = wait_until("the job runs", lambda: lines(path))
        os.kill(pid, signal.SIGSTOP)
        wait_until("it runs again", lambda: len(lines(path)) == 2)
        assert not alive(pid)
        Path(f"{path}.go").touch()
        wait_until("it is completed", lambda: completed(client) == 1)
        assert "stopped by a signal for 2 s" in errors(client, job)[0]


def test_a_handler_that_calls_exit_fails_alone(tmp_path: Path, dsn: str, client: Client) -> None:
    """B017."""
    values: list[int | str] = [0, 1, "good night"]
    leaving = insert(client, "leave", *[crashing.Leave(value) for value in values], max_attempts=1)
    with pool(tmp_path, dsn, app=APP, workers=1) as running:
        running.ready(1)
        workers = running.children("worker 1")
        insert(client, "plain", *[crashing.Plain("") for _ in range(50)])
        wait_until("the others are completed", lambda: completed(client) == 50)
        wait_until("those have failed", lambda: ended(client, leaving))
        for job, value in zip(leaving, values, strict=True):
            row = client.get_job(job)
            assert (row.state, row.attempt) == ("failed", 1)
            assert row.errors[0]["type"] == "SystemExit" and str(value) in row.errors[0]["error"]
        assert running.children("worker 1") == workers


def test_a_job_that_burns_three_stale_times_long_is_never_taken_for_dead(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B009."""
    path, stale_s = tmp_path / "lines", 3.0
    ages: list[float] = []
    with pool(tmp_path, dsn, app=APP, heartbeat_s=0.5, stale_s=stale_s) as running:
        running.ready()
        (job,) = insert(client, "spin", crashing.Stay(str(path), s=3 * stale_s))
        with psycopg.connect(dsn, autocommit=True) as conn:

            def over() -> bool:
                (row,) = conn.execute("select heartbeat_age_s from awa_pool.runtimes_view").fetchall()
                ages.append(row[0])
                return client.get_job(job).state == "completed"

            wait_until("it is completed", over)
        assert sorted(ages)[len(ages) // 2] < stale_s / 3 and max(ages) < stale_s
        assert [attempt for _, attempt, _ in lines(path)] == [1]
        assert "rescued" not in running.log


def test_a_replacement_that_hangs_while_it_boots_is_killed_tried_again_and_shown_missing(
    tmp_path: Path, dsn: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B005."""
    monkeypatch.setenv(crashing.STARTS, str(tmp_path))
    options = {"start_method": "spawn", "boot_timeout_s": 3.0, "metrics_port": 0}
    with pool(tmp_path, dsn, app=APP, **options) as running:
        running.ready()
        wait_until("it is ready", lambda: running.fetch("/readyz")[0] == 200)
        (tmp_path / "hang").touch()
        os.kill(running.children("worker 1")[0], signal.SIGKILL)
        running.logged("worker 1 failed to start: was not ready after 3 s; next try in 0.25 s")
        running.logged("worker 1 failed to start: was not ready after 3 s; next try in 0.5 s")
        wait_until("one is missing", lambda: "1 of 2 workers" in running.fetch("/readyz")[1])
        insert(client, "plain", *[crashing.Plain("") for _ in range(20)])
        wait_until("the other works", lambda: completed(client) == 20)
        (tmp_path / "hang").unlink()
        running.logged("worker 1 is ready", count=2)
        wait_until("nobody is missing", lambda: "1 of 2" not in running.fetch("/readyz")[1])


def test_a_boot_that_keeps_failing_ends_the_pool_with_module_and_error(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B002: if a pool gives up, its status is not 0."""
    monkeypatch.setenv(crashing.STARTS, str(tmp_path))
    with pool(tmp_path, dsn, app=APP, workers=1, start_method="spawn") as running:
        running.ready(1)
        (tmp_path / "fail").touch()
        os.kill(running.children("worker 1")[0], signal.SIGKILL)
        assert running.ended() == 1, running.log
        last = next(line for line in reversed(running.log.splitlines()) if "times in a row" in line)
        assert "worker 1" in last and "apps.crashing" in last and "the licence has run out" in last


@pytest.mark.parametrize("kind", ["stay", "grip"])
def test_a_killed_supervisor_leaves_nobody_and_another_pool_does_its_work_under_another_identity(
    tmp_path: Path, dsn: str, client: Client, kind: str
) -> None:
    """B014: same host, a start at once. Also with a handler that never lets go of the interpreter, and a stopped actor."""
    path, stale_s = tmp_path / "lines", 2.0
    quick = {"app": APP, "workers": 1, "heartbeat_s": 0.5, "stale_s": stale_s}
    (job,) = insert(client, kind, crashing.Stay(str(path)))
    with pool(tmp_path, dsn, **quick) as first:
        first.ready(1)
        wait_until("the job runs", lambda: lines(path))
        below = first.children()
        os.kill(first.children("finalizer")[0], signal.SIGSTOP)
        first.signal(signal.SIGKILL)
        killed_s = time.monotonic()
        wait_until("nobody is left", lambda: not any(alive(pid) for pid in below), 5.0)
        with pool(tmp_path, dsn, **quick) as second:
            second.ready(1)
            ready_s = time.monotonic()
            second.logged("rescued 1 attempts of runtime")
            assert time.monotonic() - killed_s > stale_s / 2  # not before its time
            assert time.monotonic() - ready_s < stale_s + stale_s / 3 + 1.5  # and within a sweep after it
            Path(f"{path}.go").touch()
            wait_until("it is completed", lambda: completed(client) == 1)
    assert [attempt for _, attempt, _ in lines(path)] == [1, 2]
    assert "that held it is gone" in errors(client, job)[0]
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("select count(distinct runtime_id), count(distinct host) from awa_pool.runtimes")
        assert rows.fetchone() == (2, 1)


def test_a_dead_host_is_rescued_in_time_by_one_whose_own_maintenance_dies_every_second(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """A successor goes by its host's heartbeat: it need not have been connected for the stale time itself."""
    path, stale_s = tmp_path / "lines", 3.0
    quick = {"app": APP, "workers": 1, "heartbeat_s": 0.5, "stale_s": stale_s}
    insert(client, "stay", crashing.Stay(str(path)))
    with pool(tmp_path, dsn, **quick) as first, pool(tmp_path, dsn, **quick) as second:
        wait_until("the job runs", lambda: lines(path))
        dies, lives = (first, second) if lines(path)[0][2] in descendants(first.pid) else (second, first)
        lives.ready(1)
        dies.signal(signal.SIGKILL)
        due_s = time.monotonic()

        def rescued() -> bool:
            nonlocal due_s
            if time.monotonic() >= due_s:
                due_s += 1.0
                for pid in lives.children("maintenance"):
                    os.kill(pid, signal.SIGKILL)
            return "rescued 1 attempts of runtime" in lives.log

        wait_until("the job is rescued", rescued, 30.0)
        Path(f"{path}.go").touch()
        wait_until("it is completed", lambda: completed(client) == 1)
