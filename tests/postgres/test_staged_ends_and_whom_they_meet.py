"""An end with follow-ups beside holders of their keys, and beside dispatchers that wait: what it holds, returns and tells."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from general_rig import Attempt, Queue

WORKING = 0b10111  # scheduled, available, running, retryable: a completion gives the key up
DEFAULT = 0b11111
FINISH = "select status, state, inserted, skipped from awa_pool.finish_with_follow_ups(%s::json, %s::json)"


def unique(number: int, states: int = DEFAULT, queue: str = "parked") -> dict[str, Any]:
    return {
        "kind": "follow", "args": {"n": number}, "queue": queue,
        "unique_key": number.to_bytes(16, "big").hex(), "unique_states": states,
    }  # fmt: skip


def claimed_unique(q: Queue, number: int, states: int) -> Attempt:
    """Put in a job with a key and claim it."""
    q.enqueue_many([unique(number, states, q.name)])
    (attempt,) = q.claim()
    return attempt


def end(conn: psycopg.Connection[Any], attempt: Attempt, *follow_ups: Any) -> tuple[Any, ...]:
    """Complete an attempt with follow-ups -> status, state, inserted, skipped."""
    row = conn.execute(FINISH, [json.dumps(attempt.ended("completed")), json.dumps(follow_ups)]).fetchone()
    assert row is not None
    return row  # type: ignore[no-any-return]


def holders(q: Queue) -> list[tuple[int, int]]:
    """Number of each key that is held, and by which job."""
    found = q.rows("select unique_key, job_id from awa_pool.unique_claims order by 1")
    return [(int.from_bytes(key, "big"), job_id) for key, job_id in found]


def test_a_holder_whose_key_made_a_follow_up_be_skipped_keeps_it_until_that_completion_has_ended(
    q: Queue, dsn: str
) -> None:
    holder, attempt = claimed_unique(q, 1, WORKING), q.claimed()
    with psycopg.connect(dsn) as completing:
        assert end(completing, attempt, unique(1)) == ("done", "completed", 0, [["follow", holder.job_id]])
        assert end(q.conn, holder)[:2] == ("busy", None)
        completing.commit()
    assert end(q.conn, holder)[:2] == ("done", "completed")
    assert holders(q) == []


def test_an_end_whose_guard_misses_gives_back_the_keys_that_it_took_for_its_follow_ups(q: Queue) -> None:
    holder, cancelled = claimed_unique(q, 1, DEFAULT), q.claimed()
    q.one("select awa_pool.cancel(%s)", cancelled.job_id)
    assert end(q.conn, cancelled, unique(1), unique(2), unique(3))[:3] == ("stale", None, 0)
    assert holders(q) == [(1, holder.job_id)]  # and not the key of somebody else
    assert q.one("select count(*) from awa_pool.jobs where queue = 'parked'") == 0
    assert end(q.conn, q.claimed(), unique(2))[2] == 1


def test_an_end_that_is_written_again_is_stale_and_leaves_its_follow_ups_their_keys(q: Queue) -> None:
    attempt = q.claimed()
    assert end(q.conn, attempt, unique(1)) == ("done", "completed", 1, None)
    ((number, follow_up),) = holders(q)
    assert end(q.conn, attempt, unique(1)) == ("stale", None, 0, [["follow", follow_up]])
    assert holders(q) == [(number, follow_up)]
    assert q.one("select count(*) from awa_pool.jobs where queue = 'parked'") == 1


def test_a_follow_up_equal_to_its_parent_is_skipped_where_the_parent_keeps_the_key(q: Queue) -> None:
    parent = claimed_unique(q, 1, DEFAULT)
    assert end(q.conn, parent, unique(1)) == ("done", "completed", 0, [["follow", parent.job_id]])
    assert holders(q) == [(1, parent.job_id)]


def test_a_follow_up_equal_to_its_parent_takes_over_the_key_that_the_parent_gives_up(q: Queue) -> None:
    """A job that puts itself in again: otherwise there would be neither the next one nor a holder of the key."""
    other, parent = claimed_unique(q, 2, DEFAULT), claimed_unique(q, 1, WORKING)
    wanted = [{**unique(2), "kind": "other"}, unique(1, WORKING), {**unique(1), "kind": "twin"}, unique(3)]
    status, state, inserted, skipped = end(q.conn, parent, *wanted)
    held = dict(holders(q))
    heir = held[1]
    assert (status, state, inserted) == ("done", "completed", 2)
    assert sorted(held) == [1, 2, 3] and held[2] == other.job_id
    assert skipped == [["other", other.job_id], ["twin", heir]]
    assert q.state(heir) == "available" and heir != parent.job_id


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "unique"])
def test_follow_ups_tell_a_dispatcher_that_waits_for_their_queue_as_they_commit(
    q: Queue, dsn: str, keyed: bool
) -> None:
    q.rows("insert into awa_pool.queue_waiters values ('heard', now() + interval '1 hour')")
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute("listen awa_pool")
        for number, name in enumerate(("silent", "heard")):
            job = unique(number, queue=name) if keyed else {"kind": "follow", "args": {}, "queue": name}
            sent = [{"end": q.claimed().ended("completed"), "follow_ups": [job]}]
            answers = q.one("call awa_pool.finish_staged(%s::json, 200, null)", json.dumps(sent))
            assert answers[0][:3] == ["done", "completed", 1]
            q.rows("select pg_notify('awa_pool', %s)", f"after {name}")
        heard = [n.payload for n in listener.notifies(timeout=10, stop_after=3)]
    assert heard == ["after silent", "", "after heard"]
