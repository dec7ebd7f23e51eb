"""Due jobs become available, whoever wrote them; one bad row stops nobody."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from general_rig import Queue


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def test_only_due_jobs_are_promoted_and_the_next_due_time_is_told(queue: Queue) -> None:
    assert queue.promote() == (0, None)
    now = queue.one("select now()")
    due, later = (queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(2))
    queue.rows("update awa_pool.jobs_deferred set run_at = now() - interval '1 s' where job_id = %s", due)
    queue.rows("update awa_pool.jobs_deferred set run_at = now() + interval '100 s' where job_id = %s", later)
    promoted, next_due_s = queue.promote()
    assert promoted == 1
    assert 0 < next_due_s <= 100
    assert (queue.state(due), queue.state(later)) == ("available", "scheduled")
    assert (queue.job(due) or {})["created_at"] >= now


def test_promotion_goes_oldest_first_in_bounded_steps(queue: Queue) -> None:
    ids = [queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(5)]
    queue.rows("update awa_pool.jobs_deferred set run_at = now() - make_interval(secs => job_id)")
    assert queue.promote(2) == (2, 0.0)
    assert sorted(a.job_id for a in queue.claim()) == ids[-2:]
    assert queue.promote(100)[0] == 3


def test_a_promoted_job_keeps_everything_and_is_claimed_once(queue: Queue) -> None:
    job_id = queue.enqueue(
        kind="report", args={"x": 1}, metadata={"m": 1}, tags=["t"], ordering_key="o", priority=3, max_attempts=7,
        run_at="2099-01-01T00:00:00Z",
    )  # fmt: skip
    before = queue.job(job_id) or {}
    queue.make_due()
    queue.promote()
    after = queue.job(job_id) or {}
    assert {k: v for k, v in after.items() if k not in ("state", "run_at")} == {
        k: v for k, v in before.items() if k not in ("state", "run_at")
    }
    assert [a.job_id for a in queue.claim()] == [job_id]
    assert queue.claim() == []


def test_a_job_that_comes_back_in_the_same_slot_is_found_again_and_again(queue: Queue) -> None:
    job_id = queue.enqueue(max_attempts=100)
    for n in range(1, 30):
        (attempt,) = queue.claim()
        assert (attempt.job_id, attempt.attempt, attempt.run_lease) == (job_id, n, n)
        queue.finish(attempt.ended("retry", delay_s=0))
        assert queue.promote()[0] == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [("priority", "9"), ("priority", "0"), ("kind", "''"), ("queue", "repeat('q', 300)"), ("max_attempts", "0"),
     ("attempt", "-1"), ("attempt", "32767"), ("tags", "array_fill('t'::text, array[30])")],
)  # fmt: skip
def test_a_row_that_no_claim_could_take_is_set_aside_alone(queue: Queue, column: str, value: str) -> None:
    bad, good = (queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(2))
    queue.make_due()
    queue.rows(f"update awa_pool.jobs_deferred set {column} = {value} where job_id = %s", bad)
    assert queue.promote() == (1, None)
    assert queue.state(good) == "available"
    job = queue.job(bad) or {}
    assert (job["state"], job["reason"]) == ("failed", "unreadable")
    assert column in job["errors"][0]["error"]


def test_times_beyond_the_calendar_stop_no_sweep(queue: Queue) -> None:
    never, first, last = (queue.enqueue(run_at="2099-01-01T00:00:00Z") for _ in range(3))
    queue.rows("update awa_pool.jobs_deferred set run_at = 'infinity' where job_id = %s", never)
    queue.rows("update awa_pool.jobs_deferred set run_at = '-infinity' where job_id = %s", first)
    queue.rows("update awa_pool.jobs_deferred set run_at = now() where job_id = %s", last)
    assert queue.promote() == (2, None)
    assert sorted(a.job_id for a in queue.claim()) == [first, last]
    assert [r[0] for r in queue.rows("select id from awa_pool.list_jobs(null, null, null, 10, null)")] == [
        last, first, never,
    ]  # fmt: skip
    assert (queue.job(never) or {})["run_at"] is None


def test_ten_thousand_due_jobs_are_one_call(queue: Queue) -> None:
    queue.enqueue_many([{"kind": "k", "args": {}, "run_at": "2099-01-01T00:00:00Z"}] * 10_000)
    queue.make_due()
    assert queue.promote(20_000) == (10_000, None)
    assert queue.one("select awa_pool.count_ready('default', 20000)") == 10_000


def test_promotion_wakes_who_waits_for_the_queue(queue: Queue) -> None:
    with psycopg.connect(queue.dsn, autocommit=True) as listener:
        listener.execute("listen awa_pool")
        queue.rows("insert into awa_pool.queue_waiters values ('heard', now() + interval '1 h')")
        for name in ("silent", "heard"):
            queue.enqueue(queue=name, run_at="2099-01-01T00:00:00Z")
            queue.make_due(name)
            queue.promote()
            queue.rows("select pg_notify('awa_pool', %s)", f"after {name}")
        heard = [n.payload for n in listener.notifies(timeout=10, stop_after=3)]
    assert heard == ["after silent", "", "after heard"]
