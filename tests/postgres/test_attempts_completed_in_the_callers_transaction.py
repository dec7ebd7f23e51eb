"""An attempt that is moved to leases first, and completed by `complete_leased` inside somebody's own transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from callbacks_rig import answer, register, told, wait
from general_rig import Attempt, Queue
from held_sessions import Waiting

KEY = bytes(range(16))
DEFAULT = 0b0001_1111
UNTIL_DONE = 0b0001_0111  # without completed: given up then
WHEN_DONE = 0b0000_1001  # scheduled and completed: free while it runs


@pytest.fixture
def own(dsn: str) -> Iterator[Queue]:
    """The session of a handler."""
    with Queue(dsn) as found:
        yield found


def lease(q: Queue, *items: Any) -> list[str]:
    rows = q.rows(
        "select item, status from awa_pool.lease_attempts(%s::json) order by item", json.dumps(items)
    )
    assert [row[0] for row in rows] == list(range(len(items)))
    return [row[1] for row in rows]


def named(attempt: Attempt) -> tuple[int, ...]:
    return attempt.receipt_id, attempt.nonce, attempt.index, attempt.job_id, attempt.run_lease


def complete(q: Queue, attempt: Attempt) -> str:
    return q.one("select awa_pool.complete_leased(%s, %s, %s, %s, %s)", *named(attempt))


def find(q: Queue, attempt: Attempt) -> str:
    return q.one("select awa_pool.find_lease(%s, %s, %s, %s, %s)", *named(attempt))


def lost(attempt: Attempt) -> dict[str, Any]:
    """What a worker says once its handler has returned."""
    return attempt.ended("lost", owned=True, error={"error": "not committed", "type": "NotCommitted"})


def leased(q: Queue, **more: Any) -> Attempt:
    attempt = q.claimed(**more)
    assert lease(q, told(attempt)) == ["done"]
    return attempt


def holder(q: Queue) -> int | None:
    rows = q.rows("select job_id from awa_pool.unique_claims where unique_key = %s", KEY)
    return rows[0][0] if rows else None


def keyed(q: Queue, states: int) -> Attempt:
    q.one(
        "select awa_pool.enqueue('k', '{}', %s, p_unique_key => %s, p_unique_states => %s)",
        q.name, KEY, states,
    )  # fmt: skip
    (attempt,) = q.claim()
    assert lease(q, told(attempt)) == ["done"]
    return attempt


def test_attempts_are_moved_once_and_those_that_have_ended_are_told_apart(q: Queue) -> None:
    q.fill(4)
    first, second, third, fourth = q.claim()
    q.finish(second.ended("retry"))
    register(q, third)
    wrong = {**told(fourth), "run_lease": 9}
    assert lease(q, told(first), told(second), told(third), wrong, told(first)) == [
        "done", "stale", "done", "stale", "busy"
    ]  # fmt: skip
    assert lease(q, told(first), {"slot": 1}) == ["done", "invalid"]
    assert q.one("select count(*) from awa_pool.leases") == 2
    assert lease(q, told(fourth)) == ["done"]
    with pytest.raises(psycopg.Error) as refused:
        lease(q, {**told(fourth), "job_id": "x"})
    assert (refused.value.sqlstate or "").startswith("22")


def test_rows_and_completion_commit_together_or_not_at_all(q: Queue, own: Queue) -> None:
    q.rows("create table rows_of_app (job_id bigint)")
    attempt = leased(q, metadata={"mine": 1}, tags=["t"])
    with own.conn.transaction():
        own.rows("insert into rows_of_app values (%s)", attempt.job_id)
        assert complete(own, attempt) == "completed"
        assert q.state(attempt.job_id) == "running"
        raise psycopg.Rollback
    assert q.state(attempt.job_id) == "running" and q.rows("select * from rows_of_app") == []
    with own.conn.transaction():
        own.rows("insert into rows_of_app values (%s)", attempt.job_id)
        assert complete(own, attempt) == "completed"
        assert complete(own, attempt) == "stale"
    assert q.rows("select * from rows_of_app") == [(attempt.job_id,)]
    job = q.job(attempt.job_id)
    assert job is not None
    assert (job["state"], job["attempt"], job["metadata"], job["tags"]) == (
        "completed",
        1,
        {"mine": 1},
        ["t"],
    )


def test_the_report_after_it_knows_a_completion_from_a_loss(q: Queue) -> None:
    done, undone, cancelled = (leased(q) for _ in range(3))
    complete(q, done)
    q.one("select awa_pool.cancel(%s)", cancelled.job_id)
    assert q.finish(lost(done), lost(undone), lost(cancelled), done.ended("lost")) == [
        ("stale", "completed"), ("done", "retryable"), ("stale", None), ("stale", "completed")
    ][:3] + [("stale", None)]  # fmt: skip
    job = q.job(undone.job_id)
    assert job is not None and job["errors"][-1]["error"] == "not committed"
    assert q.state(cancelled.job_id) == "cancelled"


def test_while_the_commit_is_in_doubt_every_other_end_passes_by(q: Queue, own: Queue) -> None:
    attempt, beside = leased(q), q.claimed()
    with own.conn.transaction():
        complete(own, attempt)
        assert q.finish(lost(attempt), beside.ended("completed")) == [("busy", None), ("done", "completed")]
        mask = [1 << attempt.index]
        (row,) = q.rows(
            "select done, stale, busy from awa_pool.complete(%s, %s, %s, %s)",
            [attempt.slot], [attempt.receipt_id], [attempt.nonce], mask,
        )  # fmt: skip
        assert row == (0, 0, mask[0])
        assert lease(q, told(attempt)) == ["done"]
        assert q.one("select coalesce(sum(attempts), 0) from awa_pool.rescue_stale(0.0, 100)") == 0
        with pytest.raises(psycopg.Error) as refused:
            q.one("select awa_pool.cancel(%s)", attempt.job_id)
        assert refused.value.sqlstate == "55P03"
    assert q.finish(lost(attempt)) == [("stale", "completed")]


def test_progress_said_while_the_commit_is_in_doubt_waits_for_nobody(q: Queue, own: Queue) -> None:
    """Its row is the only other one that a completion locks: a host that waited there would finish nothing."""

    def keep(*items: Any) -> int:
        return q.one("select awa_pool.keep_progress(%s::json)", json.dumps(items))

    def said(attempt: Attempt, percent: int) -> dict[str, Any]:
        return {**told(attempt), "progress": {"percent": percent}}

    attempt, beside = leased(q), q.claimed()
    assert keep(said(attempt, 10), said(beside, 10)) == 2
    q.rows("set statement_timeout = '5s'")
    with own.conn.transaction():
        complete(own, attempt)
        assert keep(said(attempt, 20), said(beside, 20)) == 1
        item = lost(attempt) | {"progress": {"percent": 30}}
        assert q.finish(item, beside.ended("completed")) == [("busy", None), ("done", "completed")]
        raise psycopg.Rollback
    assert keep(said(attempt, 40)) == 1
    assert q.finish(item) == [("done", "retryable")]
    job = q.job(attempt.job_id)
    assert job is not None and job["progress"] == {"percent": 30}


@pytest.mark.parametrize("commits", [True, False])
def test_of_a_completion_and_a_cancel_the_first_to_hold_the_row_wins(
    q: Queue, own: Queue, commits: bool
) -> None:
    attempt = leased(q)
    with own.conn.transaction():
        own.one("select awa_pool.cancel(%s)", attempt.job_id)
        late = Waiting(q.dsn, "select awa_pool.complete_leased(%s, %s, %s, %s, %s)", *named(attempt))
        late.until_it_waits(q)
        if not commits:
            raise psycopg.Rollback
    assert late.result() == ("stale" if commits else "completed")
    assert q.state(attempt.job_id) == ("cancelled" if commits else "completed")


def test_an_answer_from_outside_waits_for_the_completion_and_finds_it_gone(q: Queue, own: Queue) -> None:
    """The lease row comes first for both, so that neither can wait for the other with a key in hand."""
    attempt = keyed(q, UNTIL_DONE)
    callback, _ = register(q, attempt)
    with own.conn.transaction():
        complete(own, attempt)
        late = Waiting(q.dsn, "select state from awa_pool.complete_external(%s)", callback)
        late.until_it_waits(q)
    with pytest.raises(psycopg.Error) as refused:
        late.result()
    assert refused.value.sqlstate == "AW008"
    assert (q.state(attempt.job_id), holder(q)) == ("completed", None)


def test_after_a_wait_in_the_handler_the_same_row_is_completed(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    assert wait(q, attempt, callback)[0] == "waiting"
    answer(q, "resume_external", callback, "5")
    assert lease(q, told(attempt)) == ["done"]
    assert complete(q, attempt) == "completed"
    assert wait(q, attempt, callback)[0] == "stale"


@pytest.mark.parametrize(("states", "before", "after"), [
    (DEFAULT, True, True), (UNTIL_DONE, True, False), (WHEN_DONE | 0b10, False, True),
])  # fmt: skip
def test_the_unique_key_goes_as_the_mask_says_with_the_callers_commit(
    q: Queue, own: Queue, states: int, before: bool, after: bool
) -> None:
    attempt = keyed(q, states)
    with own.conn.transaction():
        complete(own, attempt)
        assert (holder(q) == attempt.job_id) is before
    assert (holder(q) == attempt.job_id) is after


def test_who_wants_a_key_that_is_given_up_waits_for_the_commit(q: Queue, own: Queue) -> None:
    attempt = keyed(q, UNTIL_DONE)
    with own.conn.transaction():
        complete(own, attempt)
        late = Waiting(
            q.dsn, "select awa_pool.enqueue('k', '{}', 'default', p_unique_key => %s, p_unique_states => %s)",
            KEY, UNTIL_DONE,
        )  # fmt: skip
        late.until_it_waits(q)
    assert late.result() == holder(q)


def test_a_batch_that_ends_jobs_with_keys_and_a_callers_completion_cannot_deadlock(
    q: Queue, own: Queue
) -> None:
    """The batch holds the key and skips the lease row; the caller holds the row and waits for the key at most."""
    attempt = keyed(q, UNTIL_DONE)
    with own.conn.transaction():
        own.rows("select from awa_pool.leases where job_id = %s for update", attempt.job_id)
        with q.conn.transaction():
            assert q.finish(lost(attempt) | {"outcome": "fail"}) == [("busy", None)]
            late = Waiting(own.dsn, "select 1")
            assert late.result() == 1
        assert complete(own, attempt) == "completed"
    assert q.state(attempt.job_id) == "completed"


def test_a_first_look_tells_held_ended_and_unknown_attempts_apart(q: Queue) -> None:
    attempt = leased(q)
    assert find(q, attempt) == "held"
    complete(q, attempt)
    assert find(q, attempt) == "ended"
    foreign = Attempt(attempt.slot, attempt.receipt_id, attempt.nonce + 1, 0, attempt.job_id, 1, 1)
    assert find(q, foreign) == "unknown"


@pytest.mark.parametrize(("setting", "sqlstate"), [
    ("isolation level repeatable read", "AW002"), ("isolation level serializable", "AW002"), ("read only", "25006"),
])  # fmt: skip
def test_transactions_that_could_not_complete_it_are_refused_at_the_first_look(
    q: Queue, own: Queue, setting: str, sqlstate: str
) -> None:
    attempt = leased(q)
    with pytest.raises(psycopg.Error) as refused, own.conn.transaction():
        own.rows(f"set transaction {setting}")
        find(own, attempt)
    assert refused.value.sqlstate == sqlstate
    assert find(q, attempt) == "held"


def test_an_attempt_that_was_never_moved_is_stale_and_nothing_is_done(q: Queue) -> None:
    attempt = q.claimed()
    assert complete(q, attempt) == "stale"
    assert q.state(attempt.job_id) == "running"
    assert lease(q, told(attempt)) == ["done"]
    q.rows("update awa_pool.leases set runtime_id = null")  # parked: its handler is gone
    assert complete(q, attempt) == "stale"
