"""Callbacks in the database that a handler registers and waits for."""

from __future__ import annotations

import json
import uuid

import pytest
from callbacks_rig import (
    ANSWERS,
    HOUR_S,
    answer,
    expire,
    give_up,
    make_overdue,
    park,
    refused,
    register,
    register_all,
    told,
    wait,
    waiting,
)
from general_rig import Attempt, Queue


def test_a_handler_waits_again_and_again_on_the_same_attempt_and_lease(q: Queue) -> None:
    attempt = q.claimed(args={"n": 1e16})
    for number in range(1, 6):
        callback, numbered = register(q, attempt)
        assert numbered == number
        assert q.state(attempt.job_id) == "running"
        assert wait(q, attempt, callback) == ("waiting", None)
        assert q.state(attempt.job_id) == "waiting_external"
        assert wait(q, attempt, callback) == ("waiting", None)
        payload = '{"n": 1e16, "big": 1234567890123456789, "z": -0.0}'
        assert answer(q, "resume_external", callback, payload) == (attempt.job_id, number, "running")
        assert q.state(attempt.job_id) == "running"
        assert wait(q, attempt, callback) == ("answered", payload)  # to the letter
        assert wait(q, attempt, callback) == ("answered", payload)  # a lost reply is asked for again
        refused(q, "resume_external", callback, "1")
    job = q.job(attempt.job_id)
    assert job is not None and (job["attempt"], job["run_lease"]) == (attempt.attempt, attempt.run_lease)
    assert q.finish(attempt.ended("completed")) == [("done", "completed")]
    assert q.finish(attempt.ended("completed")) == [("stale", None)]


def test_a_moved_attempt_completes_on_the_batched_road(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    answer(q, "resume_external", callback)
    assert wait(q, attempt, callback) == ("answered", "null")
    rows = q.rows(
        "select done, stale, busy from awa_pool.complete(array[%s], array[%s::bigint], array[%s::bigint], array[1::bigint << %s])",
        attempt.slot, attempt.receipt_id, attempt.nonce, attempt.index,
    )  # fmt: skip
    assert rows == [(1 << attempt.index, 0, 0)]
    assert q.state(attempt.job_id) == "completed"


def test_an_answer_that_comes_before_the_wait_is_kept_for_it(q: Queue) -> None:
    """B137."""
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    assert answer(q, "resume_external", callback, '"early"')[2] == "running"
    refused(q, "resume_external", callback, '"late"')
    refused(q, "complete_external", callback, "1")
    assert wait(q, attempt, callback) == ("answered", '"early"')


def test_an_older_callback_is_refused_once_there_is_a_newer_one(q: Queue) -> None:
    attempt = q.claimed()
    old, _ = register(q, attempt)
    answer(q, "resume_external", old, "1")
    new, number = register(q, attempt)
    assert number == 2
    for function, values in ANSWERS.items():
        refused(q, function, old, *values)
    assert wait(q, attempt, old) == ("refused", None)
    assert wait(q, attempt, new) == ("waiting", None)


def test_an_answer_stays_until_a_newer_callback_takes_its_place_and_answers_nothing_else(q: Queue) -> None:
    attempt = q.claimed()
    first, _ = register(q, attempt)
    assert wait(q, attempt, first) == ("waiting", None)
    answer(q, "resume_external", first, "1")
    make_overdue(q, attempt.job_id)
    assert expire(q) == 0
    for function, values in ANSWERS.items():
        refused(q, function, first, *values)
    assert q.one("select count(*) from awa_pool.callback_of(%s)", attempt.job_id) == 0
    second, _ = register(q, attempt)
    assert wait(q, attempt, first) == ("refused", None)
    assert wait(q, attempt, second) == ("waiting", None)
    answer(q, "resume_external", second, "2")
    assert wait(q, attempt, second) == ("answered", "2")
    third, number = register(q, attempt)
    assert number == 3 and park(q, attempt, second) == ("refused", None)
    assert park(q, attempt, third) == ("done", "waiting_external")


def _why(q: Queue, attempt: Attempt, callback: str) -> tuple[str, str | None]:
    row = q.rows(
        "select status, why from awa_pool.wait_for_callbacks(%s::json)",
        json.dumps([told(attempt, callback_id=callback)]),
    )[0]
    return row[0], row[1]


@pytest.mark.parametrize("dlq", [True, False])
@pytest.mark.parametrize(
    ("function", "values", "why"),
    [
        ("complete_external", ("1",), "completed"),
        ("fail_external", ("no",), "failed"),
        ("retry_external", (), "retried"),
        ("cancel", (), "cancelled"),
        ("expire", (), "expired"),
        ("expire on the last attempt", (), "expired"),
        ("rescue", (), ""),
    ],
)
def test_a_wait_is_told_how_its_attempt_ended(
    q: Queue, function: str, values: tuple[str, ...], why: str, dlq: bool
) -> None:
    q.rows("select * from awa_pool.set_queue('default', %s::jsonb)", json.dumps({"dlq": dlq}))
    attempt, callback = waiting(q, max_attempts=1 if "last" in function else 25)
    assert _why(q, attempt, callback) == ("waiting", None)
    if function == "cancel":
        q.rows("select awa_pool.cancel(%s)", attempt.job_id)
    elif "expire" in function:
        make_overdue(q, attempt.job_id)
        assert expire(q) == 1
    elif function == "rescue":
        assert q.finish(attempt.ended("lost"))[0][0] == "done"
    else:
        answer(q, function, callback, *values)
    assert _why(q, attempt, callback) == ("stale", why)


def test_a_wait_of_a_job_that_has_gone_on_since_is_stale_without_a_reason(q: Queue) -> None:
    attempt, callback = waiting(q)
    answer(q, "retry_external", callback)
    again = q.claim(1)[0]
    assert again.job_id == attempt.job_id
    assert _why(q, attempt, callback) == ("stale", "")


def test_callbacks_of_many_attempts_are_registered_in_one_call(q: Queue) -> None:
    q.fill(130)
    attempts = q.claim(130)
    moved = attempts[7]
    q.move(moved)
    items = [told(a, timeout_s=HOUR_S) for a in attempts]
    done = register_all(q, *items, items[0], {**items[1], "nonce": 1}, {**items[2], "timeout_s": -1})
    assert [status for status, _, _ in done] == ["done"] * 130 + ["busy", "busy", "invalid"]
    assert len({callback for _, callback, _ in done[:130]}) == 130
    assert q.one("select count(*) from awa_pool.leases where callback_no = 1 and state = 'running'") == 130
    assert {r[0] for r in register_all(q, *items)} == {"done"}
    assert q.finish(*(a.ended("completed") for a in attempts)) == [("done", "completed")] * 130


@pytest.mark.parametrize("change", [{"nonce": 5}, {"job_id": 5}, {"run_lease": 5}, {"index": 60}])
def test_only_the_attempt_itself_registers_and_waits(q: Queue, change: dict[str, int]) -> None:
    attempt = q.claimed()
    item = told(attempt, timeout_s=HOUR_S) | change
    assert register_all(q, item)[0][0] == "stale"
    assert q.one("select count(*) from awa_pool.leases") == 0
    callback, _ = register(q, attempt)
    assert register_all(q, item)[0][0] == "stale"
    for function in ("wait_for_callbacks", "park_attempts"):
        item = told(attempt, callback_id=callback) | change
        assert q.one(f"select status from awa_pool.{function}(%s::json)", json.dumps([item])) == "stale"
    assert q.state(attempt.job_id) == "running"


def test_an_attempt_does_not_wait_on_the_callback_of_another(q: Queue) -> None:
    one, other = q.claimed(), q.claimed()
    register(q, one)
    callback, _ = register(q, other)
    assert wait(q, one, callback) == ("refused", None)
    assert park(q, one, callback) == ("refused", None)
    assert q.state(one.job_id) == q.state(other.job_id) == "running"


@pytest.mark.parametrize("timeout_s", [0, -1, 31536001, "NaN", None])
def test_a_timeout_out_of_bounds_is_refused_for_that_item_alone(q: Queue, timeout_s: object) -> None:
    one, other = q.claimed(), q.claimed()
    answers = register_all(q, told(one, timeout_s=timeout_s), told(other, timeout_s=1))
    assert [a[0] for a in answers] == ["invalid", "done"]


def test_nothing_is_registered_while_the_attempt_waits_or_after_its_end(q: Queue) -> None:
    attempt, callback = waiting(q)
    assert register_all(q, told(attempt, timeout_s=1))[0][0] == "waiting"
    other = told(attempt, timeout_s=1, over="00000000-0000-0000-0000-000000000000")
    assert register_all(q, other)[0][0] == "waiting"  # a request of before that comes late
    assert wait(q, attempt, callback) == ("waiting", None)  # the first still counts
    assert q.finish(attempt.ended("return")) == [("done", "available")]
    assert register_all(q, told(attempt, timeout_s=1))[0][0] == "stale"
    assert wait(q, attempt, callback) == ("stale", None)
    for function, values in ANSWERS.items():
        refused(q, function, callback, *values)


def test_an_attempt_whose_wait_was_given_up_runs_and_no_time_out_ends_it(q: Queue) -> None:
    attempt, callback = waiting(q)
    make_overdue(q, attempt.job_id)
    assert give_up(q, attempt, callback) == ("left", None)
    assert give_up(q, attempt, callback) == ("left", None)
    assert q.rows("select state, waiting_since from awa_pool.leases") == [("running", None)]
    assert q.rows("select expired from awa_pool.expire_callbacks(10)") == [(0,)]
    assert wait(q, attempt, callback) == ("waiting", None)
    answer(q, "resume_external", callback, "7")
    assert give_up(q, attempt, callback) == ("left", None)  # it crosses the answer, which stays
    assert wait(q, attempt, callback) == ("answered", "7")
    assert q.finish(attempt.ended("completed")) == [("done", "completed")]
    assert give_up(q, attempt, callback) == ("stale", None)


def test_a_newer_callback_takes_the_place_of_one_whose_wait_was_given_up(q: Queue) -> None:
    attempt, first = waiting(q)
    item = told(attempt, timeout_s=60, over=first, wanted_id="11111111-1111-1111-1111-111111111111")
    ((status, second, number),) = register_all(q, item)
    assert (status, number) == ("done", 2)
    assert q.rows("select state, waiting_since from awa_pool.leases") == [("running", None)]
    refused(q, "resume_external", first)
    assert wait(q, attempt, str(second)) == ("waiting", None)
    assert give_up(q, attempt, first) == ("refused", None)  # it comes late, and the newer is waited for
    assert register_all(q, item) == [("done", second, 2)]
    assert q.rows("select state from awa_pool.leases") == [("waiting_external",)]
    answer(q, "resume_external", str(second), "2")
    assert wait(q, attempt, str(second)) == ("answered", "2")


def test_a_request_that_comes_late_replaces_no_newer_callback(q: Queue) -> None:
    attempt = q.claimed()
    items = [told(attempt, timeout_s=60, wanted_id=str(uuid.uuid4()), nth=nth) for nth in (1, 2, 3)]
    assert register_all(q, items[1])[0] == ("done", uuid.UUID(items[1]["wanted_id"]), 2)  # the first was lost
    assert register_all(q, items[0])[0] == ("done", uuid.UUID(items[0]["wanted_id"]), 1)  # and comes now
    refused(q, "resume_external", items[0]["wanted_id"])
    assert wait(q, attempt, items[1]["wanted_id"]) == ("waiting", None)
    assert register_all(q, items[0])[0][::2] == ("done", 1)
    assert register_all(q, items[1])[0][::2] == ("done", 2)
    assert register_all(q, items[2])[0][0] == "waiting"
    answer(q, "resume_external", items[1]["wanted_id"], "7")
    assert wait(q, attempt, items[1]["wanted_id"]) == ("answered", "7")
    assert register_all(q, items[0])[0][::2] == ("done", 1)
    assert register_all(q, items[2])[0] == ("done", uuid.UUID(items[2]["wanted_id"]), 3)
    answer(q, "resume_external", items[2]["wanted_id"], "8")
    assert wait(q, attempt, items[2]["wanted_id"]) == ("answered", "8")


def test_a_parked_job_is_not_brought_back_by_a_wait_that_was_given_up_before(q: Queue) -> None:
    attempt, callback = waiting(q)
    assert park(q, attempt, callback) == ("done", "waiting_external")
    assert give_up(q, attempt, callback) == ("stale", None)
    assert register_all(q, told(attempt, timeout_s=1, over=callback))[0][0] == "stale"
    assert answer(q, "resume_external", callback)[2] == "available"


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("completed", "completed"), ("retry", "retryable"), ("lost", "retryable"), ("return", "available"),
     ("snooze", "scheduled"), ("fail", "failed"), ("cancel", "cancelled")],
)  # fmt: skip
def test_a_waiting_attempt_ends_in_every_way_that_a_running_one_does(
    q: Queue, outcome: str, state: str
) -> None:
    attempt, callback = waiting(q)
    assert q.finish(attempt.ended(outcome, delay_s=60)) == [("done", state)]
    assert q.state(attempt.job_id) == state
    refused(q, "resume_external", callback)
