"""Callbacks in the database: a wait inside a handler, a parked job, and what the outside world may answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from callbacks_rig import (
    HOUR_S,
    answer,
    expire,
    give_up,
    make_overdue,
    park,
    parked,
    register,
    register_all,
    told,
    wait,
    waiting,
)
from general_rig import Attempt, Queue


@pytest.fixture
def q(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def refused(q: Queue, function: str, callback: str, *values: object) -> None:
    """The answer is refused as one to a callback that is not there."""
    with pytest.raises(psycopg.Error) as problem:
        answer(q, function, callback, *values)
    assert problem.value.sqlstate == "AW008"


ANSWERS = {
    "resume_external": ('{"a": 1}',), "complete_external": ("1",), "fail_external": ("no",), "retry_external": (),
    "resolve_callback": ("1", "complete"), "heartbeat_callback": (60.0,),
}  # fmt: skip


# --- waits in a handler ---------------------------------------------------------------------------------------


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


# --- parked jobs ----------------------------------------------------------------------------------------------


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


# --- other answers --------------------------------------------------------------------------------------------


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


# --- timeouts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [waiting, parked])
def test_a_job_whose_callback_times_out_tries_again_and_on_the_last_attempt_fails(
    q: Queue, make: object
) -> None:
    first, callback = make(q)  # type: ignore[operator]
    last, _ = make(q, max_attempts=1)  # type: ignore[operator]
    assert expire(q) == 0
    make_overdue(q, first.job_id)
    make_overdue(q, last.job_id)
    assert expire(q) == 2
    job, dead = q.job(first.job_id), q.job(last.job_id)
    assert job is not None and dead is not None
    assert (job["state"], job["attempt"], job["errors"][0]["type"]) == ("retryable", 1, "CallbackTimeout")
    assert q.one("select run_at > now() from awa_pool.jobs_deferred where job_id = %s", first.job_id)
    assert (dead["state"], dead["dead"], dead["reason"]) == ("failed", True, "callback_timeout")
    refused(q, "resume_external", callback)
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
    assert q.rows("select * from awa_pool.expire_callbacks(2)") == [(2, 0.0)]
    assert q.one("select expired from awa_pool.expire_callbacks(2)") == 1


# --- seen, heard, cancelled -----------------------------------------------------------------------------------


def test_every_resolution_is_notified_by_its_id(q: Queue, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("listen awa_pool")
        said = []
        for function, values, word in (
            ("resume_external", ("1",), "resumed"), ("complete_external", ("1",), "completed"),
            ("fail_external", ("no",), "failed"),
        ):  # fmt: skip
            _, callback = waiting(q)
            answer(q, function, callback, *values)
            said.append(f"callback {callback} {word}")
        attempt, callback = parked(q)
        make_overdue(q, attempt.job_id)
        expire(q)
        said.append(f"callback {callback} expired")
        _, callback = waiting(q)
        answer(q, "retry_external", callback)
        said.append(f"callback {callback} retried")
        heard = [n.payload for n in ear.notifies(timeout=10, stop_after=5)]
    assert heard == said


def test_a_waiting_job_is_cancelled_and_its_host_is_told(q: Queue, dsn: str) -> None:
    for make in (waiting, parked):
        attempt, callback = make(q)
        assert q.one("select awa_pool.cancel(%s)", attempt.job_id) == "cancelled"
        assert q.state(attempt.job_id) == "cancelled"
        refused(q, "resume_external", callback)
        assert wait(q, attempt, callback) == ("stale", None)


def test_waiting_jobs_are_counted_listed_and_shown(q: Queue) -> None:
    one, _ = waiting(q)
    two, _ = parked(q)
    running = q.claimed()
    register(q, running)
    assert q.rows("select running, waiting from awa_pool.queue_stats()") == [(1, 2)]
    assert q.rows("select running, waiting from awa_pool.queue_depths()") == [(1, 2)]
    assert q.rows("select * from awa_pool.work_left(array[%s])", q.name) == [(0, 2, 0, 1)]
    listed = q.rows("select id from awa_pool.list_jobs('waiting_external', null, null, 10, null)")
    assert listed == [(two.job_id,), (one.job_id,)]
    for attempt in (one, two):
        assert q.rows(
            "select number, since <= clock_timestamp(), until > clock_timestamp() from awa_pool.callback_of(%s)",
            attempt.job_id,
        ) == [(1, True, True)]
    assert q.rows("select * from awa_pool.callback_of(%s)", running.job_id) == []
    with pytest.raises(psycopg.Error) as problem:
        q.one("select awa_pool.retry(%s)", two.job_id)
    assert problem.value.sqlstate == "AW005"


def test_only_read_committed_will_do(q: Queue) -> None:
    _, callback = waiting(q)
    for function, values in ANSWERS.items():
        with q.conn.transaction():
            q.conn.execute("set transaction isolation level repeatable read")
            with pytest.raises(psycopg.Error) as problem, q.conn.transaction():
                answer(q, function, callback, *values)
            assert problem.value.sqlstate == "AW002"


def test_a_rebase_leaves_parked_jobs_waiting_and_gives_no_receipt_out_again(q: Queue) -> None:
    attempt, callback = parked(q)
    q.rows("select setval('awa_pool.receipt_id_seq', 1, false)")
    (plan,) = q.rows("select reason is not null, open_attempts, top_receipt from awa_pool.rebase_plan()")
    assert plan == (True, 0, attempt.receipt_id)
    q.rows("select awa_pool.rebase(true)")
    assert q.claimed().receipt_id > attempt.receipt_id
    assert answer(q, "resume_external", callback)[2] == "available"


@pytest.mark.parametrize("function", ["resume_external", "complete_external"])
def test_an_integer_that_a_reader_would_take_for_another_is_refused(q: Queue, function: str) -> None:
    """Else a parked job would carry it, and could not be read any more when it is to go on."""
    attempt, callback = parked(q)
    for wide in ("12345678901234567890", '{"a": [-9223372036854775809]}'):
        with pytest.raises(psycopg.Error, match="64 bits") as refused:
            answer(q, function, callback, wide)
        assert refused.value.sqlstate == "AW001"
    assert q.state(attempt.job_id) == "waiting_external"
    answer(q, function, callback, '[9223372036854775807, "12345678901234567890", 1e30]')
