"""Callbacks in the database of jobs that wait with no handler alive."""

from __future__ import annotations

import json

import pytest
from callbacks_rig import (
    answer,
    park,
    parked,
    refused,
    register,
    told,
    waiting,
)
from general_rig import Queue


def test_a_parked_job_goes_on_in_the_same_attempt_under_a_new_lease_and_carries_the_answer(q: Queue) -> None:
    attempt, callback = parked(q, metadata={"who": "me", "n": 1.50})
    assert q.claim() == []
    payload = '{"n": 1e16, "z": -0.0}'
    assert answer(q, "resume_external", callback, payload) == (attempt.job_id, 1, "available")
    refused(q, "resume_external", callback, payload)
    (again,) = q.claim()
    assert (again.job_id, again.attempt, again.run_lease) == (
        attempt.job_id, attempt.attempt, attempt.run_lease + 1,
    )  # fmt: skip
    job = q.job(again.job_id)
    assert job is not None
    assert job["metadata"] == {
        "who": "me", "n": 1.5, "awa:callback": {"number": 1, "payload": json.loads(payload)},
    }  # fmt: skip
    assert q.finish(attempt.ended("completed")) == [("stale", None)]
    second, number = register(q, again)
    assert number == 2  # counted on from the answer that it carries
    assert park(q, again, second) == ("done", "waiting_external")
    answer(q, "resume_external", second, "7")
    (third,) = q.claim()
    job = q.job(third.job_id)
    assert job is not None and job["metadata"]["awa:callback"] == {"number": 2, "payload": 7}
    assert third.attempt == attempt.attempt
    assert q.finish(third.ended("completed")) == [("done", "completed")]


def test_the_answer_stays_with_the_job_when_it_is_retried(q: Queue) -> None:
    attempt, callback = parked(q)
    answer(q, "resume_external", callback, '"paid"')
    (again,) = q.claim()
    assert q.finish(again.ended("retry", delay_s=0)) == [("done", "retryable")]
    q.make_due()
    q.promote()
    (third,) = q.claim()
    assert third.attempt == attempt.attempt + 1
    job = q.job(third.job_id)
    assert job is not None and job["metadata"]["awa:callback"] == {"number": 1, "payload": "paid"}
    assert register(q, third)[1] == 2


def test_a_job_that_parks_after_its_answer_came_is_available_at_once(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    answer(q, "resume_external", callback, "3")
    assert park(q, attempt, callback) == ("done", "available")
    (again,) = q.claim()
    job = q.job(again.job_id)
    assert job is not None and job["metadata"] == {"awa:callback": {"number": 1, "payload": 3}}


def test_an_attempt_that_waits_may_park(q: Queue) -> None:
    attempt, callback = waiting(q)
    assert park(q, attempt, callback) == ("done", "waiting_external")
    assert answer(q, "resume_external", callback)[2] == "available"


def test_neither_rescue_nor_audit_nor_a_late_end_touches_a_parked_job_but_a_wait_dies_with_its_host(
    q: Queue,
) -> None:
    q.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", q.runtime)
    sleeper, callback = parked(q)
    waiter, _ = waiting(q)
    opened = q.rows("select job_ids from awa_pool.open_attempts(%s)", q.runtime)
    assert [[j for j in ids if j] for (ids,) in opened] == [[waiter.job_id]]
    q.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '1 h'")
    assert [r[1] for r in q.rows("select * from awa_pool.rescue_stale(30, 100)")] == [1]
    assert (q.state(sleeper.job_id), q.state(waiter.job_id)) == ("waiting_external", "retryable")
    for outcome in ("completed", "retry", "lost", "return", "cancel"):
        assert q.finish(sleeper.ended(outcome, delay_s=1)) == [("stale", None)]
    (row,) = q.rows(
        "select done, busy from awa_pool.complete(array[%s], array[%s::bigint], array[%s::bigint], array[1::bigint << %s])",
        sleeper.slot, sleeper.receipt_id, sleeper.nonce, sleeper.index,
    )  # fmt: skip
    assert row == (0, 0)
    assert answer(q, "resume_external", callback)[2] == "available"


@pytest.mark.parametrize("make", [waiting, parked])
def test_what_an_attempt_said_of_its_progress_outlives_its_wait(q: Queue, make: object) -> None:
    attempt, callback = make(q)  # type: ignore[operator]
    q.rows("select awa_pool.keep_progress(%s::json)", json.dumps([told(attempt, progress={"percent": 40})]))
    q.rows("update awa_pool.attempt_state set written_at = now() - interval '1 h'")
    q.rows("select awa_pool.sweep_progress(100)")
    answer(q, "resume_external", callback)
    job = q.job(attempt.job_id)
    assert job is not None and job["progress"] == {"percent": 40}
