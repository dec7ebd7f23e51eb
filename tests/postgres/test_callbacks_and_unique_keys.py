"""A handler that waits keeps its job's unique key; a parked job holds it if its mask says so."""

from __future__ import annotations

import psycopg
import pytest
from callbacks_rig import answer, expire, make_overdue, park, register, wait
from general_rig import Attempt, Queue

KEY = bytes(range(16))
DEFAULT = 0b0001_1111
WITH_WAITING = DEFAULT | 1 << 7
WAITS_ONLY = 0b1001_0011  # scheduled, available, retryable, waiting_external: free while it runs


def put(q: Queue, states: int) -> int:
    return q.one(
        "select awa_pool.enqueue('k', '{}', %s, p_unique_key => %s, p_unique_states => %s)",
        q.name, KEY, states,
    )  # fmt: skip


def registered(q: Queue, states: int) -> tuple[Attempt, str]:
    put(q, states)
    (attempt,) = q.claim()
    return attempt, register(q, attempt)[0]


def holder(q: Queue) -> int | None:
    rows = q.rows("select job_id from awa_pool.unique_claims where unique_key = %s", KEY)
    return rows[0][0] if rows else None


def test_a_wait_in_the_handler_keeps_the_key(q: Queue) -> None:
    attempt, callback = registered(q, DEFAULT)
    assert wait(q, attempt, callback)[0] == "waiting"
    assert holder(q) == attempt.job_id
    answer(q, "resume_external", callback)
    assert wait(q, attempt, callback)[0] == "answered"
    assert q.finish(attempt.ended("completed")) == [("done", "completed")]
    assert holder(q) == attempt.job_id


def test_a_parked_job_gives_its_key_up_and_takes_it_back(q: Queue) -> None:
    attempt, callback = registered(q, DEFAULT)
    assert park(q, attempt, callback) == ("done", "waiting_external")
    assert holder(q) is None
    assert answer(q, "resume_external", callback)[2] == "available"
    assert holder(q) == attempt.job_id


@pytest.mark.parametrize("function", ["resume_external", "retry_external"])
def test_a_parked_job_whose_key_another_has_stays_parked_until_that_is_over(q: Queue, function: str) -> None:
    attempt, callback = registered(q, DEFAULT)
    park(q, attempt, callback)
    second = put(q, DEFAULT)
    with pytest.raises(psycopg.Error) as refused:
        answer(q, function, callback)
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW007", str(second))
    assert q.state(attempt.job_id) == "waiting_external"
    q.one("select awa_pool.cancel(%s)", second)
    assert answer(q, function, callback)[2] == "available"
    assert holder(q) == attempt.job_id


def test_a_mask_with_the_waiting_state_keeps_the_key_of_a_parked_job(q: Queue) -> None:
    attempt, callback = registered(q, WITH_WAITING)
    park(q, attempt, callback)
    assert holder(q) == attempt.job_id
    assert answer(q, "complete_external", callback)[2] == "completed"
    assert holder(q) == attempt.job_id


def test_a_job_that_is_free_to_run_beside_others_takes_its_key_to_park(q: Queue) -> None:
    attempt, callback = registered(q, WAITS_ONLY)
    assert holder(q) is None
    park(q, attempt, callback)
    assert holder(q) == attempt.job_id
    other, late = registered_beside(q)
    assert park(q, other, late) == ("done", "cancelled")
    job = q.job(other.job_id)
    assert job is not None and job["reason"] == f"duplicate of job {attempt.job_id}"
    assert answer(q, "complete_external", callback)[2] == "completed"
    assert holder(q) is None


def registered_beside(q: Queue) -> tuple[Attempt, str]:
    """Another job of the same key that runs: it was put in while the key was free, as this test makes it."""
    (held,) = q.rows("delete from awa_pool.unique_claims returning job_id")
    attempt, callback = registered(q, WAITS_ONLY)
    q.rows("insert into awa_pool.unique_claims (unique_key, job_id) values (%s, %s)", KEY, held[0])
    return attempt, callback


def test_a_parked_job_whose_time_is_over_and_whose_key_another_has_ends_as_its_duplicate(q: Queue) -> None:
    attempt, callback = registered(q, DEFAULT)
    park(q, attempt, callback)
    second = put(q, DEFAULT)
    make_overdue(q, attempt.job_id)
    assert q.rows("select expired, failed, cancelled from awa_pool.expire_callbacks(1000)") == [(1, 0, 1)]
    job = q.job(attempt.job_id)
    assert job is not None and (job["state"], job["reason"]) == ("cancelled", f"duplicate of job {second}")
    assert holder(q) == second


def test_a_key_that_is_about_to_change_hands_puts_the_answer_and_the_timeout_off(q: Queue, dsn: str) -> None:
    attempt, callback = registered(q, DEFAULT)
    park(q, attempt, callback)
    make_overdue(q, attempt.job_id)
    with Queue(dsn) as other, other.conn.transaction():
        put(other, DEFAULT)
        with pytest.raises(psycopg.Error) as refused:
            answer(q, "resume_external", callback)
        assert refused.value.sqlstate == "55P03"
        assert expire(q) == 0
        assert q.state(attempt.job_id) == "waiting_external"
        raise psycopg.Rollback
    assert answer(q, "resume_external", callback)[2] == "available"


def test_cancelling_a_parked_job_frees_its_key(q: Queue) -> None:
    attempt, callback = registered(q, WITH_WAITING)
    park(q, attempt, callback)
    q.one("select awa_pool.cancel(%s)", attempt.job_id)
    assert holder(q) is None
