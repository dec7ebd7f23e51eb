"""Two sessions want the same wait: one is held inside its transaction, exactly one wins, and the other is told."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from callbacks_rig import answer, expire, make_overdue, park, parked, register, told, wait, waiting
from general_rig import Queue
from held_sessions import Waiting


@pytest.fixture
def other(dsn: str) -> Iterator[Queue]:
    """A second session, held inside one transaction by the test."""
    with Queue(dsn) as found:
        yield found


@pytest.mark.parametrize("make", [waiting, parked])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    "second", ["resume_external", "complete_external", "fail_external", "retry_external"]
)
def test_of_two_answers_one_counts_and_the_other_waits_and_is_refused(
    q: Queue, other: Queue, make: Any, commits: bool, second: str
) -> None:
    attempt, callback = make(q)
    words = ", 'no'" if second == "fail_external" else ""
    with other.conn.transaction():
        answer(other, "resume_external", callback, '"first"')
        late = Waiting(q.dsn, f"select state from awa_pool.{second}(%s{words})", callback)
        late.until_it_waits(q)
        if not commits:
            raise psycopg.Rollback
    ends = {
        "resume_external": "running" if make is waiting else "available", "complete_external": "completed",
        "fail_external": "failed", "retry_external": "available",
    }  # fmt: skip
    if commits:
        with pytest.raises(psycopg.Error) as refused:
            late.result()
        assert refused.value.sqlstate == "AW008"
        assert q.state(attempt.job_id) == ends["resume_external"]
    else:
        assert late.result() == ends[second]
        assert q.state(attempt.job_id) == ends[second]


@pytest.mark.parametrize("make", [waiting, parked])
@pytest.mark.parametrize("commits", [True, False])
def test_an_answer_under_way_holds_its_callback_against_the_timeout(
    q: Queue, other: Queue, make: Any, commits: bool
) -> None:
    attempt, callback = make(q)
    make_overdue(q, attempt.job_id)
    with other.conn.transaction():
        answer(other, "resume_external", callback, "1")
        assert expire(q) == 0  # passes by, and waits for nobody
        if not commits:
            raise psycopg.Rollback
    assert expire(q) == (0 if commits else 1)
    assert q.state(attempt.job_id) == (
        ("running" if make is waiting else "available") if commits else "retryable"
    )


@pytest.mark.parametrize("make", [waiting, parked])
@pytest.mark.parametrize("commits", [True, False])
def test_a_timeout_under_way_lets_the_answer_wait_and_refuses_it(
    q: Queue, other: Queue, make: Any, commits: bool
) -> None:
    attempt, callback = make(q)
    make_overdue(q, attempt.job_id)
    with other.conn.transaction():
        assert expire(other) == 1
        late = Waiting(q.dsn, "select state from awa_pool.resume_external(%s)", callback)
        late.until_it_waits(q)
        if not commits:
            raise psycopg.Rollback
    if commits:
        with pytest.raises(psycopg.Error) as refused:
            late.result()
        assert refused.value.sqlstate == "AW008"
        assert q.state(attempt.job_id) == "retryable"
    else:
        assert late.result() == ("running" if make is waiting else "available")


@pytest.mark.parametrize("make", [waiting, parked])
def test_a_cancel_waits_for_the_answer_and_wins_what_is_left(q: Queue, other: Queue, make: Any) -> None:
    attempt, callback = make(q)
    with other.conn.transaction():
        answer(other, "resume_external", callback, "1")
        cancel = Waiting(q.dsn, "select awa_pool.cancel(%s)", attempt.job_id)
        cancel.until_it_waits(q)
    assert cancel.result() == "cancelled"
    assert q.state(attempt.job_id) == "cancelled"
    assert q.claim() == []
    assert wait(q, attempt, callback) == ("stale", None)


@pytest.mark.parametrize("make", [waiting, parked])
@pytest.mark.parametrize("commits", [True, False])
def test_an_answer_waits_for_the_cancel_and_is_refused(
    q: Queue, other: Queue, make: Any, commits: bool
) -> None:
    attempt, callback = make(q)
    with other.conn.transaction():
        other.one("select awa_pool.cancel(%s)", attempt.job_id)
        late = Waiting(q.dsn, "select state from awa_pool.complete_external(%s)", callback)
        late.until_it_waits(q)
        if not commits:
            raise psycopg.Rollback
    if commits:
        with pytest.raises(psycopg.Error) as refused:
            late.result()
        assert refused.value.sqlstate == "AW008"
    assert not commits or q.state(attempt.job_id) == "cancelled"
    assert commits or late.result() == "completed"


@pytest.mark.parametrize("function", ["wait_for_callbacks", "park_attempts", "register_callbacks"])
def test_no_call_of_a_host_waits_for_an_answer_under_way(q: Queue, other: Queue, function: str) -> None:
    slow, free = q.claimed(), q.claimed()
    callback, _ = register(q, slow)
    mine, _ = register(q, free)
    items = [told(slow, callback_id=callback), told(free, callback_id=mine)]
    if function == "register_callbacks":
        items = [told(slow, timeout_s=1), told(free, timeout_s=1)]
    with other.conn.transaction():
        answer(other, "resume_external", callback, "1")
        rows = q.rows(
            f"select item, status from awa_pool.{function}(%s::json) order by item", json.dumps(items)
        )
        assert rows == [(0, "busy"), (1, "waiting" if function == "wait_for_callbacks" else "done")]
        assert q.finish(slow.ended("completed")) == [("busy", None)]
    if function != "register_callbacks":
        assert wait(q, slow, callback) == ("answered", "1")


def test_an_answer_that_waits_for_the_registering_of_a_newer_callback_is_refused(
    q: Queue, other: Queue
) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    with other.conn.transaction():
        newer, _ = register(other, attempt)
        late = Waiting(q.dsn, "select state from awa_pool.resume_external(%s)", callback)
        late.until_it_waits(q)
    with pytest.raises(psycopg.Error) as refused:
        late.result()
    assert refused.value.sqlstate == "AW008"
    assert wait(q, attempt, newer) == ("waiting", None)


@pytest.mark.parametrize("parks", [False, True], ids=["waits", "parks"])
def test_an_answer_that_meets_the_entry_into_the_wait_is_never_lost(
    q: Queue, other: Queue, parks: bool
) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    with other.conn.transaction():
        assert (park if parks else wait)(other, attempt, callback)[0] in ("waiting", "done")
        late = Waiting(q.dsn, "select state from awa_pool.resume_external(%s, '7')", callback)
        late.until_it_waits(q)
    assert late.result() == ("available" if parks else "running")
    if not parks:
        assert wait(q, attempt, callback) == ("answered", "7")


def test_the_end_of_an_attempt_and_an_answer_have_one_winner(q: Queue, other: Queue) -> None:
    attempt, callback = waiting(q)
    with other.conn.transaction():
        assert other.finish(attempt.ended("return")) == [("done", "available")]
        late = Waiting(q.dsn, "select state from awa_pool.complete_external(%s)", callback)
        late.until_it_waits(q)
    with pytest.raises(psycopg.Error) as refused:
        late.result()
    assert refused.value.sqlstate == "AW008"
    assert q.state(attempt.job_id) == "available"


def test_rescue_passes_a_wait_that_is_being_answered_and_takes_it_later(q: Queue, other: Queue) -> None:
    attempt, callback = waiting(q)
    q.rows("update awa_pool.leases set claimed_at = now() - interval '1 h'")  # its host was never heard of
    with other.conn.transaction():
        answer(other, "resume_external", callback, "1")
        assert [r[1] for r in q.rows("select * from awa_pool.rescue_stale(30, 100)")] == [0]
    assert [r[1] for r in q.rows("select * from awa_pool.rescue_stale(30, 100)")] == [1]
    assert wait(q, attempt, callback) == ("stale", None)


def _attempted(queue: Queue, statement: str, *values: Any) -> str:
    """Run a statement -> what it said, or the refusal."""
    try:
        return str(queue.one(statement, *values))
    except psycopg.Error as error:
        return str(error.sqlstate)


def test_many_sessions_answer_many_callbacks_in_every_way_and_each_has_one_winner(q: Queue, dsn: str) -> None:
    """The answers are the ledger: of all that was sent for one callback exactly one was accepted."""
    count, rng = 120, random.Random(5)
    q.fill(count)
    attempts = q.claim(count)
    callbacks = {}
    for n, attempt in enumerate(attempts):
        callback, _ = register(q, attempt)
        (wait if n % 2 else park)(q, attempt, callback)
        callbacks[callback] = attempt
        make_overdue(q, attempt.job_id)
    ways = (
        "select state from awa_pool.resume_external(%s, '1')", "select state from awa_pool.complete_external(%s)",
        "select state from awa_pool.fail_external(%s, 'no')", "select state from awa_pool.retry_external(%s)",
    )  # fmt: skip
    sent = [(way, callback) for callback in callbacks for way in ways]
    cancels = [callbacks[callback].job_id for callback in list(callbacks)[::5]]
    accepted: dict[str, list[str]] = {callback: [] for callback in callbacks}

    def sender(part: int) -> None:
        mine = sent[part::4]
        random.Random(part).shuffle(mine)
        with Queue(dsn) as session:
            for way, callback in mine:
                said = _attempted(session, way, callback)
                if not said.startswith("AW"):
                    accepted[callback].append(said)
                else:
                    assert said == "AW008"

    def timer() -> int:
        expired = 0
        with Queue(dsn) as session:
            for _ in range(40):
                expired += session.one("select expired from awa_pool.expire_callbacks(%s)", rng.randint(1, 3))
        return expired

    def canceller() -> int:
        with Queue(dsn) as session:
            return sum(_attempted(session, "select awa_pool.cancel(%s)", j) == "cancelled" for j in cancels)

    with ThreadPoolExecutor(6) as threads:
        senders = [threads.submit(sender, part) for part in range(4)]
        expiry, cancel = threads.submit(timer), threads.submit(canceller)
        for future in senders:
            future.result(timeout=60)
        expired, cancelled = expiry.result(timeout=60), cancel.result(timeout=60)
    timed_out = 0
    for callback, attempt in callbacks.items():
        said, job = accepted[callback], q.job(attempt.job_id)
        assert job is not None
        expired_here = any(e["type"] == "CallbackTimeout" for e in job["errors"] or [])
        timed_out += expired_here
        # A cancel may follow an answer or a timeout that let the job go on: it won only where there was neither.
        assert len(said) + expired_here + (job["state"] == "cancelled" and not said and not expired_here) == 1
        allowed = {*said, *(["retryable"] if expired_here else [])}
        if attempt.job_id in cancels and allowed <= {"running", "available", "retryable"}:
            allowed.add("cancelled")
        assert job["state"] in allowed
    assert timed_out == expired
    assert cancelled == sum(q.state(job_id) == "cancelled" for job_id in cancels)
