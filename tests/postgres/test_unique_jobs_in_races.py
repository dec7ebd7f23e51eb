"""Several sessions want one key: each is held at the point where it would do harm, and all get a usable answer."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from general_rig import Attempt, Queue

from awa_pool import Client, UniqueConflict

DEADLINE_S = 20.0
SLOW_S = 5.0  # what a held producer would have cost; every bound here is far below
WAITING = 0b10011  # scheduled, available, retryable: free while the job runs
LIVE = 0b10111


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


@pytest.fixture
def other(dsn: str) -> Iterator[Queue]:
    """A second session, held inside one transaction by the test."""
    with Queue(dsn) as found:
        yield found


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def put(queue: Queue, number: int, states: int = 0b11111, on_conflict: str = "raise") -> int:
    return queue.one(
        "select awa_pool.enqueue('k', '{}', %s, p_unique_key => %s, p_unique_states => %s, p_on_conflict => %s)",
        queue.name, key(number), states, on_conflict,
    )  # fmt: skip


def holder(queue: Queue, number: int) -> int | None:
    rows = queue.rows("select job_id from awa_pool.unique_claims where unique_key = %s", key(number))
    return rows[0][0] if rows else None


def running(queue: Queue, numbers: list[int], states: int) -> list[Attempt]:
    """Claim one job for each key."""
    ids = [put(queue, number, states) for number in numbers]
    found = {attempt.job_id: attempt for attempt in queue.claim()}
    return [found[job_id] for job_id in ids]


def complete(queue: Queue, attempts: list[Attempt]) -> list[str]:
    rows = queue.rows(
        "select receipt_id, bit_or(done), bit_or(stale), bit_or(busy)"
        " from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[]) group by 1",
        [a.slot for a in attempts], [a.receipt_id for a in attempts], [a.nonce for a in attempts],
        [1 << a.index for a in attempts],
    )  # fmt: skip
    bits = {row[0]: row[1:] for row in rows}
    return [
        next(
            word
            for word, mask in zip(("done", "stale", "busy"), bits[a.receipt_id], strict=True)
            if mask >> a.index & 1
        )
        for a in attempts
    ]


class Asking:
    """A session that asks for a key on a thread of its own."""

    def __init__(self, dsn: str, ask: Callable[[Queue], Any]) -> None:
        self.queue = Queue(dsn)
        self.answer: Any = None
        self.thread = threading.Thread(target=self._run, args=(ask,))
        self.thread.start()

    def _run(self, ask: Callable[[Queue], Any]) -> None:
        try:
            self.answer = ask(self.queue)
        except psycopg.Error as problem:
            self.answer = problem

    def until_it_waits(self, watcher: Queue) -> None:
        pid = self.queue.conn.info.backend_pid
        deadline = time.monotonic() + DEADLINE_S
        while not watcher.one(
            "select coalesce(wait_event_type = 'Lock', false) from pg_stat_activity where pid = %s", pid
        ):
            assert time.monotonic() < deadline, "it never came to wait"

    def result(self) -> Any:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        self.queue.conn.close()
        return self.answer


# --- producers ----------------------------------------------------------------------------------------------


def test_simultaneous_inserts_of_one_key_give_one_job_and_an_answer_to_all(dsn: str, queue: Queue) -> None:
    clients = [Client(dsn) for _ in range(12)]
    gate = threading.Barrier(len(clients))

    def insert(number: int) -> tuple[str, int | None]:
        gate.wait(DEADLINE_S)
        try:
            policy = "raise" if number % 2 else "skip"
            return policy, clients[number].insert({}, kind="k", unique_opts={}, on_conflict=policy)
        except UniqueConflict as conflict:
            return "refused", conflict.job_id

    with ThreadPoolExecutor(len(clients)) as threads:
        answers = list(threads.map(insert, range(len(clients))))
    for client in clients:
        client.close()
    assert queue.one("select count(*) from awa_pool.jobs_ready") == 1
    assert {job_id for _, job_id in answers} == {queue.one("select job_id from awa_pool.jobs_ready")}


def test_who_waits_for_a_producer_gets_the_key_when_it_rolls_back(queue: Queue, other: Queue) -> None:
    with other.conn.transaction(force_rollback=True):
        gone = put(other, 1)
        asking = Asking(queue.dsn, lambda q: put(q, 1))
        asking.until_it_waits(queue)
    assert asking.result() not in (None, gone)
    assert holder(queue, 1) == asking.answer


def test_who_waits_for_a_producer_is_told_its_job_when_it_commits(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        first = put(other, 1)
        skipping = Asking(queue.dsn, lambda q: put(q, 1, on_conflict="skip"))
        raising = Asking(queue.dsn, lambda q: put(q, 1))
        skipping.until_it_waits(queue)
        raising.until_it_waits(queue)
    assert skipping.result() == first
    refused = raising.result()
    assert (refused.sqlstate, refused.diag.message_detail) == ("AW007", str(first))


def test_who_waits_for_a_holder_that_goes_gets_the_key(queue: Queue, other: Queue) -> None:
    """The holder vanishes between the two looks: the key is asked for again."""
    first = put(queue, 1)
    with other.conn.transaction():
        other.one("select awa_pool.cancel(%s)", first)
        askers = [Asking(queue.dsn, lambda q: put(q, 1, on_conflict="skip")) for _ in range(3)]
        for asking in askers:
            asking.until_it_waits(queue)
    (second,) = {asking.result() for asking in askers}
    assert second not in (None, first)
    assert holder(queue, 1) == second


def test_a_holder_that_goes_and_comes_never_leaves_a_caller_without_an_answer(queue: Queue) -> None:
    stop = threading.Event()

    def churn() -> int:
        with Queue(queue.dsn) as own:
            rounds = 0
            while not stop.is_set() or rounds < 20:
                own.rows("select awa_pool.cancel_by_key(%s)", key(1))
                rounds += 1
            return rounds

    def ask() -> list[int]:
        with Queue(queue.dsn) as own:
            return [put(own, 1, on_conflict="skip") for _ in range(60)]

    with ThreadPoolExecutor(4) as threads:
        churning = threads.submit(churn)
        answers = [job_id for part in [threads.submit(ask) for _ in range(3)] for job_id in part.result(120)]
        stop.set()
        churning.result(60)
    known = {row[0] for row in queue.rows("select id from awa_pool.jobs")}
    assert set(answers) <= known
    live = queue.rows("select id from awa_pool.jobs where state = 'available'")
    assert len(live) <= 1 and [row[0] for row in live] == [h for h in [holder(queue, 1)] if h is not None]


def test_producers_with_the_same_keys_in_other_orders_never_deadlock(dsn: str, queue: Queue) -> None:
    """B109: eight producers, the same thousand keys shuffled, in one call each, again and again."""
    clients = [Client(dsn) for _ in range(8)]

    def produce(number: int) -> list[list[int]]:
        shuffled = random.Random(number)
        answers = []
        for again in range(3):
            numbers = list(range(1000))
            shuffled.shuffle(numbers)
            items = [({"n": n, "again": again}, {"kind": "k", "unique_opts": {}}) for n in numbers]
            ids = clients[number].insert_many(items, on_conflict="skip")
            answers.append([job_id for _, job_id in sorted(zip(numbers, ids, strict=True))])
        return answers

    with ThreadPoolExecutor(len(clients)) as threads:
        answers = list(threads.map(produce, range(len(clients))))
    for client in clients:
        client.close()
    assert queue.one("select count(*) from awa_pool.jobs_ready") == 3000
    assert all(answer == answers[0] for answer in answers)


# --- a producer is slow, and the pool's writes go on ---------------------------------------------------------


def test_a_slow_producer_stops_only_the_job_that_wants_its_key(queue: Queue, other: Queue) -> None:
    """Hazard 13, the half of keys: no receipt is locked while a key is waited for, and no result waits long."""
    wanting, free, plain = running(queue, [1, 2], WAITING) + [queue.claimed()]
    started = time.monotonic()
    with other.conn.transaction():
        newer = put(other, 1)
        answers = queue.finish(*(a.ended("retry", delay_s=9.0) for a in (wanting, free, plain)))
        assert answers == [("busy", None), ("done", "retryable"), ("done", "retryable")]
        assert time.monotonic() - started < SLOW_S
        assert queue.state(wanting.job_id) == "running"
    assert queue.finish(wanting.ended("retry", delay_s=9.0)) == [("done", "cancelled")]
    assert queue.job(wanting.job_id)["reason"] == f"duplicate of job {newer}"
    assert queue.job(wanting.job_id)["attempt"] == 1


def test_no_receipt_is_held_while_a_finish_waits_for_a_key(queue: Queue, other: Queue) -> None:
    """Hazard 13: the batch road passes a finish that waits for a producer."""
    wanting, neighbour = running(queue, [1, 2], WAITING)
    assert wanting.receipt_id == neighbour.receipt_id
    with other.conn.transaction():
        put(other, 1)
        waiting = Asking(queue.dsn, lambda q: q.finish(wanting.ended("return")))
        answers = [complete(queue, [neighbour])]
        assert waiting.result() == [("busy", None)]
    assert answers == [["done"]]


def test_many_wanted_keys_of_slow_producers_cost_one_wait(queue: Queue, other: Queue) -> None:
    wanting = running(queue, list(range(40)), WAITING)
    started = time.monotonic()
    with other.conn.transaction():
        for number in range(40):
            put(other, number)
        answers = queue.finish(*(a.ended("return") for a in wanting))
    assert answers == [("busy", None)] * 40
    assert time.monotonic() - started < SLOW_S


def test_a_completion_that_wants_a_key_is_busy_while_a_producer_holds_it(queue: Queue, other: Queue) -> None:
    wanting, plain = running(queue, [1, 2], 0b1010)
    with other.conn.transaction(force_rollback=True):
        put(other, 1)
        assert complete(queue, [wanting, plain]) == ["busy", "done"]
    assert complete(queue, [wanting]) == ["done"]
    assert holder(queue, 1) == wanting.job_id


@pytest.mark.parametrize("road", ["complete", "finish"])
def test_a_key_locked_by_another_session_makes_its_completion_busy_and_no_other(
    queue: Queue, other: Queue, road: str
) -> None:
    held, free = running(queue, [1, 2], LIVE)
    plain = queue.claimed()
    with other.conn.transaction():
        other.rows("select from awa_pool.unique_claims where unique_key = %s for update", key(1))
        if road == "complete":
            assert complete(queue, [held, free, plain]) == ["busy", "done", "done"]
        else:
            answers = queue.finish(*(a.ended("completed") for a in (held, free, plain)))
            assert [status for status, _ in answers] == ["busy", "done", "done"]
        assert queue.state(held.job_id) == "running"
    assert complete(queue, [held]) == ["done"]
    assert holder(queue, 1) is None


def test_a_promotion_passes_a_job_whose_key_a_slow_producer_wants(queue: Queue, other: Queue) -> None:
    """B133: and takes it up when the producer has decided."""
    (attempt,) = running(queue, [1], 0b10)
    queue.finish(attempt.ended("retry", delay_s=0.0))
    plain = queue.enqueue(run_at="2999-01-01")
    with other.conn.transaction(force_rollback=True):
        put(other, 1)
        queue.make_due()
        assert queue.promote()[0] == 1
        assert queue.state(plain) == "available"
        assert queue.state(attempt.job_id) == "retryable"
    assert queue.promote()[0] == 1
    assert holder(queue, 1) == attempt.job_id


def test_ends_that_give_and_take_each_others_keys_never_deadlock(queue: Queue) -> None:
    """Hazard 14: one releases what the other takes, both ways round, many times at once."""
    rounds, pairs = 15, 6

    def end(attempts: list[Attempt], outcomes: list[str]) -> list[tuple[str, str | None]]:
        with Queue(queue.dsn) as own:
            left = [a.ended(o, delay_s=9.0) for a, o in zip(attempts, outcomes, strict=True)]
            answers = []
            deadline = time.monotonic() + DEADLINE_S
            while left:
                assert time.monotonic() < deadline
                said = own.finish(*left)
                answers += [answer for answer in said if answer[0] != "busy"]
                left = [item for item, answer in zip(left, said, strict=True) if answer[0] == "busy"]
            return answers

    with ThreadPoolExecutor(2) as threads:
        for _ in range(rounds):
            takers = running(queue, list(range(pairs)), WAITING)
            givers = running(queue, list(range(pairs)), LIVE)
            half = pairs // 2
            one = takers[:half] + givers[half:]
            two = givers[:half][::-1] + takers[half:][::-1]
            ends = [
                threads.submit(end, part, ["fail" if a in givers else "retry" for a in part])
                for part in (one, two)
            ]
            assert {answer[0] for each in ends for answer in each.result(DEADLINE_S)} == {"done"}
            for number in range(pairs):
                state = queue.state(takers[number].job_id)
                assert state in ("retryable", "cancelled")
                assert holder(queue, number) == (takers[number].job_id if state == "retryable" else None)
            queue.rows("select awa_pool.cancel(job_id) from awa_pool.unique_claims")


def test_a_repeatable_read_producer_is_told_to_try_again_by_a_newer_key(queue: Queue, other: Queue) -> None:
    other.conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.SerializationFailure), other.conn.transaction():
        other.one("select 1")
        put(queue, 1)
        put(other, 1, on_conflict="skip")
