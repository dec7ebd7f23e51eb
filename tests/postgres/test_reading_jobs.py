"""Lists, counts and look-ups: right in every state, and reading a bounded number of pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from general_rig import Queue

STATES = ["available", "running", "completed", "scheduled", "retryable", "failed", "cancelled"]


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def _one_of_each(q: Queue, name: str) -> dict[str, int]:
    """Put one job of each state into a queue; return id by state."""
    made: dict[str, int] = {}
    for state, word in [
        ("completed", "completed"),
        ("retryable", "retry"),
        ("failed", "fail"),
        ("running", None),
    ]:
        q.enqueue(queue=name, kind=f"kind_{state}")
        (attempt,) = q.claim(queue=name)
        if word:
            q.finish(attempt.ended(word, delay_s=60))
        made[state] = attempt.job_id
    made["cancelled"] = q.enqueue(queue=name, kind="kind_cancelled")
    q.rows("select awa_pool.cancel(%s)", made["cancelled"])
    made["scheduled"] = q.enqueue(queue=name, kind="kind_scheduled", run_at="2099-01-01T00:00:00Z")
    made["available"] = q.enqueue(queue=name, kind="kind_available")
    return made


def _listed(
    q: Queue, state: Any = None, queue: Any = None, kind: Any = None, limit: int = 100, before: Any = None
) -> list[int]:
    return [
        row[0]
        for row in q.rows(
            "select id from awa_pool.list_jobs(%s::text, %s::text, %s::text, %s::int, %s::bigint)",
            state, queue, kind, limit, before,
        )
    ]  # fmt: skip


def test_lists_and_counts_tell_every_state_of_every_queue(queue: Queue) -> None:
    made = {name: _one_of_each(queue, name) for name in ("a", "b")}
    every = sorted((i for ids in made.values() for i in ids.values()), reverse=True)
    assert _listed(queue) == every
    for state in STATES:
        both = sorted((made[name][state] for name in made), reverse=True)
        assert _listed(queue, state) == both
        assert _listed(queue, kind=f"kind_{state}") == both
        assert _listed(queue, state, "b", f"kind_{state}") == [made["b"][state]]
        assert _listed(queue, state, "b", "other") == []
        assert _listed(queue, state, before=both[0]) == both[1:]
    stats = {row[0]: row[1:10] for row in queue.rows("select * from awa_pool.queue_stats()")}
    assert stats == {name: (1, 1, 0, 1, 1, 0, 1, 1, 1) for name in made}
    depths = {row[0]: row[1:7] for row in queue.rows("select * from awa_pool.queue_depths()")}
    assert depths == {name: (1, 1, 0, 1, 1, 1) for name in made}
    viewed = queue.rows("select queue, state, count(*) from awa_pool.jobs group by 1, 2")
    assert sorted(viewed) == sorted((name, state, 1) for name in made for state in STATES)
    assert queue.rows("select * from awa_pool.work_left(array['a'])") == [(1, 1, 2, 0)]
    assert queue.rows("select * from awa_pool.work_left(array['a', 'b', 'a', 'none'])") == [(2, 2, 4, 0)]


def test_moved_and_returned_jobs_are_listed_and_counted(queue: Queue) -> None:
    moved, returned = queue.claimed(), queue.claimed()
    queue.move(moved)
    queue.finish(returned.ended("return"))
    assert _listed(queue, "running") == [moved.job_id]
    assert _listed(queue, "available") == [returned.job_id]
    assert queue.rows("select available, running from awa_pool.queue_stats()") == [(1, 1)]
    assert queue.rows("select * from awa_pool.work_left(array['default'])") == [(1, 1, 0, 0)]
    queue.finish(moved.ended("completed"))
    assert _listed(queue, "completed") == [moved.job_id]
    assert queue.one("select completed from awa_pool.queue_stats()") == 1


def test_pages_follow_each_other_without_gap_or_repeat(queue: Queue) -> None:
    ids = queue.enqueue_many(
        [{"kind": "k", "args": {}, "queue": f"q{n % 3}", "priority": 1 + n % 4} for n in range(700)]
    )
    for attempt in queue.claim(100, "q1"):
        queue.finish(attempt.ended(["completed", "retry", "fail", "return"][attempt.index % 4], delay_s=60))
    seen: list[int] = []
    while page := _listed(queue, limit=37, before=seen[-1] if seen else None):
        seen += page
    assert seen == ids[::-1]


def test_a_paused_queue_holds_up_no_drain(queue: Queue) -> None:
    for _ in range(3):
        queue.enqueue()
    queue.claim(1)
    queue.enqueue(queue="other")
    queue.rows("select awa_pool.pause_queue('default')")
    assert queue.rows("select * from awa_pool.work_left(array['default'])") == [(0, 1, 2, 0)]
    assert queue.rows("select * from awa_pool.work_left(array['default', 'other'])") == [(1, 1, 2, 0)]


def test_a_paused_queue_and_the_age_of_its_oldest_job_are_told(queue: Queue) -> None:
    queue.enqueue()
    queue.rows("select awa_pool.pause_queue('default')")
    queue.rows("select awa_pool.pause_queue('empty', true)")
    rows = {
        r[0]: r[1:]
        for r in queue.rows("select queue, paused, oldest_available_s >= 0 from awa_pool.queue_stats()")
    }
    assert rows == {"default": (True, True), "empty": (True, None)}
    assert queue.rows("select queue, paused, waiting from awa_pool.queues_view order by queue") == [
        ("default", True, False), ("empty", True, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "limit", "field"),
    [("lost", 10, "state"), ("", 10, "state"), (None, 0, "limit"), (None, 1001, "limit")],
)
def test_a_list_with_impossible_filters_is_refused(queue: Queue, state: Any, limit: int, field: str) -> None:
    with pytest.raises(psycopg.Error, match=field) as refused:
        _listed(queue, state, limit=limit)
    assert refused.value.sqlstate == "AW001"


def test_lists_of_an_empty_queue_are_empty(queue: Queue) -> None:
    for state in (None, *STATES, "waiting_external"):
        assert _listed(queue, state) == []
        assert _listed(queue, state, before=1) == []


def test_counts_of_an_empty_queue_are_empty(queue: Queue) -> None:
    assert queue.rows("select * from awa_pool.queue_stats()") == []
    assert queue.rows("select * from awa_pool.queue_depths()") == []
    assert queue.rows("select * from awa_pool.work_left(array['default'])") == [(0, 0, 0, 0)]
    assert queue.rows("select * from awa_pool.work_left('{}')") == [(0, 0, 0, 0)]


def test_a_list_over_ids_near_the_end_of_64_bits_works(queue: Queue) -> None:
    queue.rows("select setval('awa_pool.job_id_seq', 9223372036854775000, false)")
    ids = [queue.enqueue() for _ in range(3)]
    assert _listed(queue) == ids[::-1]
    assert _listed(queue, "completed") == []


def test_a_job_that_does_not_exist_is_no_row(queue: Queue) -> None:
    assert queue.job(404) is None
    assert queue.job(-(2**63)) is None


@pytest.fixture(scope="module")
def long_queue(pg_server: Any, _template: str) -> Iterator[Queue]:
    """200,000 jobs from one transaction; a tenth was claimed, nearly all of that completed; 50,000 wait, 50,000 failed."""
    pg_server.execute("create database long_queue template awa_template")
    with Queue(pg_server.dsn("long_queue")) as q:
        q.rows(
            "insert into awa_pool.jobs_ready (kind, args, queue)"
            " select 'k', '{}', 'q' || i %% 3 from generate_series(1, 200000) as i"
        )
        q.rows("select awa_pool.summarise_job_ids(0)")
        attempts = q.claim(20_000, "q0")
        done = attempts[:19_900]
        q.rows(
            "select from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[])",
            [a.slot for a in done], [a.receipt_id for a in done], [a.nonce for a in done],
            [1 << a.index for a in done],
        )  # fmt: skip
        q.rows(
            "insert into awa_pool.jobs_deferred (job_id, queue, priority, kind, args, run_at, state)"
            " select nextval('awa_pool.job_id_seq'), 'd', 2, 'k', '{}', now() + interval '1 d',"
            " case when i %% 5000 = 0 then 'retryable' else 'scheduled' end from generate_series(1, 50000) as i"
        )
        q.rows(
            "insert into awa_pool.jobs_finished (job_id, queue, priority, kind, args, run_at, created_at, state)"
            " select nextval('awa_pool.job_id_seq'), 'f', 2, 'k', '{}', now(), now(),"
            " case when i %% 5000 = 0 then 'cancelled' else 'failed' end from generate_series(1, 50000) as i"
        )
        q.rows("select count(*) from awa_pool.job(1)")
        yield q
    pg_server.execute("drop database long_queue with (force)")


def _pages_read(q: Queue, statement: str) -> int:
    """Return how many 8 KiB pages a statement reads, once its plans are made."""
    read = 0
    for _ in range(2):
        ((((plan,),),)) = (q.rows("explain (analyze, buffers, timing off, format json) " + statement),)
        top = plan[0]["Plan"]
        read = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return read


@pytest.mark.parametrize(
    ("statement", "at_most"),
    [
        ("job(1)", 200), ("job(199999)", 200), ("job(100000)", 200), ("job(240000)", 50), ("job(290000)", 50),
        ("list_jobs(null, null, null, 50, null)", 8000),
        ("list_jobs('available', null, null, 50, null)", 8000),
        ("list_jobs('available', 'q1', null, 50, null)", 12000),
        ("list_jobs('running', null, null, 50, null)", 2000),
        ("list_jobs('completed', null, null, 50, null)", 40000),
        ("list_jobs('failed', null, null, 50, null)", 600),
        ("list_jobs('cancelled', 'f', null, 50, null)", 600),
        ("list_jobs('retryable', null, null, 50, null)", 600),
        ("list_jobs('scheduled', 'd', null, 50, null)", 600),
        ("open_attempts('00000000-0000-0000-0000-000000000000')", 1000),
        ("work_left(array['q0', 'q1', 'd'])", 4500),
        ("queue_depths()", 30000),
        ("rescue_stale(60, 500)", 2000),
    ],
)  # fmt: skip
def test_reading_a_long_ring_reads_few_of_its_pages(long_queue: Queue, statement: str, at_most: int) -> None:
    assert _pages_read(long_queue, f"select * from awa_pool.{statement}") <= at_most


def test_finishing_a_job_of_a_long_ring_reads_few_pages(long_queue: Queue) -> None:
    (attempt,) = long_queue.claim(1, "q1")
    long_queue.finish(attempt.ended("fail"))  # makes the plans of this slot
    (attempt,) = long_queue.claim(1, "q1")
    document = json.dumps([attempt.ended("retry")])
    assert _pages_read_once(long_queue, f"select * from awa_pool.finish('{document}')") <= 500


def _pages_read_once(q: Queue, statement: str) -> int:
    ((plan,),) = q.rows("explain (analyze, buffers, timing off, format json) " + statement)
    top = plan[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


def test_long_counts_are_estimates_near_the_truth_and_say_so(long_queue: Queue) -> None:
    rows = {r[0]: r[1:] for r in long_queue.rows("select queue, available, running, completed, counts_are_capped"
                                                 " from awa_pool.queue_stats()")}  # fmt: skip
    available, running, completed, capped = rows["q2"]
    assert capped
    assert (running, completed) == (0, 0)
    assert 0.7 * 66_666 <= available <= 1.3 * 66_666
    assert rows["q0"][1:3] == (100, 19_900)
    assert rows["d"] == (0, 0, 0, False)
