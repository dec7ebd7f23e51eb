"""What the outside world may answer to a callback, and what becomes of one that nobody answers."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from callbacks_rig import (
    ANSWERS,
    answer,
    expire,
    make_overdue,
    parked,
    refused,
    register,
    wait,
    waiting,
)
from general_rig import Queue


@pytest.mark.parametrize("make", [waiting, parked])
def test_an_answer_may_complete_the_job(q: Queue, make: object) -> None:
    attempt, callback = make(q, metadata={"a": 1})  # type: ignore[operator]
    assert answer(q, "complete_external", callback, '"done"') == (attempt.job_id, 1, "completed")
    job = q.job(attempt.job_id)
    assert job is not None
    assert (job["state"], job["attempt"]) == ("completed", attempt.attempt)
    assert job["metadata"] == {"a": 1, "awa:callback": {"number": 1, "payload": "done"}}
    assert q.finish(attempt.ended("retry", delay_s=1)) == [("stale", None)]
    refused(q, "complete_external", callback, "1")


def test_completing_with_resume_lets_the_job_go_on(q: Queue) -> None:
    attempt, callback = waiting(q)
    assert answer(q, "complete_external", callback, "5", True) == (attempt.job_id, 1, "running")
    assert wait(q, attempt, callback) == ("answered", "5")


@pytest.mark.parametrize("make", [waiting, parked])
def test_an_answer_may_fail_the_job_for_good(q: Queue, make: object) -> None:
    attempt, callback = make(q)  # type: ignore[operator]
    assert answer(q, "fail_external", callback, "card declined") == (attempt.job_id, 1, "failed")
    job = q.job(attempt.job_id)
    assert job is not None
    assert (job["dead"], job["reason"]) == (True, "callback_failed")
    assert (job["errors"][0]["error"], job["errors"][0]["type"]) == ("card declined", "CallbackFailed")
    assert q.finish(attempt.ended("completed")) == [("stale", None)]


@pytest.mark.parametrize("make", [waiting, parked])
def test_an_answer_may_ask_for_another_run_with_all_attempts(q: Queue, make: object) -> None:
    attempt, callback = make(q, max_attempts=1)  # type: ignore[operator]
    assert answer(q, "retry_external", callback) == (attempt.job_id, 1, "available")
    (again,) = q.claim()
    assert (again.job_id, again.attempt) == (attempt.job_id, 1)
    assert q.finish(attempt.ended("completed"), again.ended("completed")) == [
        ("stale", None), ("done", "completed"),
    ]  # fmt: skip


def test_only_a_job_that_waits_is_rerun_or_kept_waiting(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    refused(q, "retry_external", callback)
    refused(q, "heartbeat_callback", callback, 60.0)
    assert q.state(attempt.job_id) == "running"


@pytest.mark.parametrize(
    ("action", "state"),
    [("complete", "completed"), ("fail", "failed"), ("ignore", "waiting_external"), ("resume", "running")],
)
def test_what_an_answer_means_may_be_left_open(q: Queue, action: str, state: str) -> None:
    attempt, callback = waiting(q)
    assert answer(q, "resolve_callback", callback, "1", action) == (attempt.job_id, 1, state, action)
    assert q.state(attempt.job_id) == state


def test_a_heartbeat_moves_the_timeout_and_nothing_else(q: Queue) -> None:
    """B139."""
    attempt, callback = parked(q)
    make_overdue(q, attempt.job_id)
    answer(q, "heartbeat_callback", callback, 3600.0)
    assert expire(q) == 0
    left = q.one(
        "select extract(epoch from until - now())::int from awa_pool.callback_of(%s)", attempt.job_id
    )
    assert 3000 < left <= 3600
    assert q.state(attempt.job_id) == "waiting_external"


@pytest.mark.parametrize(
    "callback", ["", "nobody", "' or true --", str(uuid.UUID(int=0)), "é" * 300, str(uuid.UUID(int=7)) + "0"]
)
def test_ids_that_nobody_gave_out_are_refused_and_change_nothing(q: Queue, callback: str) -> None:
    attempt, real = waiting(q)
    for function, values in ANSWERS.items():
        refused(q, function, callback, *values)
    assert wait(q, attempt, real) == ("waiting", None)
    assert wait(q, attempt, callback) == ("refused", None)


@pytest.mark.parametrize(
    ("function", "values"),
    [("resume_external", ('"\\u0000"',)), ("complete_external", ('"\\ud800"',)),
     ("resume_external", ('"' + "x" * (1 << 20) + '"',)), ("fail_external", ("",)), ("resolve_callback", ("1", "explode")),
     ("heartbeat_callback", (0.0,)), ("heartbeat_callback", (float("nan"),)), ("heartbeat_callback", (1e9,))],
)  # fmt: skip
def test_what_cannot_be_an_answer_is_refused_by_name_and_leaves_the_callback_open(
    q: Queue, function: str, values: tuple[object, ...]
) -> None:
    attempt, callback = waiting(q)
    with pytest.raises(psycopg.Error) as problem:
        answer(q, function, callback, *values)
    assert problem.value.sqlstate == "AW001"
    assert wait(q, attempt, callback) == ("waiting", None)


@pytest.mark.parametrize("make", [waiting, parked])
def test_a_job_whose_callback_times_out_tries_again_and_on_the_last_attempt_fails(
    q: Queue, make: object
) -> None:
    """B139: a heartbeat after that is refused, as any answer is."""
    first, callback = make(q)  # type: ignore[operator]
    last, _ = make(q, max_attempts=1)  # type: ignore[operator]
    assert expire(q) == 0
    make_overdue(q, first.job_id)
    make_overdue(q, last.job_id)
    expired = q.rows("select expired, failed, cancelled, jobs from awa_pool.expire_callbacks(1000)")
    assert expired == [(2, 1, 0, [last.job_id, first.job_id])]
    job, dead = q.job(first.job_id), q.job(last.job_id)
    assert job is not None and dead is not None
    assert (job["state"], job["attempt"], job["errors"][0]["type"]) == ("retryable", 1, "CallbackTimeout")
    assert q.one("select run_at > now() from awa_pool.jobs_deferred where job_id = %s", first.job_id)
    assert (dead["state"], dead["dead"], dead["reason"]) == ("failed", True, "callback_timeout")
    refused(q, "resume_external", callback)
    refused(q, "heartbeat_callback", callback, 3600.0)
    assert q.finish(first.ended("completed")) == [("stale", None)]
    assert expire(q) == 0


def test_a_handler_that_has_not_begun_to_wait_and_one_that_was_answered_do_not_time_out(q: Queue) -> None:
    running, answered = q.claimed(), q.claimed()
    callback, _ = register(q, running)
    other, _ = register(q, answered)
    assert wait(q, answered, other)[0] == "waiting"
    answer(q, "resume_external", other, "1")
    make_overdue(q, running.job_id)
    make_overdue(q, answered.job_id)
    assert expire(q) == 0
    assert wait(q, answered, other) == ("answered", "1")
    assert wait(q, running, callback) == ("waiting", None)
    assert expire(q) == 1


def test_the_next_timeout_is_told(q: Queue) -> None:
    assert q.one("select next_due_s from awa_pool.expire_callbacks(10)") is None
    waiting(q)
    assert 3000 < q.one("select next_due_s from awa_pool.expire_callbacks(10)") <= 3600


def test_at_most_so_many_time_out_in_one_call(q: Queue) -> None:
    for _ in range(3):
        make_overdue(q, parked(q)[0].job_id)
    assert q.rows("select expired, next_due_s from awa_pool.expire_callbacks(2)") == [(2, 0.0)]
    assert q.one("select expired from awa_pool.expire_callbacks(2)") == 1
