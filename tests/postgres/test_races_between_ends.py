"""Two sessions want the same job: one is held inside its transaction, the other has to wait, pass by, or be refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from general_rig import Attempt, Queue
from held_sessions import Waiting

DEADLINE_S = 20.0


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


@pytest.fixture
def other(dsn: str) -> Iterator[Queue]:
    """A second session, held inside one transaction by the test."""
    with Queue(dsn) as found:
        yield found


@pytest.mark.parametrize("claim_commits", [True, False])
def test_a_cancel_waits_for_the_claim_of_its_job(queue: Queue, other: Queue, claim_commits: bool) -> None:
    job_id = queue.enqueue()
    attempts: list[Attempt] = []
    try:
        with other.conn.transaction():
            attempts = other.claim()
            cancel = Waiting(queue.dsn, "select awa_pool.cancel(%s)", job_id)
            cancel.until_it_waits(queue)
            if not claim_commits:
                raise psycopg.Rollback
    finally:
        assert cancel.result() == "cancelled"
    assert queue.state(job_id) == "cancelled"
    assert queue.finish(attempts[0].ended("completed")) == [("stale", None)]
    assert queue.claim() == []


@pytest.mark.parametrize("moved", [False, True])
def test_a_job_that_completes_while_it_is_being_cancelled_stays_completed(
    queue: Queue, other: Queue, moved: bool
) -> None:
    attempt = queue.claimed()
    if moved:
        queue.move(attempt)
    with other.conn.transaction():
        assert other.finish(attempt.ended("completed")) == [("done", "completed")]
        cancel = Waiting(queue.dsn, "select awa_pool.cancel(%s)", attempt.job_id)
        cancel.until_it_waits(queue)
    with pytest.raises(psycopg.Error, match="is completed already") as refused:
        cancel.result()
    assert refused.value.sqlstate == "AW005"
    assert queue.state(attempt.job_id) == "completed"


@pytest.mark.parametrize("moved", [False, True])
def test_a_finish_beside_an_open_cancel_is_busy_and_then_stale(
    queue: Queue, other: Queue, moved: bool
) -> None:
    attempt = queue.claimed()
    if moved:
        queue.move(attempt)
    with other.conn.transaction():
        other.rows("select awa_pool.cancel(%s)", attempt.job_id)
        assert queue.finish(attempt.ended("completed")) == [("busy", None)]
    assert queue.finish(attempt.ended("completed")) == [("stale", None)]
    assert queue.state(attempt.job_id) == "cancelled"


def test_a_cancel_follows_a_job_that_is_being_promoted(queue: Queue, other: Queue) -> None:
    job_id = queue.enqueue(run_at="2099-01-01T00:00:00Z")
    queue.make_due()
    with other.conn.transaction():
        assert other.promote() == (1, None)
        cancel = Waiting(queue.dsn, "select awa_pool.cancel(%s)", job_id)
        cancel.until_it_waits(queue)
    assert cancel.result() == "cancelled"
    assert queue.state(job_id) == "cancelled"
    assert queue.claim() == []


def test_a_promotion_passes_by_a_job_that_is_being_cancelled(queue: Queue, other: Queue) -> None:
    job_id, second = (queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(2))
    queue.make_due()
    with other.conn.transaction():
        other.rows("select awa_pool.cancel(%s)", job_id)
        assert queue.promote()[0] == 1
    assert queue.promote() == (0, None)
    assert (queue.state(job_id), queue.state(second)) == ("cancelled", "available")


def test_two_promotions_at_once_share_the_due_jobs(queue: Queue, other: Queue) -> None:
    ids = [queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(10)]
    queue.make_due()
    with other.conn.transaction():
        assert other.promote(4)[0] == 4
        assert queue.promote(100)[0] == 6
    assert sorted(a.job_id for a in queue.claim()) == ids
    assert queue.claim() == []


@pytest.mark.parametrize("moved", [False, True])
def test_a_rescue_beside_an_open_completion_leaves_it_completed(
    queue: Queue, other: Queue, moved: bool
) -> None:
    attempt = queue.claimed()
    if moved:
        queue.move(attempt)
    queue.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", queue.runtime)
    queue.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '1 h'")
    with other.conn.transaction():
        assert other.finish(attempt.ended("completed")) == [("done", "completed")]
        assert queue.rows("select runtime_id, attempts from awa_pool.rescue_stale(60, 100)") == [
            (queue.runtime, 0)
        ]
    assert queue.rows("select * from awa_pool.rescue_stale(60, 100)") == []
    assert queue.state(attempt.job_id) == "completed"


@pytest.mark.parametrize("moved", [False, True])
def test_a_completion_beside_an_open_rescue_is_busy_and_then_stale(
    queue: Queue, other: Queue, moved: bool
) -> None:
    attempt = queue.claimed()
    if moved:
        queue.move(attempt)
    queue.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", queue.runtime)
    queue.rows("select awa_pool.say_goodbye(%s)", queue.runtime)
    with other.conn.transaction():
        assert other.rows("select runtime_id, attempts from awa_pool.rescue_stale(60, 100)") == [
            (queue.runtime, 1)
        ]
        assert queue.finish(attempt.ended("completed")) == [("busy", None)]
    assert queue.finish(attempt.ended("completed")) == [("stale", None)]
    assert queue.state(attempt.job_id) == "retryable"


def test_a_heartbeat_that_comes_while_the_rescue_looks_wins_or_learns_that_it_lost(
    queue: Queue, other: Queue
) -> None:
    attempt = queue.claimed()
    queue.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", queue.runtime)
    queue.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '1 h'")
    with other.conn.transaction():
        assert other.one("select awa_pool.heartbeat(%s, null)", queue.runtime) == "alive"
        assert queue.rows("select * from awa_pool.rescue_stale(60, 100)") == []
    assert queue.state(attempt.job_id) == "running"
    queue.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '1 h'")
    with other.conn.transaction():
        other.rows("select * from awa_pool.rescue_stale(60, 100)")
        beat = Waiting(queue.dsn, "select awa_pool.heartbeat(%s, null)", queue.runtime)
        beat.until_it_waits(queue)
    assert beat.result() == "gone"


def test_a_finish_beside_a_move_is_busy_and_then_ends_the_moved_attempt(queue: Queue, other: Queue) -> None:
    attempt = queue.claimed()
    with other.conn.transaction():
        other.move(attempt)
        assert queue.finish(attempt.ended("retry", delay_s=5)) == [("busy", None)]
    assert queue.finish(attempt.ended("retry", delay_s=5)) == [("done", "retryable")]
    assert queue.rows("select * from awa_pool.leases") == []


def test_of_two_retries_by_hand_one_is_refused(queue: Queue, other: Queue) -> None:
    attempt = queue.claimed()
    queue.finish(attempt.ended("fail"))
    with other.conn.transaction():
        other.rows("select awa_pool.retry(%s)", attempt.job_id)
        second = Waiting(queue.dsn, "select awa_pool.retry(%s)", attempt.job_id)
        second.until_it_waits(queue)
    with pytest.raises(psycopg.Error, match="is available"):
        second.result()
    assert len(queue.claim()) == 1


def test_a_lane_that_stays_held_ends_a_cancel_with_a_lock_error(queue: Queue, other: Queue) -> None:
    job_id = queue.enqueue()
    with other.conn.transaction():
        other.rows("select awa_pool.try_lane_lock('default', 2)")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            queue.rows("select awa_pool.cancel(%s)", job_id)
    assert queue.one("select awa_pool.cancel(%s)", job_id) == "cancelled"


def test_many_sessions_ending_the_same_attempts_end_each_once(queue: Queue) -> None:
    queue.enqueue_many([{"kind": "k", "args": {}}] * 300)
    attempts = queue.claim(300)
    words = ["completed", "fail", "cancel", "return"]
    won: list[tuple[int, str]] = []

    def end_all(word: str) -> None:
        with Queue(queue.dsn) as mine:
            left = list(attempts)
            deadline = time.monotonic() + DEADLINE_S
            while left and time.monotonic() < deadline:
                answers = mine.finish(*(a.ended(word) for a in left))
                won.extend((a.job_id, word) for a, (s, _) in zip(left, answers, strict=True) if s == "done")
                left = [a for a, (s, _) in zip(left, answers, strict=True) if s == "busy"]
            assert not left

    threads = [threading.Thread(target=end_all, args=(word,)) for word in words * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S * 2)
    assert sorted(job_id for job_id, _ in won) == sorted(a.job_id for a in attempts)
    ends = {"completed": "completed", "fail": "failed", "cancel": "cancelled", "return": "available"}
    states = dict(queue.rows("select id, state from awa_pool.jobs"))
    assert states == {job_id: ends[word] for job_id, word in won}
    assert json.dumps(sorted(states)) == json.dumps(sorted(a.job_id for a in attempts))
