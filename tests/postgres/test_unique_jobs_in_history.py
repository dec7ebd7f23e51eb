"""Keys of jobs that have ended: they go with the history, never before its time, and never because another slot was emptied."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from general_rig import Attempt, Queue

FOR_EVER_S = 86_400.0


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def put(queue: Queue, *numbers: int, states: int = 0b11111) -> list[int]:
    return queue.enqueue_many(
        [{"kind": "k", "args": {}, "queue": queue.name, "unique_key": key(n).hex(), "unique_states": states}
         for n in numbers]
    )  # fmt: skip


def done(queue: Queue, *numbers: int) -> list[int]:
    """Put jobs in and complete them."""
    ids = put(queue, *numbers)
    complete(queue, queue.claim(len(numbers)))
    return ids


def complete(queue: Queue, attempts: list[Attempt]) -> None:
    queue.rows(
        "select * from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[])",
        [a.slot for a in attempts], [a.receipt_id for a in attempts], [a.nonce for a in attempts],
        [1 << a.index for a in attempts],
    )  # fmt: skip


def held(queue: Queue) -> dict[int, int]:
    rows = queue.rows("select unique_key, job_id from awa_pool.unique_claims")
    return {int.from_bytes(found, "big"): job_id for found, job_id in rows}


def turn(queue: Queue) -> None:
    """Seal the current slot; those before it become exhausted."""
    queue.rows("select awa_pool.rotate(0, null)")
    for _ in range(3):
        queue.rows("select awa_pool.exhaust_slots()")


def prune(queue: Queue, retention_s: float = 0.0, history_bytes: int = 1 << 40) -> str:
    return queue.one("select awa_pool.prune(%s, %s)", retention_s, history_bytes)


def test_the_key_of_a_completed_job_stands_until_its_history_goes(queue: Queue) -> None:
    (job_id,) = done(queue, 1)
    turn(queue)
    prune(queue, FOR_EVER_S)
    assert held(queue) == {1: job_id}
    assert "emptied" in prune(queue)
    assert held(queue) == {}
    assert put(queue, 1) != [job_id]


def test_emptying_a_slot_leaves_the_key_of_a_job_that_only_passed_through(queue: Queue) -> None:
    """Hazard 11: retried in one slot, completed in the next; the first is emptied."""
    (job_id,) = put(queue, 1)
    (attempt,) = queue.claim()
    queue.finish(attempt.ended("retry", delay_s=0.0))
    turn(queue)
    queue.make_due()
    queue.promote()
    complete(queue, queue.claim())
    assert queue.state(job_id) == "completed"
    assert "emptied" in prune(queue)
    assert held(queue) == {1: job_id}
    assert queue.state(job_id) == "completed"


def test_history_that_makes_room_early_leaves_its_keys_until_their_time(queue: Queue) -> None:
    (job_id,) = done(queue, 1)
    turn(queue)
    assert "emptied" in prune(queue, FOR_EVER_S, history_bytes=0)
    assert queue.state(job_id) is None
    assert held(queue) == {1: job_id}
    with pytest.raises(psycopg.Error, match=f"job {job_id} holds"):
        put(queue, 1)
    (left_s,) = queue.rows(
        "select extract(epoch from release_at - now())::float8 from awa_pool.unique_claims"
    )[0]
    assert FOR_EVER_S - 600 < left_s <= FOR_EVER_S
    queue.rows("update awa_pool.unique_claims set release_at = now()")
    assert put(queue, 1) != [job_id]  # over is over, whether the sweep has come by or not


def test_keys_whose_time_is_over_are_swept(queue: Queue) -> None:
    done(queue, 1, 2)
    turn(queue)
    prune(queue, FOR_EVER_S, history_bytes=0)
    queue.rows("update awa_pool.unique_claims set release_at = now() - interval '1 s'")
    assert "released 2 unique keys" in prune(queue, FOR_EVER_S)
    assert held(queue) == {}


def test_keys_are_released_before_the_slot_is_locked(queue: Queue) -> None:
    """Hazard 15: a reader of the slot keeps it from being emptied, and its keys go all the same."""
    done(queue, *range(50))
    slot = queue.one("select slot from awa_pool.slots where state = 'current'")
    turn(queue)
    with psycopg.connect(queue.dsn) as reader:
        reader.execute(f"select count(*) from awa_pool.jobs_ready_{slot}")
        assert f"slot {slot}: in use" in prune(queue)
        assert held(queue) == {}
    assert "emptied" in prune(queue)


def test_many_keys_go_step_by_step(queue: Queue) -> None:
    ids = queue.enqueue_many(
        [{"kind": "k", "args": {}, "queue": queue.name, "unique_key": key(n).hex()} for n in range(10_500)]
    )
    while attempts := queue.claim(2000):
        complete(queue, attempts)
    turn(queue)
    assert f"keys released up to job {ids[9_999]}" in prune(queue)
    assert len(held(queue)) == 500
    assert "emptied" in prune(queue)
    assert held(queue) == {}


def test_a_reopened_slot_is_looked_through_anew(queue: Queue) -> None:
    done(queue, 1)
    slot = queue.one("select slot from awa_pool.slots where state = 'current'")
    turn(queue)
    with psycopg.connect(queue.dsn) as reader:
        reader.execute(f"select count(*) from awa_pool.jobs_ready_{slot}")
        prune(queue)  # keys released, slot in use
    late = queue.one(
        f"insert into awa_pool.jobs_ready_{slot} (slot, kind, args, queue, unique_key, unique_states)"
        " values (%s, 'k', '{}', %s, %s, 31) returning job_id", slot, queue.name, key(2),
    )  # fmt: skip
    queue.rows("insert into awa_pool.unique_claims values (%s, %s)", key(2), late)
    assert "reopened" in queue.one("select awa_pool.sweep()")
    complete(queue, queue.claim())
    turn(queue)
    prune(queue)
    assert held(queue) == {}


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_the_key_of_an_end_kept_in_the_mask_goes_with_its_row(queue: Queue, state: str) -> None:
    queue.rows("insert into awa_pool.queues (queue, dlq) values (%s, false)", queue.name)
    (job_id,) = put(queue, 1, states=0b1111111)
    (attempt,) = queue.claim()
    queue.finish(attempt.ended("fail" if state == "failed" else "cancel"))
    assert queue.state(job_id) == state
    assert held(queue) == {1: job_id}
    prune(queue, FOR_EVER_S)
    assert held(queue) == {1: job_id}
    prune(queue)
    assert queue.state(job_id) is None
    assert held(queue) == {}


def test_a_dead_job_counts_as_failed_and_its_key_goes_when_it_is_purged(queue: Queue) -> None:
    (plain,) = put(queue, 1)
    (kept,) = put(queue, 2, states=0b111111)
    for attempt in queue.claim():
        queue.finish(attempt.ended("fail"))
    assert held(queue) == {2: kept}
    (twin,) = put(queue, 1)
    answers = {row[0]: row[1:] for row in queue.rows(
        "select job_id, status, detail from awa_pool.retry_dead(array[%s, %s]::bigint[], null, null, null, null, null,"
        " null, null, null, 10, null, null, null)", plain, kept,
    )}  # fmt: skip
    assert answers == {plain: ("refused", f"job {twin} holds its unique key"), kept: ("done", "available")}
    (attempt,) = (a for a in queue.claim() if a.job_id == kept)
    queue.finish(attempt.ended("fail"))
    queue.rows("select awa_pool.drop_dead(array[%s, %s]::bigint[])", plain, kept)
    assert held(queue) == {1: twin}


def test_a_ready_job_moved_to_the_dead_letters_frees_its_key(queue: Queue) -> None:
    (job_id,) = put(queue, 1)
    queue.one("select awa_pool.move_to_dead(%s)", job_id)
    assert held(queue) == {}
    assert put(queue, 1) != [job_id]


def test_ends_moved_by_a_filter_follow_the_mask_too(queue: Queue) -> None:
    (job_id,) = put(queue, 1, states=0b1000011)  # cancelled is in it, failed is not
    queue.one("select awa_pool.cancel(%s)", job_id)
    assert held(queue) == {1: job_id}
    moved = queue.rows(
        "select status from awa_pool.move_ended_to_dead('cancelled', null, %s, null, null, null, null, null, 10, 'why')",
        queue.name,
    )
    assert moved == [("done",)]
    assert held(queue) == {}
