"""Rescue goes by the runtime's heartbeat, and writes only what is still open when it writes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from general_rig import Queue

from awa_pool.config.layers import load
from awa_pool.errors import ConfigError


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


@pytest.fixture
def other(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def alive(q: Queue, beat_s_ago: float = 0.0) -> None:
    q.rows("select awa_pool.register_runtime(%s, 'h', 1, null)", q.runtime)
    q.rows(
        "update awa_pool.runtimes set heartbeat_at = now() - make_interval(secs => %s) where runtime_id = %s",
        beat_s_ago, q.runtime,
    )  # fmt: skip


def rescue(q: Queue, stale_s: float = 30.0) -> int:
    return sum(row[1] for row in q.rows("select * from awa_pool.rescue_stale(%s, 1000)", stale_s))


def test_a_healthy_job_of_any_age_is_nobodys_to_rescue(queue: Queue) -> None:
    """B087: ten times the stale threshold and more, in the ring and moved out of it."""
    alive(queue)
    queue.fill(2)
    young, moved = queue.claim(2)
    queue.move(moved)
    for table in ("receipts", "leases"):
        queue.rows(f"update awa_pool.{table} set claimed_at = now() - interval '1 day'")
    assert rescue(queue) == 0
    assert queue.finish(young.ended("completed"), moved.ended("completed")) == [("done", "completed")] * 2


@pytest.mark.parametrize("stale", ["2s", "14.9s"])
def test_settings_with_too_few_heartbeats_are_refused(stale: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """B087: an interval close to the threshold."""
    with pytest.raises(ConfigError, match="fewer than 3 heartbeats"):
        load({"stale_s": stale, "heartbeat_s": "5s"}, environ={}, start=tmp_path)


def test_what_completes_between_a_rescues_look_and_its_write_stays_completed(
    queue: Queue, other: Queue
) -> None:
    """B086: the read first, the write later, the completion in the gap; in the ring and in leases."""
    alive(queue, beat_s_ago=3600)
    queue.fill(3)
    attempts = queue.claim(3)
    queue.move(attempts[2])
    queue.rows("update awa_pool.runtimes set state = 'gone'")
    seen = other.rows(
        "select slot, receipt_id, nonce, idx, job_id, run_lease from awa_pool.lost_attempts(30, 100)"
    )
    assert sorted(row[4] for row in seen) == [a.job_id for a in attempts]
    assert queue.finish(*(a.ended("completed") for a in attempts[1:])) == [("done", "completed")] * 2
    columns = [list(column) for column in zip(*seen, strict=True)]
    ended = other.rows(
        "select e.status from awa_pool.end_attempts(array[0, 1, 2], %s::int[], %s::bigint[], %s::bigint[], %s::int[],"
        " %s::bigint[], %s::bigint[], array_fill('lost'::text, array[3]), array_fill(null::float8, array[3]),"
        " array_fill(null::jsonb, array[3]), array_fill(null::text, array[3])) as e order by e.item",
        *columns,
    )
    assert sorted(status for (status,) in ended) == ["done", "stale", "stale"]
    assert [queue.state(a.job_id) for a in attempts] == ["retryable", "completed", "completed"]


def test_a_rescue_passes_by_what_a_finish_holds_and_takes_the_rest(queue: Queue, other: Queue) -> None:
    """B086: the completion is under way while the rescue comes; the sweep gets past it."""
    alive(queue, beat_s_ago=3600)
    queue.fill(2)
    (held,) = queue.claim(1)
    (free,) = queue.claim(1)
    with other.conn.transaction():
        other.finish(held.ended("completed"))
        assert rescue(queue) == 1
        assert queue.state(free.job_id) == "retryable"
    assert rescue(queue) == 0
    assert queue.state(held.job_id) == "completed"


def test_a_heartbeat_that_comes_while_the_rescue_looks_saves_its_runtime(queue: Queue, other: Queue) -> None:
    """B087: the heartbeat is read again under the row's lock, and a row that is locked is passed by."""
    alive(queue, beat_s_ago=3600)
    attempt = queue.claimed()
    with other.conn.transaction():
        assert other.one("select awa_pool.heartbeat(%s, null)", queue.runtime) == "alive"
        assert rescue(queue) == 0
    assert rescue(queue) == 0
    assert queue.finish(attempt.ended("completed")) == [("done", "completed")]
    assert uuid.UUID(str(queue.one("select runtime_id from awa_pool.runtimes"))) == queue.runtime
