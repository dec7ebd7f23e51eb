"""Many attempts that end with follow-ups of shared keys, on eight connections: no deadlock, one holder a key (B013)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from general_rig import Attempt, Queue

from awa_pool.errors import StoreConflict
from awa_pool.store.connection import connect
from awa_pool.store.staged import EndedStaged, finish_staged

CONNECTIONS, TRIP = 8, 16
WORKING = 0b10111  # scheduled, available, running, retryable: a completion gives the key up
DEFAULT = 0b11111
HASTE_MS = 200


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def follow_up(number: int, states: int = DEFAULT) -> dict[str, Any]:
    return {
        "kind": "follow", "args": {"n": number}, "queue": "parked",
        "unique_key": number.to_bytes(16, "big").hex(), "unique_states": states,
    }  # fmt: skip


def claimed(queue: Queue, count: int) -> list[Attempt]:
    found: list[Attempt] = []
    while len(found) < count:
        some = queue.claim(limit=1000)
        assert some, "too few jobs"
        found += some
    return found


def end_all(dsn: str, ends: list[tuple[Attempt, list[dict[str, Any]]]]) -> Counter[str]:
    """End them in trips on all connections at once, again where a lock was in the way; counts what came of them.

    As the finalizer does, the ends of a receipt go by one connection.
    """

    def work(number: int) -> Counter[str]:
        store = connect(dsn)
        mine = [end for end in ends if end[0].receipt_id % CONNECTIONS == number]
        random.Random(number).shuffle(mine)
        seen: Counter[str] = Counter()
        while mine:
            trip, mine = mine[:TRIP], mine[TRIP:]
            sent = [(attempt.ended("completed"), orjson.dumps(jobs)) for attempt, jobs in trip]
            for end, answer in zip(trip, store.run(finish_staged(sent, HASTE_MS)), strict=True):
                if isinstance(answer, EndedStaged):
                    seen[answer.status] += 1
                    seen["new"] += answer.inserted
                    seen["skipped"] += len(answer.skipped)
                    if answer.status == "busy":
                        mine.append(end)
                else:
                    assert isinstance(answer, StoreConflict), answer
                    seen[str(answer.sqlstate)] += 1
                    mine.append(end)
        store.conn.close()
        return seen

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        return sum(threads.map(work, range(CONNECTIONS)), Counter())


def deadlocks(queue: Queue) -> int:
    return int(queue.one("select deadlocks from pg_stat_database where datname = current_database()"))


def test_two_keys_in_opposite_orders_give_one_job_each_and_no_deadlock(queue: Queue, dsn: str) -> None:
    queue.fill(2000)
    pair = [follow_up(1), follow_up(2)]
    ends = [(a, pair[:: 1 if n % 2 else -1]) for n, a in enumerate(claimed(queue, 2000))]
    seen = end_all(dsn, ends)
    assert seen["done"] == 2000 and seen["new"] == 2 and seen["skipped"] == 3998
    assert "40P01" not in seen and deadlocks(queue) == 0
    found = queue.rows("select unique_key, count(*) from awa_pool.unique_claims group by 1")
    assert sorted(found) == [((1).to_bytes(16, "big"), 1), ((2).to_bytes(16, "big"), 1)]


def test_ends_that_give_up_keys_which_others_take_do_not_deadlock_either(queue: Queue, dsn: str) -> None:
    """Each gives up its own key and takes those of both neighbours, every second of them in the other order."""
    count = 400
    queue.enqueue_many([{**follow_up(n, WORKING), "queue": queue.name} for n in range(1, count + 1)])
    by_key = {attempt.job_id: attempt for attempt in claimed(queue, count)}
    ends = []
    for n, job_id in enumerate(sorted(by_key), 1):
        neighbours = [follow_up(m, WORKING) for m in (n % count + 1, (n - 2) % count + 1)]
        ends.append((by_key[job_id], neighbours[:: 1 if n % 2 else -1]))
    seen = end_all(dsn, ends)
    assert seen["done"] == count and seen["new"] + seen["skipped"] == 2 * count
    assert "40P01" not in seen and deadlocks(queue) == 0
    rows = queue.rows("select args ->> 'n', count(*) from awa_pool.jobs where queue = 'parked' group by 1")
    assert seen["new"] == len(rows) and {number for _, number in rows} == {1}
    holders = queue.rows("select job_id from awa_pool.unique_claims")
    assert len(holders) == len(rows)  # each job that is there holds its key, and nobody else holds one


def test_what_a_trip_has_answered_is_safe_whatever_its_last_end_came_to(queue: Queue, dsn: str) -> None:
    """Only the last commit of a trip waits for the disk; where it wrote nothing, something else has to."""
    count = 40  # the server flushes now and then by itself, but not after each
    queue.fill(count)
    store = connect(dsn)
    unknown = {"receipt_id": 1 << 40}
    safe = 0
    for attempt in claimed(queue, count):
        ended, jobs = attempt.ended("completed"), orjson.dumps([{"kind": "follow", "args": {}}])
        ends = [(ended, jobs), (ended | unknown, jobs)]
        answers = store.run(finish_staged(ends, HASTE_MS))
        assert [a.status for a in answers if isinstance(a, EndedStaged)] == ["done", "stale"]
        flushed = store.conn.execute(
            "select pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
        ).fetchone()
        safe += flushed == (True,)
    store.conn.close()
    assert safe >= count - 2  # something else may have written just then
