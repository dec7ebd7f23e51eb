"""Handlers of a pool wait for callbacks where they are, on one attempt and lease, and give their slots away meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.waiting import Crash, Nothing, Pay, PayAsync
from apps.waiting import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import CallbackNotFound, Client, JobRow

OPTIONS: dict[str, Any] = {"app": "apps.waiting:client", "queues": ["default"]}


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def row(client: Client, job_id: int) -> JobRow:
    found = client.get_job(job_id)
    assert found is not None
    return found


def insert(
    client: Client,
    folder: Path,
    *,
    deadline: float | None = None,
    max_attempts: int | None = None,
    **args: Any,
) -> dict[Path, int]:
    """Put in a job with a plain handler and one with an async handler -> the note and id of each."""
    folder.mkdir(exist_ok=True)
    notes = {folder / asks.__name__: asks for asks in (Pay, PayAsync)}
    options: dict[str, Any] = {"deadline": deadline, "max_attempts": max_attempts}
    return {note: client.insert(asks(str(note), **args), **options) for note, asks in notes.items()}


def reaches(client: Client, job_id: int, state: str, process: PoolProcess) -> JobRow:
    """Wait until a job has come to a state."""
    try:
        return wait_until(
            f"job {job_id} to be {state}",
            lambda: (found := row(client, job_id)).state == state and found,
        )
    except AssertionError as late:
        raise AssertionError(f"{late}: {row(client, job_id)}\n{process.log[-8000:]}") from None


def text_in(path: Path | str) -> str:
    """What a handler has written."""
    return wait_until(f"a text in {path}", lambda: os.path.exists(path) and Path(path).read_text(), 30.0)


def began(note: Path) -> list[list[int]]:
    """Attempt, lease and process of each run so far."""
    return [[int(word) for word in line.split()] for line in Path(f"{note}.began").read_text().splitlines()]


def paid(dsn: str, job_id: int) -> list[Any]:
    """The payloads of each follow-up staged after the waits; of those before them there is one for each."""
    with psycopg.connect(dsn) as conn:
        found = conn.execute(
            "select kind, args -> 'payloads' from awa_pool.jobs where kind in ('before', 'paid')"
            " and (args ->> 'of')::bigint = %s order by id",
            (job_id,),
        ).fetchall()
    payloads = [payloads for kind, payloads in found if kind == "paid"]
    assert [kind for kind, _ in found] == ["before", "paid"] * len(payloads), found
    return payloads


def test_handlers_wait_again_and_again_on_one_attempt_and_lease(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    jobs = insert(client, tmp_path, times=3)
    with pool(tmp_path, dsn, workers=1, concurrency=1, **OPTIONS) as process:
        for number, payload in enumerate(([{"ok": None}], "ünï", 12345678901234567), 1):
            ids = {note: text_in(f"{note}.{number}") for note in jobs}
            for job_id in jobs.values():
                waiting = reaches(client, job_id, "waiting_external", process)
                assert (waiting.attempt, waiting.run_lease) == (1, 1)
            # Those that wait have let the lane's only slot go.
            for job_id in insert(client, tmp_path / f"other{number}", times=0).values():
                reaches(client, job_id, "completed", process)
            for note, job_id in jobs.items():
                answer = client.resume_external(ids[note], payload)
                assert (answer.job_id, answer.number, answer.state) == (job_id, number, "running")
                with pytest.raises(CallbackNotFound):
                    client.resume_external(ids[note], payload)
        for note, job_id in jobs.items():
            done = reaches(client, job_id, "completed", process)
            assert (done.attempt, done.errors, len(began(note))) == (1, [], 1)
            assert paid(dsn, job_id) == [[[{"ok": None}], "ünï", 12345678901234567]]

        early = insert(client, tmp_path / "early", how="late")
        for note in early:
            assert client.resume_external(text_in(f"{note}.1"), 7).state == "running"
            Path(f"{note}.go").touch()
        for job_id in early.values():
            reaches(client, job_id, "completed", process)
            assert paid(dsn, job_id) == [[7]]


def test_a_handler_that_gives_a_wait_up_runs_on_and_waits_again_or_asks_another(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = {name: tmp_path / name for name in ("again", "answered", "another", "ahead")}
    with pool(tmp_path, dsn, workers=1, **OPTIONS) as process:
        hows = ("again", "again", "another", "another")
        asks = [
            PayAsync(str(note), how=how, timeout_s=0.5)
            for note, how in zip(notes.values(), hows, strict=True)
        ]
        jobs = dict(zip(notes, client.insert_many(asks), strict=True))
        ids = {name: text_in(f"{note}.1") for name, note in notes.items()}
        for name, note in notes.items():
            wait_until("the wait to be given up", lambda note=note: os.path.exists(f"{note}.given_up"))
            reaches(client, jobs[name], "running", process)
        with psycopg.connect(dsn, autocommit=True) as conn:
            over = "select bool_and(callback_until < clock_timestamp()) from awa_pool.leases"
            wait_until("the time-outs", lambda: conn.execute(over).fetchone() == (True,))
            assert conn.execute("select expired from awa_pool.expire_callbacks(100)").fetchone() == (0,)
            conn.execute("update awa_pool.leases set callback_until = now() + interval '1 hour'")
        client.resume_external(ids["answered"], "in between")
        client.resume_external(ids["ahead"], "not wanted any more")
        for note in notes.values():
            Path(f"{note}.go").touch()
        for name in ("another", "ahead"):
            second = text_in(f"{notes[name]}.2")
            reaches(client, jobs[name], "waiting_external", process)
            with pytest.raises(CallbackNotFound):
                client.resume_external(ids[name], "too late")
            assert client.resume_external(second, "from another").number == 2
        reaches(client, jobs["again"], "waiting_external", process)
        client.resume_external(ids["again"], "at last")
        wanted = {
            "again": "at last",
            "answered": "in between",
            "another": "from another",
            "ahead": "from another",
        }
        for name, payload in wanted.items():
            done = reaches(client, jobs[name], "completed", process)
            assert (done.attempt, done.errors, len(began(notes[name]))) == (1, [], 1)
            assert paid(dsn, jobs[name]) == [[payload]]


ENDS: dict[str, tuple[Callable[[Client, int, str], object], dict[str, Any], str, str]] = {
    "cancel": (lambda client, job_id, _: client.cancel(job_id), {}, "JobCancelled", "cancelled"),
    "complete": (lambda client, _, id: client.complete_external(id, 1), {}, "LeaseLost", "completed"),
    "fail": (lambda client, _, id: client.fail_external(id, "no money"), {}, "LeaseLost", "failed"),
    "timed_out": (lambda *_: None, {"timeout_s": 0.3}, "CallbackTimeout", "failed"),
    "late": (lambda *_: None, {"deadline": 0.5}, "DeadlineExceeded", "failed"),
}


def test_each_end_from_outside_has_its_exception_and_drops_what_was_to_follow(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    with pool(tmp_path, dsn, workers=1, **OPTIONS) as process:
        jobs = {how: insert(client, tmp_path / how, max_attempts=1, **ENDS[how][1]) for how in ENDS}
        for how, (act, _, raised, state) in ENDS.items():
            for note, job_id in jobs[how].items():
                callback_id = text_in(f"{note}.1")
                if state != "failed":
                    reaches(client, job_id, "waiting_external", process)
                act(client, job_id, callback_id)
                assert text_in(f"{note}.raised").removeprefix("Task") == raised, how
                done = reaches(client, job_id, state, process)
                assert (done.attempt, len(began(note)), paid(dsn, job_id)) == (1, 1, [])
                with pytest.raises(CallbackNotFound):
                    client.resume_external(callback_id)

        again = insert(client, tmp_path / "again")
        for note, job_id in again.items():
            first = text_in(f"{note}.1")
            reaches(client, job_id, "waiting_external", process)
            client.retry_external(first)
            assert text_in(f"{note}.raised") == "LeaseLost"
            wait_until("another callback", lambda note=note, first=first: text_in(f"{note}.1") != first)
            reaches(client, job_id, "waiting_external", process)
            client.resume_external(text_in(f"{note}.1"), 2)
            done = reaches(client, job_id, "completed", process)
            assert (done.errors, len(began(note)), paid(dsn, job_id)) == ([], 2, [[2]])


def test_a_stop_gives_the_jobs_back_at_once_and_the_next_pool_runs_them_from_the_top(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    jobs = insert(client, tmp_path)
    with pool(tmp_path, dsn, **OPTIONS) as process:
        first = {note: text_in(f"{note}.1") for note in jobs}
        for job_id in jobs.values():
            reaches(client, job_id, "waiting_external", process)
        process.process.terminate()
        assert process.ended(15.0) == 0, process.log  # the time to drain is 20 s
    for note, job_id in jobs.items():
        assert text_in(f"{note}.raised") == "ShuttingDown"
        given_back = row(client, job_id)
        assert (given_back.state, given_back.attempt, given_back.errors) == ("available", 0, [])
        with pytest.raises(CallbackNotFound):
            client.resume_external(first[note])
    with pool(tmp_path, dsn, **OPTIONS) as process:
        for note, job_id in jobs.items():
            wait_until("another callback", lambda note=note: text_in(f"{note}.1") != first[note])
            client.resume_external(text_in(f"{note}.1"), 2)
            assert reaches(client, job_id, "completed", process).attempt == 1
            assert paid(dsn, job_id) == [[2]]


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "deaf"])
def test_answers_accepted_just_before_a_stop_are_given_and_their_handlers_end(
    client: Client, dsn: str, tmp_path: Path, listen: bool
) -> None:
    notes = [tmp_path / f"note{n}" for n in range(10)]
    jobs = [client.insert((Pay, PayAsync)[n % 2](str(note))) for n, note in enumerate(notes)]
    with pool(tmp_path, dsn, workers=1, listen=listen, **OPTIONS) as process:
        for job_id in jobs:
            reaches(client, job_id, "waiting_external", process)
        for note in notes:
            client.resume_external(text_in(f"{note}.1"), 5)
        process.process.terminate()
        assert process.ended(15.0) == 0, process.log
    for job_id, note in zip(jobs, notes, strict=True):
        assert (row(client, job_id).state, len(began(note))) == ("completed", 1)
        assert paid(dsn, job_id) == [[5]]


def test_waits_of_a_worker_that_is_killed_go_back_and_run_again_on_the_same_attempt(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    jobs = insert(client, tmp_path)
    with pool(tmp_path, dsn, workers=1, **OPTIONS) as process:
        first = {note: text_in(f"{note}.1") for note in jobs}
        for job_id in jobs.values():
            reaches(client, job_id, "waiting_external", process)
        os.kill(began(next(iter(jobs)))[0][2], signal.SIGKILL)
        for note, job_id in jobs.items():
            wait_until("another callback", lambda note=note: text_in(f"{note}.1") != first[note])
            with pytest.raises(CallbackNotFound):
                client.resume_external(first[note])
            client.resume_external(text_in(f"{note}.1"), 2)
            done = reaches(client, job_id, "completed", process)
            assert (done.attempt, done.errors, paid(dsn, job_id)) == (1, [], [[2]])
        assert "of_them_waited=2" in process.log


def test_handlers_that_wait_use_no_attempt_when_a_neighbour_crashes_their_worker_three_times(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = [tmp_path / f"note{n}" for n in range(20)]
    jobs = [client.insert((Pay, PayAsync)[n % 2](str(note))) for n, note in enumerate(notes)]
    with (
        psycopg.connect(dsn, autocommit=True) as conn,
        pool(tmp_path, dsn, workers=1, **OPTIONS) as process,
    ):
        waiting = "select count(*) from awa_pool.jobs where id = any(%s) and state = 'waiting_external'"
        wait_until("all to wait", lambda: next(iter(conn.execute(waiting, (jobs,))))[0] == 20)
        crash = client.insert(Crash())
        died = reaches(client, crash, "failed", process)
        assert [error["phase"] for error in died.errors] == ["handler"] * 3
        for note, job_id in zip(notes, jobs, strict=True):
            reaches(client, job_id, "waiting_external", process)
            wait_until("the newest run", lambda note=note: answered(client, text_in(f"{note}.1")))
            done = reaches(client, job_id, "completed", process)
            assert (done.attempt, done.errors, paid(dsn, job_id)) == (1, [], [[5]])


def answered(client: Client, callback_id: str) -> bool:
    """Answer a callback; False if it is of a run that has gone."""
    try:
        return client.resume_external(callback_id, 5).state == "running"
    except CallbackNotFound:
        return False


@pytest.mark.parametrize("how", ["crash", "crash_beside"])
def test_a_handler_that_crashes_after_its_wait_or_beside_it_uses_its_attempts(
    client: Client, dsn: str, tmp_path: Path, how: str
) -> None:
    jobs = insert(client, tmp_path, how=how)
    asynchronous = {note: job_id for note, job_id in jobs.items() if note.name == "PayAsync"}
    with pool(tmp_path, dsn, workers=1, **OPTIONS) as process:
        for note, job_id in (jobs if how == "crash" else asynchronous).items():
            if how == "crash":
                for run in (1, 2):
                    wait_until("a run", lambda note=note: answered(client, text_in(f"{note}.1")))
                    wait_until(
                        "its end", lambda job_id=job_id, run=run: len(row(client, job_id).errors) >= run
                    )
            failed = reaches(client, job_id, "failed", process)
            assert failed.attempt == 2 and len(failed.errors) == 2
            assert all("status 3" in error["error"] for error in failed.errors)


def test_a_handler_whose_host_was_taken_for_dead_is_told(client: Client, dsn: str, tmp_path: Path) -> None:
    jobs = insert(client, tmp_path, max_attempts=1)
    with pool(tmp_path, dsn, workers=1, heartbeat_s=60.0, stale_s=180.0, **OPTIONS) as process:
        for job_id in jobs.values():
            reaches(client, job_id, "waiting_external", process)
        with psycopg.connect(dsn) as conn:
            conn.execute("update awa_pool.runtimes set heartbeat_at = now() - interval '1 hour'")
            assert conn.execute("select sum(attempts) from awa_pool.rescue_stale(30, 100)").fetchone() == (2,)
        for note, job_id in jobs.items():
            assert text_in(f"{note}.raised") == "LeaseLost"
            assert reaches(client, job_id, "failed", process).attempt == 1


def test_a_thread_that_swallows_its_deadline_ends_with_its_worker_and_waits_beside_it_go_back(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    waiting = insert(client, tmp_path)
    with pool(tmp_path, dsn, workers=1, kill_grace_s=0.3, **OPTIONS) as process:
        first = {note: text_in(f"{note}.1") for note in waiting}
        for job_id in waiting.values():
            reaches(client, job_id, "waiting_external", process)
        deaf = client.insert(Pay(str(tmp_path / "deaf"), how="deaf"), deadline=0.3, max_attempts=1)
        error = reaches(client, deaf, "failed", process).errors[-1]
        assert error["reason"] == "deadline_exceeded" and "SIGKILL" in error["error"]
        for note, job_id in waiting.items():
            wait_until("another callback", lambda note=note: text_in(f"{note}.1") != first[note])
            client.resume_external(text_in(f"{note}.1"), 2)
            done = reaches(client, job_id, "completed", process)
            assert (done.attempt, done.errors, paid(dsn, job_id)) == (1, [], [[2]])


@pytest.mark.parametrize("role", ["finalizer", "dispatcher"])
def test_waits_outlive_the_processes_between_them_and_the_database(
    client: Client, dsn: str, tmp_path: Path, role: str
) -> None:
    jobs = insert(client, tmp_path, times=2)
    with pool(tmp_path, dsn, workers=1, concurrency=1, **OPTIONS) as process:
        for job_id in jobs.values():
            reaches(client, job_id, "waiting_external", process)
        (pid,) = process.children(f"awa-pool: {role}")
        os.kill(pid, signal.SIGKILL)
        process.logged(f"{role} is ready", 2)
        answer_and_complete(client, dsn, jobs, process)


def answer_and_complete(client: Client, dsn: str, jobs: dict[Path, int], process: PoolProcess) -> None:
    """Answer both waits of each handler; it goes on where it was."""
    for number in (1, 2):
        for note, job_id in jobs.items():
            callback_id = text_in(f"{note}.{number}")
            reaches(client, job_id, "waiting_external", process)
            client.resume_external(callback_id, number)
    for note, job_id in jobs.items():
        done = reaches(client, job_id, "completed", process)
        assert (done.attempt, done.errors, len(began(note))) == (1, [], 1)
        assert paid(dsn, job_id) == [[1, 2]]


def test_messages_that_are_lost_doubled_and_reordered_cost_no_wait_its_answer(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = [tmp_path / f"note{n}" for n in range(16)]
    jobs = [client.insert((Pay, PayAsync)[n % 2](str(note), times=2)) for n, note in enumerate(notes)]
    faults = "seed=5 drop=0.01 double=0.05 late=0.05"
    with pool(tmp_path, dsn, faults=faults, concurrency=2, **OPTIONS) as process:
        for number in (1, 2):
            for job_id, note in zip(jobs, notes, strict=True):
                assert client.resume_external(text_in(f"{note}.{number}"), [job_id, number]).number == number
        for job_id, note in zip(jobs, notes, strict=True):
            done = reaches(client, job_id, "completed", process)
            assert (done.attempt, done.errors, len(began(note))) == (1, [], 1)
            assert paid(dsn, job_id) == [[[job_id, 1], [job_id, 2]]]


def test_many_handlers_wait_in_few_slots_while_other_jobs_go_on(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = [tmp_path / f"note{n}" for n in range(40)]
    jobs = [client.insert((Pay, PayAsync)[n % 2](str(note))) for n, note in enumerate(notes)]
    with (
        psycopg.connect(dsn, autocommit=True) as conn,
        pool(tmp_path, dsn, workers=2, concurrency=2, **OPTIONS) as process,
    ):

        def count(state: str, ids: Sequence[int]) -> int:
            query = "select count(*) from awa_pool.jobs where id = any(%s) and state = %s"
            return next(iter(conn.execute(query, (list(ids), state))))[0]

        wait_until("all to wait", lambda: count("waiting_external", jobs) == 40)
        others = client.insert_many([Nothing() for _ in range(300)])
        others += client.insert_many([PayAsync(str(tmp_path / "other"), times=0) for _ in range(100)])
        wait_until("the others", lambda: count("completed", others) == 400)
        assert count("waiting_external", jobs) == 40
        for job_id, note in reversed(list(zip(jobs, notes, strict=True))):
            client.resume_external(text_in(f"{note}.1"), job_id)
        wait_until("those that waited", lambda: count("completed", jobs) == 40)
        assert {row(client, job_id).attempt for job_id in jobs} == {1}
        assert "give their slots away" not in process.log
    assert [paid(dsn, job_id) for job_id in jobs] == [[[job_id]] for job_id in jobs]


def test_a_worker_that_is_replaced_keeps_its_waits_and_its_successor_takes_the_jobs(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    jobs = insert(client, tmp_path, times=2)
    with pool(tmp_path, dsn, workers=1, max_jobs_per_worker=5, **OPTIONS) as process:
        for job_id in jobs.values():
            reaches(client, job_id, "waiting_external", process)
        for _ in range(12):
            reaches(client, client.insert(Nothing()), "completed", process)
        process.logged("worker 1 is ready", 3)
        answer_and_complete(client, dsn, jobs, process)
        (pid,) = {line[2] for note in jobs for line in began(note)}
        wait_until("the old worker to leave", lambda: pid not in process.children())
