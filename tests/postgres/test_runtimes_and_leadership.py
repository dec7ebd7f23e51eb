"""Runtimes announce themselves, beat, say good-bye and are rescued; one holder leads at a time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from general_rig import Queue


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def _register(q: Queue, runtime: uuid.UUID) -> None:
    q.rows("select awa_pool.register_runtime(%s, 'host', 42, %s::jsonb)", runtime, '{"workers": 2}')


def _age(q: Queue, runtime: uuid.UUID) -> None:
    q.rows(
        "update awa_pool.runtimes set heartbeat_at = now() - interval '1 h' where runtime_id = %s", runtime
    )


def _rescue(q: Queue, limit: int = 1000) -> list[tuple[uuid.UUID, int]]:
    return q.rows("select runtime_id, attempts from awa_pool.rescue_stale(60, %s)", limit)


def test_a_runtime_is_alive_until_it_is_rescued_and_never_again(queue: Queue) -> None:
    assert queue.one("select awa_pool.heartbeat(%s, null)", queue.runtime) == "gone"
    _register(queue, queue.runtime)
    assert queue.one("select awa_pool.heartbeat(%s, %s::jsonb)", queue.runtime, '{"workers": 3}') == "alive"
    assert queue.rows("select host, pid, state, info from awa_pool.runtimes_view") == [
        ("host", 42, "alive", {"workers": 3})
    ]
    assert _rescue(queue) == []
    _age(queue, queue.runtime)
    assert _rescue(queue) == [(queue.runtime, 0)]
    assert queue.one("select awa_pool.heartbeat(%s, null)", queue.runtime) == "gone"
    _register(queue, queue.runtime)
    assert queue.one("select awa_pool.heartbeat(%s, null)", queue.runtime) == "gone"


def test_a_silent_runtimes_attempts_are_lost_and_a_living_ones_are_not(queue: Queue) -> None:
    silent, living = uuid.uuid4(), uuid.uuid4()
    ids = queue.enqueue_many(
        [{"kind": "k", "args": {}, "max_attempts": 1 if n == 0 else 5} for n in range(4)]
    )
    lost = queue.claim(3, runtime=silent)
    (kept,) = queue.claim(1, runtime=living)
    queue.finish(lost[2].ended("completed"))
    for runtime in (silent, living):
        _register(queue, runtime)
    _age(queue, silent)
    rescued = queue.rows("select attempts, failed, cancelled, jobs from awa_pool.rescue_stale(60, 1000)")
    assert rescued == [(2, 1, 0, ids[:2])]
    assert [queue.state(i) for i in ids] == ["failed", "retryable", "completed", "running"]
    errors = (queue.job(ids[1]) or {})["errors"]
    assert [(e["type"], e["attempt"], str(silent) in e["error"]) for e in errors] == [
        ("RuntimeLost", 1, True)
    ]
    host, pid = queue.rows("select host, pid from awa_pool.runtimes where runtime_id = %s", silent)[0]
    assert f"the pool on {host} with pid {pid} (runtime {silent}) that held it is gone" in errors[0]["error"]
    assert queue.finish(kept.ended("completed"), lost[0].ended("completed")) == [
        ("done", "completed"), ("stale", None),
    ]  # fmt: skip


def test_a_runtimes_own_stale_time_counts_whoever_leads(queue: Queue) -> None:
    patient, hasty, odd = (uuid.uuid4() for _ in range(3))
    for runtime, info in ((patient, {"stale_s": 7200}), (hasty, {"stale_s": 5}), (odd, {"stale_s": "5"})):
        queue.enqueue()
        queue.claim(1, runtime=runtime)
        queue.rows("select awa_pool.register_runtime(%s, 'host', 1, %s::jsonb)", runtime, json.dumps(info))
    queue.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '10 s'")

    def rescue(stale_s: float, connected_s: float | None) -> list[tuple[uuid.UUID, int]]:
        return queue.rows(
            "select runtime_id, attempts from awa_pool.rescue_stale(%s, 100, %s::float8)",
            stale_s,
            connected_s,
        )

    assert rescue(60, 4.9) == []  # the caller may have been cut off as this one was
    assert rescue(60, 5.0) == [(hasty, 1)]
    assert rescue(9, 8.0) == []
    assert rescue(9, None) == [(odd, 1)]
    queue.rows("update awa_pool.runtimes set heartbeat_at = now() - interval '3 h'")
    assert rescue(9, None) == [(patient, 1)]


def test_attempts_of_a_runtime_that_nobody_knows_are_lost_once_the_caller_was_connected_for_as_long(
    queue: Queue,
) -> None:
    attempt = queue.claimed()
    queue.rows("update awa_pool.receipts set claimed_at = now() - interval '1 h'")
    assert queue.rows("select * from awa_pool.rescue_stale(60, 100, 59.0)") == []
    assert queue.state(attempt.job_id) == "running"
    assert queue.rows("select attempts from awa_pool.rescue_stale(60, 100, 60.0)") == [(1,)]


def test_a_goodbye_needs_no_threshold(queue: Queue) -> None:
    attempt = queue.claimed()
    _register(queue, queue.runtime)
    queue.rows("select awa_pool.say_goodbye(%s)", queue.runtime)
    assert _rescue(queue) == [(queue.runtime, 1)]
    assert queue.state(attempt.job_id) == "retryable"


def test_a_claim_that_lands_after_the_rescue_is_rescued_by_the_next(queue: Queue) -> None:
    _register(queue, queue.runtime)
    _age(queue, queue.runtime)
    assert _rescue(queue) == [(queue.runtime, 0)]
    attempt = queue.claimed()
    assert _rescue(queue) == [(queue.runtime, 1)]
    assert queue.state(attempt.job_id) == "retryable"


def test_an_unknown_runtimes_attempts_wait_for_the_threshold(queue: Queue) -> None:
    attempt = queue.claimed()
    assert _rescue(queue) == []
    queue.rows("update awa_pool.receipts set claimed_at = now() - interval '1 h'")
    assert _rescue(queue) == [(queue.runtime, 1)]
    assert queue.state(attempt.job_id) == "retryable"


def test_a_rescue_works_in_bounded_steps(queue: Queue) -> None:
    queue.enqueue_many([{"kind": "k", "args": {}}] * 200)
    attempts = queue.claim(200)
    for attempt in attempts[:3]:
        queue.move(attempt)
    _register(queue, queue.runtime)
    queue.rows("select awa_pool.say_goodbye(%s)", queue.runtime)
    steps = []
    while got := sum(n for _, n in _rescue(queue, 90)):
        steps.append(got)
    assert steps == [90, 90, 20]
    assert queue.one("select count(*) from awa_pool.jobs_deferred where state = 'retryable'") == 200


def test_a_parked_attempt_is_nobodys_to_rescue(queue: Queue) -> None:
    attempt = queue.claimed()
    queue.move(attempt)
    queue.rows("update awa_pool.leases set runtime_id = null, claimed_at = now() - interval '9 h'")
    assert _rescue(queue) == []
    assert queue.state(attempt.job_id) == "running"


def test_rescue_refuses_thresholds_that_make_no_sense(queue: Queue) -> None:
    for stale_s, limit in ((-1, 10), (None, 10), (60, 0), (1e9, 10)):
        with pytest.raises(psycopg.Error) as refused:
            queue.rows("select * from awa_pool.rescue_stale(%s::float8, %s::int)", stale_s, limit)
        assert refused.value.sqlstate == "AW001"


def test_open_attempts_are_what_is_claimed_and_not_ended(queue: Queue) -> None:
    queue.enqueue_many([{"kind": "k", "args": {}}] * 5)
    attempts = queue.claim(5)
    queue.finish(attempts[0].ended("completed"))
    queue.move(attempts[3])
    rows = queue.rows(
        "select slot, receipt_id, nonce, open_mask, request_id, job_ids, leases from awa_pool.open_attempts(%s)"
        " order by open_mask",
        queue.runtime,
    )
    one = attempts[0]
    ids = [a.job_id for a in attempts]
    assert rows == [
        (one.slot, one.receipt_id, one.nonce, 0b01000, None, [None] * 3 + [ids[3]], [None] * 3 + [1]),
        (one.slot, one.receipt_id, one.nonce, 0b10110, 1, ids, [1] * 5),
    ]
    assert queue.rows("select * from awa_pool.open_attempts(%s)", uuid.uuid4()) == []


def test_one_holder_leads_until_it_steps_down_or_its_lease_ends(queue: Queue) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()

    def leads(holder: uuid.UUID, ttl_s: float = 60) -> bool:
        return queue.one("select awa_pool.lead('maintenance', %s, %s)", holder, ttl_s)

    assert leads(first)
    assert leads(first)
    assert not leads(second)
    assert queue.one("select awa_pool.lead('other', %s, 60)", second)
    queue.rows("select awa_pool.step_down('maintenance', %s)", second)
    assert not leads(second)
    queue.rows("select awa_pool.step_down('maintenance', %s)", first)
    assert leads(second)
    assert not leads(first)
    queue.rows("update awa_pool.leader set until = now() - interval '1 s'")
    assert leads(first)
    for ttl_s in (0, -1, 1e9):
        with pytest.raises(psycopg.Error, match="ttl_s"):
            leads(first, ttl_s)


def test_the_lease_of_a_leader_is_no_lock_of_its_session(queue: Queue) -> None:
    holder = uuid.uuid4()
    assert queue.one("select awa_pool.lead('m', %s, 60)", holder)
    with Queue(queue.dsn) as another_connection:
        assert another_connection.one("select awa_pool.lead('m', %s, 60)", holder)
        assert queue.rows("select 1 from pg_locks where locktype = 'advisory'") == []
