"""Every arrow of the state machine, driven through the SQL functions; every refusal of what is no arrow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from callbacks_rig import answer, expire, give_up, make_overdue, park, parked, register, wait, waiting
from general_rig import Attempt, Queue

from awa_pool.states import ARROWS, Cause, Outcome, State

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def _shared(pg_server: Any, _template: str) -> Iterator[str]:
    """A database for all tests of this module, which keep to queues of their own."""
    pg_server.execute("create database every_arrow template awa_template")
    yield pg_server.dsn("every_arrow")
    pg_server.execute("drop database every_arrow with (force)")


@pytest.fixture
def queue(_shared: str) -> Iterator[Queue]:
    with Queue(_shared, f"queue_{next(_numbers)}") as found:
        yield found


def _available(q: Queue) -> int:
    return q.enqueue()


def _scheduled(q: Queue) -> int:
    return q.enqueue(run_at="2099-01-01T00:00:00Z")


def _retryable(q: Queue) -> int:
    attempt = q.claimed()
    assert q.finish(attempt.ended("retry", delay_s=60)) == [("done", "retryable")]
    return attempt.job_id


def _failed(q: Queue) -> int:
    attempt = q.claimed()
    assert q.finish(attempt.ended("fail", error={"error": "no"})) == [("done", "failed")]
    return attempt.job_id


def _cancelled(q: Queue) -> int:
    job_id = q.enqueue()
    assert q.one("select awa_pool.cancel(%s)", job_id) == "cancelled"
    return job_id


def _running(q: Queue) -> int:
    return q.claimed().job_id


def _completed(q: Queue) -> int:
    attempt = q.claimed()
    assert q.finish(attempt.ended("completed")) == [("done", "completed")]
    return attempt.job_id


def _waiting(q: Queue) -> int:
    return waiting(q)[0].job_id


OUTSIDE = {
    Cause.ANSWERED: ("resume_external",), Cause.RESUMED: ("resume_external",),
    Cause.COMPLETED_OUTSIDE: ("complete_external",), Cause.FAILED_OUTSIDE: ("fail_external", "no"),
    Cause.RETRIED_OUTSIDE: ("retry_external",),
}  # fmt: skip


def _drive_callback(q: Queue, start: State, cause: Cause) -> int:
    if start is State.RUNNING:
        attempt = q.claimed()
        callback, _ = register(q, attempt)
    else:
        last = 1 if cause is Cause.EXHAUSTED else 3
        attempt, callback = (parked if cause is Cause.RESUMED else waiting)(q, max_attempts=last)
    if cause in OUTSIDE:
        answer(q, OUTSIDE[cause][0], callback, *OUTSIDE[cause][1:])
    elif cause is Cause.GIVEN_UP:
        assert give_up(q, attempt, callback) == ("left", None)
    elif cause is Cause.WAITED:
        assert wait(q, attempt, callback) == ("waiting", None)
    if start is State.RUNNING and cause in (Cause.PARKED, Cause.RESUMED):
        assert park(q, attempt, callback)[0] == "done"
    if cause in (Cause.TIMED_OUT, Cause.EXHAUSTED):
        make_overdue(q, attempt.job_id)
        assert expire(q) == 1
    return attempt.job_id


START: dict[State, Callable[[Queue], int]] = {
    State.AVAILABLE: _available, State.SCHEDULED: _scheduled, State.RETRYABLE: _retryable, State.FAILED: _failed,
    State.CANCELLED: _cancelled, State.RUNNING: _running, State.COMPLETED: _completed,
    State.WAITING_EXTERNAL: _waiting,
}  # fmt: skip


def _drive(q: Queue, start: State | None, cause: Cause | Outcome) -> int:
    """Bring a job to `start`, apply `cause`, return the job's id."""
    if start is None:
        return _available(q) if cause is Cause.INSERTED else _scheduled(q)
    by_callback = {Cause.WAITED, Cause.GIVEN_UP, Cause.PARKED, Cause.TIMED_OUT, *OUTSIDE}
    if cause in by_callback or (start, cause) == (State.WAITING_EXTERNAL, Cause.EXHAUSTED):
        return _drive_callback(q, start, Cause(cause))
    if isinstance(cause, Outcome) and start is State.WAITING_EXTERNAL:
        attempt, _ = waiting(q, max_attempts=3)
        assert q.finish(attempt.ended(str(cause), delay_s=60))[0][0] == "done"
        return attempt.job_id
    if start is State.RUNNING and cause is not Cause.CANCELLED:
        exhausted = cause is Cause.EXHAUSTED
        attempt = q.claimed(max_attempts=1 if exhausted else 3)
        word = "retry" if exhausted else str(cause)
        ((status, _),) = q.finish(attempt.ended(word, delay_s=60))
        assert status == "done"
        return attempt.job_id
    job_id = START[start](q)
    match cause:
        case Cause.CLAIMED:
            assert [a.job_id for a in q.claim()] == [job_id]
        case Cause.DUE:
            q.make_due()
            assert q.promote()[0] == 1
        case Cause.CANCELLED:
            assert q.one("select awa_pool.cancel(%s)", job_id) == "cancelled"
        case Cause.RETRIED_BY_HAND:
            assert q.one("select awa_pool.retry(%s)", job_id) == "available"
        case Cause.RETRIED_FOR_LATER:
            assert q.retry_dead(job_id, run_at="2099-01-01T00:00:00Z") == [(job_id, "done", "scheduled")]
        case Cause.MOVED_TO_DEAD:
            if start is State.FAILED:  # of the history: what is dead already is refused
                q.bring_back_to_the_history(job_id)
            assert q.one("select awa_pool.move_to_dead(%s)", job_id) == "failed"
            assert q.one("select count(*) from awa_pool.jobs_dead where job_id = %s", job_id) == 1
        case _:
            pytest.fail(f"no driver for {cause}")
    return job_id


@pytest.mark.parametrize(
    ("arrow", "end"), ARROWS.items(), ids=[f"{s}-{c}-{e}" for (s, c), e in ARROWS.items()]
)
def test_each_arrow_ends_in_its_state(
    queue: Queue, arrow: tuple[State | None, Cause | Outcome], end: State
) -> None:
    assert queue.state(_drive(queue, *arrow)) == end


def test_ids_beyond_32_bits_go_through_every_arrow(dsn: str) -> None:
    with Queue(dsn) as queue:
        for sequence in ("job_id_seq", "receipt_id_seq"):
            queue.rows(f"select setval('awa_pool.{sequence}', 2147483640, false)")
        for n, (arrow, end) in enumerate([*ARROWS.items()] * 2):
            queue.name = f"queue_{n}"
            job_id = _drive(queue, *arrow)
            assert queue.state(job_id) == end
        assert job_id > 2**31
        assert queue.one("select max(receipt_id) from awa_pool.receipts") > 2**31


@pytest.mark.parametrize("start", list(START))
@pytest.mark.parametrize("word", ["cancel", "retry"])
def test_what_is_no_arrow_is_refused_naming_the_state(queue: Queue, start: State, word: str) -> None:
    cause = Cause.CANCELLED if word == "cancel" else Cause.RETRIED_BY_HAND
    job_id = START[start](queue)
    if (start, cause) in ARROWS:
        assert queue.one(f"select awa_pool.{word}(%s)", job_id) == ARROWS[start, cause]
        return
    with pytest.raises(psycopg.Error, match=f"job {job_id} is {start}") as refused:
        queue.rows(f"select awa_pool.{word}(%s)", job_id)
    assert refused.value.sqlstate == "AW005"
    assert queue.state(job_id) == start


@pytest.mark.parametrize("word", ["cancel", "retry"])
def test_a_job_that_does_not_exist_is_refused(queue: Queue, word: str) -> None:
    with pytest.raises(psycopg.Error, match="no job has the id 404") as refused:
        queue.rows(f"select awa_pool.{word}(404)")
    assert refused.value.sqlstate == "AW004"


@pytest.mark.parametrize("outcome", [o.value for o in Outcome if o is not Outcome.PARK])
@pytest.mark.parametrize("moved", [False, True], ids=["in-its-slot", "moved-out"])
def test_an_attempt_ends_once_and_the_second_word_is_stale(queue: Queue, outcome: str, moved: bool) -> None:
    attempt = queue.claimed()
    if moved:
        queue.move(attempt)
        assert queue.state(attempt.job_id) == "running"
    item = attempt.ended(outcome, delay_s=60)
    end = ARROWS[State.RUNNING, Outcome(outcome)].value
    assert queue.finish(item, item) == [("done", end), ("stale", None)]
    assert queue.finish(attempt.ended("completed"), attempt.ended("fail")) == [("stale", None)] * 2
    assert queue.state(attempt.job_id) == end


@pytest.mark.parametrize(
    ("outcome", "used", "snoozes"),
    [("retry", 1, 0), ("lost", 1, 0), ("fail", 1, 0), ("cancel", 1, 0), ("snooze", 0, 1), ("return", 0, 0)],
)
def test_an_outcome_counts_the_attempt_by_its_rule_and_keeps_the_lease(
    queue: Queue, outcome: str, used: int, snoozes: int
) -> None:
    attempt = queue.claimed(tags=["a", "b"], metadata={"m": 1}, ordering_key="o", args={"x": 1e16})
    queue.finish(attempt.ended(outcome, delay_s=60, error={"error": "why", "type": "E"}))
    job = queue.job(attempt.job_id)
    assert job is not None
    assert (job["attempt"], job["snoozes"], job["run_lease"]) == (used, snoozes, 1)
    assert (job["tags"], job["metadata"], job["ordering_key"], job["args"]) == (
        ["a", "b"],
        {"m": 1},
        "o",
        {"x": 1e16},
    )
    assert [(e["error"], e["attempt"]) for e in job["errors"]] == [("why", 1)]


def test_a_snoozed_job_uses_no_attempt_however_often(queue: Queue) -> None:
    """B128."""
    job_id = queue.enqueue(max_attempts=1)
    for n in range(1, 6):
        (attempt,) = queue.claim()
        assert (attempt.attempt, attempt.run_lease) == (1, n)
        queue.finish(attempt.ended("snooze", delay_s=1))
        queue.make_due()
        queue.promote()
    (attempt,) = queue.claim()
    assert queue.finish(attempt.ended("completed")) == [("done", "completed")]
    assert (queue.job(job_id) or {})["snoozes"] == 5


@pytest.mark.parametrize("outcome", ["retry", "lost"])
def test_the_last_attempt_fails_the_job(queue: Queue, outcome: str) -> None:
    attempt = queue.claimed(max_attempts=1)
    assert queue.finish(attempt.ended(outcome, error={"error": "e"})) == [("done", "failed")]
    job = queue.job(attempt.job_id) or {}
    assert (job["reason"], job["attempt"]) == ("max_attempts_exhausted", 1)


def test_retry_by_hand_starts_over_and_keeps_the_errors(queue: Queue) -> None:
    job_id = _failed(queue)
    queue.rows("select awa_pool.retry(%s)", job_id)
    job = queue.job(job_id) or {}
    assert (job["state"], job["attempt"], [e["error"] for e in job["errors"]]) == ("available", 0, ["no"])
    (attempt,) = queue.claim()
    assert (attempt.job_id, attempt.attempt, attempt.run_lease) == (job_id, 1, 2)


def test_one_transaction_may_cancel_and_retry_a_job_again_and_again(queue: Queue) -> None:
    job_id = queue.enqueue()
    with queue.conn.transaction():
        for _ in range(3):
            queue.rows("select awa_pool.cancel(%s)", job_id)
            queue.rows("select awa_pool.retry(%s)", job_id)
    assert queue.state(job_id) == "available"
    (attempt,) = queue.claim()
    assert attempt.job_id == job_id
    assert queue.claim() == []


def test_a_returned_job_is_claimed_before_its_lane(queue: Queue) -> None:
    first = queue.claimed()
    queue.enqueue()
    queue.finish(first.ended("return"))
    again, other = queue.claim()
    assert again.job_id == first.job_id
    assert (again.attempt, again.run_lease) == (1, 2)
    assert queue.finish(first.ended("completed"), again.ended("completed"), other.ended("completed")) == [
        ("stale", None), ("done", "completed"), ("done", "completed"),
    ]  # fmt: skip


def test_a_paused_queue_still_promotes_and_gives_nothing(queue: Queue) -> None:
    job_id = _scheduled(queue)
    queue.rows("select awa_pool.pause_queue(%s)", queue.name)
    queue.make_due()
    assert queue.promote()[0] == 1
    assert queue.claim() == []
    queue.rows("select awa_pool.resume_queue(%s)", queue.name)
    assert [a.job_id for a in queue.claim()] == [job_id]


def test_a_cancelled_attempt_is_named_to_its_dispatcher(queue: Queue) -> None:
    with psycopg.connect(queue.dsn, autocommit=True) as listener:
        listener.execute("listen awa_pool")
        attempts: list[Attempt] = [queue.claimed(), queue.claimed()]
        queue.move(attempts[1])
        for a in attempts:
            queue.rows("select awa_pool.cancel(%s)", a.job_id)
        heard = [n.payload for n in listener.notifies(timeout=10, stop_after=2)]
    assert heard == [f"cancel {a.job_id} {a.run_lease} {a.receipt_id}" for a in attempts]
