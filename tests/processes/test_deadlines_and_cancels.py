"""Attempts that run past their deadline, or on after a cancel, end within the grace, and nothing beside them is hurt."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from apps.overrunning import Patient, Quick, Rest, Tidy, Work
from pool_rig import PoolProcess, alive, pool, wait_until

from awa_pool import Client, JobRow

APP = "apps.overrunning:client"
GRACE_S = 0.5  # of the app's kinds


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        yield client


def row(client: Client, job_id: int) -> JobRow:
    found = client.get_job(job_id)
    assert found is not None
    return found


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def begun(path: Path, count: int = 1) -> None:
    wait_until("a handler begins", lambda: sum(line.startswith("begun") for line in lines(path)) >= count)


def reach(client: Client, job_id: int, *states: str) -> JobRow:
    wait_until(f"job {job_id} is {states}", lambda: row(client, job_id).state in states)
    return row(client, job_id)


def worker_of(path: Path) -> int:
    return int(lines(path)[-1].split()[-1])


def ended(running: PoolProcess) -> dict[str, float]:
    """Return attempts by outcome over all kinds, as the metrics say."""
    sums: dict[str, float] = {}
    for line in running.fetch("/metrics")[1].splitlines():
        if line.startswith("awa_pool_attempts_total{"):
            outcome = line.split('outcome="')[1].split('"')[0]
            sums[outcome] = sums.get(outcome, 0.0) + float(line.split()[-1])
    return sums


def test_an_endless_native_call_is_gone_by_deadline_and_grace_with_all_its_programs(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B013, B019: soft and hard limit together; programs in groups, sessions and without a parent of their own."""
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1, metrics_port=0) as running:
        job_id = client.insert(Work("native", str(path)), deadline=2, max_attempts=1)
        behind = client.insert(Quick())
        begun(path)
        began_s = time.monotonic()
        worker = worker_of(path)
        failed = reach(client, job_id, "failed")
        took_s = time.monotonic() - began_s
        assert not alive(worker)
        assert 1.5 <= took_s < 2 + GRACE_S + 1.5, took_s
        error = failed.errors[-1]
        assert (error["type"], error["reason"], failed.attempt) == (
            "DeadlineExceeded",
            "deadline_exceeded",
            1,
        )
        assert f"ran past its deadline and a grace of {GRACE_S:g} s" in error["error"]
        pids = [int(pid) for pid in lines(tmp_path / "notes.pids")]
        assert len(pids) == 3
        wait_until("its programs are gone", lambda: not any(map(alive, pids)), 5)
        assert reach(client, behind, "completed").attempt == 1
        wait_until("the count", lambda: ended(running).get("deadline_exceeded") == 1)
        assert not {"fail", "lost"} & ended(running).keys()
        killed = 'awa_pool_limit_kills_total{reason="deadline_exceeded"} 1.0'
        wait_until("the count of kills", lambda: killed in running.fetch("/metrics")[1])


def test_a_handler_is_told_of_its_deadline_and_may_end_as_it_likes(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B154: a time-out is neither a failure nor a retry, unless the handler asks for one."""
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=2, metrics_port=0) as running:
        caught = client.insert(Work("catch", str(path)), deadline=timedelta(seconds=0.2))
        raised = client.insert(Work("sleep", str(path)), deadline=0.2, max_attempts=2)
        again = client.insert(Work("again", str(path)), deadline=0.2, max_attempts=2)
        assert reach(client, caught, "completed").attempt == 1
        assert "caught" in lines(path)
        both = [reach(client, job_id, "failed") for job_id in (raised, again)]
        assert [each.attempt for each in both] == [2, 2]
        assert [error["reason"] for error in both[0].errors] == ["deadline_exceeded"] * 2
        assert both[0].errors[0]["error"] == "the deadline of 0.2 s has passed"
        assert [error["type"] for error in both[1].errors] == ["RetryAfter"] * 2
        wait_until("all counted", lambda: sum(ended(running).values()) == 5)
        assert ended(running) == {"completed": 1, "deadline_exceeded": 2, "retry": 1, "fail": 1}


def test_processes_of_a_handler_die_with_it(tmp_path: Path, dsn: str, client: Client) -> None:
    """B021."""
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1):
        job_id = client.insert(Work("own processes", str(path)))
        wait_until("its processes", lambda: len(lines(tmp_path / "notes.pids")) == 2)
        pids = [int(pid) for pid in lines(tmp_path / "notes.pids")]
        assert all(map(alive, pids))
        os.kill(worker_of(path), signal.SIGKILL)  # any death of the worker takes them along
        wait_until("they are gone", lambda: not any(map(alive, pids)), 10)
        client.cancel(job_id)


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_programs_of_a_handler_are_asked_to_end_before_they_are_killed_with_it(
    tmp_path: Path, dsn: str, client: Client, how: str
) -> None:
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1) as running:
        job_id = client.insert(Tidy(str(path)), max_attempts=1, deadline=0.5 if how == "deadline" else None)
        begun(path)
        if how == "cancel":
            client.cancel(job_id)
        reach(client, job_id, "failed" if how == "deadline" else "cancelled")
        running.logged("worker 1 is ready", 2)  # the next one: the first was killed for it
        assert lines(path) == ["begun", "tidied"]


def test_a_frozen_worker_is_killed_at_the_hard_limit(tmp_path: Path, dsn: str, client: Client) -> None:
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1):
        job_id = client.insert(Work("sleep", str(path)), deadline=1.0, max_attempts=1)
        begun(path)
        os.kill(worker_of(path), signal.SIGSTOP)
        assert reach(client, job_id, "failed").errors[-1]["reason"] == "deadline_exceeded"


def test_deadlines_of_tasks_queues_and_other_languages_count_and_the_nearest_wins(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    path = tmp_path / "notes"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("insert into awa_pool.queues (queue, deadline_s) values ('brief', 0.3)")
        put = "select awa_pool.enqueue('work', %s::json, 'brief', p_max_attempts => 1, p_deadline_s => %s)"
        args = json.dumps({"what": "sleep", "path": str(path)})
        (queues,) = conn.execute(put, [args, None]).fetchone() or (0,)
        (own,) = conn.execute(put, [args, 600]).fetchone() or (0,)
    with pool(tmp_path, dsn, app=APP, workers=2, queues=["brief"]):
        assert reach(client, queues, "failed").errors[0]["error"] == "the deadline of 0.3 s has passed"
        begun(path, 2)
        assert row(client, own).state == "running"
        client.cancel(own)


def test_only_the_attempt_that_overruns_hears_of_it_among_async_ones(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1):
        others = [client.insert(Rest(path=str(path))) for _ in range(10)]
        late = client.insert(Rest(path=str(path)), deadline=0.3, max_attempts=1)
        cancelled = client.insert(Rest(path=str(path)))
        begun(path, 12)
        assert str(client.cancel(cancelled)) == "cancelled"
        assert reach(client, late, "failed").errors[0]["reason"] == "deadline_exceeded"
        wait_until("the cancel arrives", lambda: f"JobCancelled {cancelled}" in lines(path))
        assert f"DeadlineExceeded {late}" in lines(path)
        (tmp_path / "notes.go").touch()
        assert [reach(client, job_id, "completed").attempt for job_id in others] == [1] * 10
        assert row(client, cancelled).state == "cancelled"


def test_what_runs_beside_a_killed_attempt_goes_back_unharmed(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    path, blocking = tmp_path / "notes", tmp_path / "blocking"
    with pool(tmp_path, dsn, app=APP, workers=1):
        others = [client.insert(Rest(path=str(path)), max_attempts=1) for _ in range(5)]
        begun(path, 5)
        killed = client.insert(Rest("block", str(blocking)), deadline=0.5, max_attempts=1)
        assert reach(client, killed, "failed").errors[0]["reason"] == "deadline_exceeded"
        begun(path, 10)  # all five again
        (tmp_path / "notes.go").touch()
        for job_id in others:
            done = reach(client, job_id, "completed", "failed")
            assert (done.state, done.attempt, done.errors) == ("completed", 1, [])


def test_a_cancel_ends_a_busy_loop_by_killing_its_worker_and_concerns_only_that_job(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B028: also where the notification was lost, as it is with --no-listen."""
    busy, other = tmp_path / "busy", tmp_path / "other"
    with pool(tmp_path, dsn, app=APP, workers=2, metrics_port=0) as running:
        job_id = client.insert(Work("deaf", str(busy)))
        beside = client.insert(Work("until cancelled", str(other)))
        begun(busy)
        begun(other)
        assert str(client.cancel(job_id)) == "cancelled"
        worker = worker_of(busy)
        wait_until("its worker is gone", lambda: not alive(worker), 10)
        assert alive(worker_of(other)) and row(client, beside).state == "running"
        killed = 'awa_pool_limit_kills_total{reason="cancelled"} 1.0'
        wait_until("the count", lambda: killed in running.fetch("/metrics")[1])
        client.cancel(beside)
        wait_until("the other hears of its own", lambda: "cancelled" in lines(other))
        after = client.insert(Quick())
        reach(client, after, "completed")
        for cancelled in (job_id, beside):
            assert (row(client, cancelled).state, row(client, cancelled).errors) == ("cancelled", [])
        running.signal(signal.SIGTERM)
        assert running.ended() == 0


def test_a_cancel_arrives_without_its_notification(tmp_path: Path, dsn: str, client: Client) -> None:
    """B028, B055: the dispatcher is replaced too, so that only the worker's page knows of the attempt."""
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1, listen=False) as running:
        running.ready(1)
        job_id = client.insert(Work("deaf", str(path)))
        begun(path)
        client.cancel(job_id)
        for pid in running.children("dispatcher"):
            os.kill(pid, signal.SIGKILL)
        worker = worker_of(path)
        wait_until("its worker is gone", lambda: not alive(worker), 30)
        assert row(client, job_id).state == "cancelled"


def test_a_task_may_refuse_to_be_killed_for_a_cancel(tmp_path: Path, dsn: str, client: Client) -> None:
    path = tmp_path / "notes"
    with pool(tmp_path, dsn, app=APP, workers=1) as running:
        job_id = client.insert(Patient(str(path)))
        begun(path)
        client.cancel(job_id)
        running.logged("job.cancelled")
        running.signal(signal.SIGTERM)  # and during a drain neither
        (tmp_path / "notes.go").touch()
        assert running.ended() == 0
        assert lines(path)[-1] == "ended"
        assert row(client, job_id).state == "cancelled"


def test_cancels_and_deadlines_work_during_a_drain(tmp_path: Path, dsn: str, client: Client) -> None:
    paths = [tmp_path / "cancelled", tmp_path / "late"]
    with pool(tmp_path, dsn, app=APP, workers=2, drain_timeout_s=600) as running:
        cancelled = client.insert(Work("deaf", str(paths[0])))
        late = client.insert(Work("deaf", str(paths[1])), deadline=3, max_attempts=1)
        for path in paths:
            begun(path)
        running.signal(signal.SIGTERM)
        running.logged("draining")
        client.cancel(cancelled)
        assert running.ended() == 0
    assert row(client, cancelled).state == "cancelled"
    assert row(client, late).errors[-1]["reason"] == "deadline_exceeded"


def test_a_cancel_right_after_a_worker_started_always_arrives(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B055: the first thing that a fresh worker runs is cancelled as soon as it runs."""
    with pool(tmp_path, dsn, app=APP, workers=1):
        for number in range(5):
            path = tmp_path / f"notes{number}"
            job_id = client.insert(Work("until cancelled", str(path)), max_attempts=3)
            begun(path)
            os.kill(worker_of(path), signal.SIGKILL)
            begun(path, 2)
            client.cancel(job_id)
            wait_until("it hears of it", lambda path=path: "cancelled" in lines(path), 25)
            assert row(client, job_id).state == "cancelled"
