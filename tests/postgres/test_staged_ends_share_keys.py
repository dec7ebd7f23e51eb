"""Many attempts that end with follow-ups of shared keys, on eight connections: no deadlock, one holder a key (B013)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import psycopg
import pytest
from general_rig import Attempt, Queue
from servers import Server

from awa_pool.errors import StoreConflict
from awa_pool.store.connection import connect
from awa_pool.store.staged import EndedStaged, finish_staged

CONNECTIONS, TRIP, ROUNDS = 8, 16, 250
WORKING = 0b10111  # scheduled, available, running, retryable: a completion gives the key up
DEFAULT = 0b11111
HASTE_MS = 200


@pytest.fixture
def queue(dsn: str, pg_server: Server) -> Iterator[Queue]:
    """A queue whose server looks for deadlocks before anybody's patience is at its end, and has found none at the end."""
    log = pg_server.root / "log"
    before = log.stat().st_size
    with Queue(dsn) as found:
        found.rows(f"alter database {found.conn.info.dbname} set deadlock_timeout = '{HASTE_MS // 10}ms'")
        yield found
    said = log.read_bytes()[before:]
    assert b"deadlock detected" not in said, said.decode(errors="replace")


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


def end_trip(
    store: Any, trip: list[tuple[Attempt, list[dict[str, Any]]]], seen: Counter[str]
) -> list[tuple[Attempt, list[dict[str, Any]]]]:
    """End them in one trip, and count what came of them; returns those to be ended again, as a lock was in the way."""
    again = []
    sent = [(attempt.ended("completed"), orjson.dumps(jobs)) for attempt, jobs in trip]
    for end, answer in zip(trip, store.run(finish_staged(sent, HASTE_MS)), strict=True):
        if isinstance(answer, EndedStaged):
            seen[answer.status] += 1
            seen["new"] += answer.inserted
            if answer.status == "busy":
                again.append(end)
            else:
                seen["skipped"] += len(answer.skipped)
        else:
            assert isinstance(answer, StoreConflict), answer
            seen[str(answer.sqlstate)] += 1
            again.append(end)
    return again


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
            mine += end_trip(store, trip, seen)
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


@pytest.mark.parametrize("own", [False, True], ids=["cancelled", "completed too"])
def test_two_keys_that_are_given_up_again_and_again_make_no_deadlock(
    queue: Queue, dsn: str, own: bool
) -> None:
    """In each round all connections want both keys, in either order, just as those who hold them are cancelled.

    `own`: only one of these is; the other is among those who end, gives its key up and wants both.
    """
    stores = [connect(dsn) for _ in range(CONNECTIONS)]
    pair = [follow_up(1, WORKING), follow_up(2, WORKING)]
    queue.fill(ROUNDS * CONNECTIONS)
    plain = sorted(
        claimed(queue, ROUNDS * CONNECTIONS), key=lambda a: a.index
    )  # in a round: of many receipts
    parked: dict[int, Attempt] = {}
    seen: Counter[str] = Counter()
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

    def work(number: int, attempt: Attempt) -> Counter[str]:
        mine: Counter[str] = Counter()
        left = [(attempt, pair[:: 1 if number % 2 else -1])]
        while left:
            left = end_trip(stores[number], left, mine)
        return mine

    with ThreadPoolExecutor(CONNECTIONS) as threads, psycopg.connect(dsn) as canceller:
        for number in range(ROUNDS):
            parked |= {attempt.job_id: attempt for attempt in queue.claim(queue="parked")}
            holders = [
                i for (i,) in queue.rows("select job_id from awa_pool.unique_claims order by unique_key")
            ]
            ending = [parked[holders.pop(number % 2)]] if own and len(holders) == 2 else []
            for job_id in holders:
                canceller.execute("select awa_pool.cancel(%s)", [job_id])
            ending += [plain.pop() for _ in range(CONNECTIONS - len(ending))]
            ends = [threads.submit(work, *each) for each in enumerate(ending)]
            until_s = time.monotonic() + 20.0
            while holders and queue.one(waiting) < CONNECTIONS:
                assert time.monotonic() < until_s, "they do not all wait for the key"
            canceller.commit()
            seen = sum((each.result(20) for each in ends), seen)
    for store in stores:
        store.conn.close()
    assert seen["done"] == ROUNDS * CONNECTIONS and seen["new"] + seen["skipped"] == 2 * seen["done"]
    assert seen["new"] == 2 * ROUNDS if not own else seen["new"] > ROUNDS
    assert "40P01" not in seen and deadlocks(queue) == 0


def test_ends_that_give_up_keys_which_others_take_do_not_deadlock_either(queue: Queue, dsn: str) -> None:
    """Each gives up its own key and takes those of both neighbours, every second of them in the other order."""
    count = 2000
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
