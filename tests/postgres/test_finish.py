"""Ends of attempts in bulk: guards, malformed items, what is kept of errors, delays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from general_rig import Queue

from awa_pool.states import Outcome

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def _shared(pg_server: Any, _template: str) -> Iterator[str]:
    """A database for all tests of this module, which keep to queues of their own."""
    pg_server.execute("create database finish_items template awa_template")
    yield pg_server.dsn("finish_items")
    pg_server.execute("drop database finish_items with (force)")


@pytest.fixture
def queue(_shared: str) -> Iterator[Queue]:
    with Queue(_shared, f"queue_{next(_numbers)}") as found:
        yield found


def test_a_malformed_item_is_invalid_by_itself(queue: Queue) -> None:
    """Distilled 20."""
    queue.fill(2)
    first, last = queue.claim()
    good = first.ended("retry", delay_s=5)
    broken: list[Any] = [
        5, None, [], {}, "text",
        {**good, "outcome": "vanished"}, {**good, "outcome": None}, {**good, "outcome": "snooze", "delay_s": None},
        {**good, "slot": 24}, {**good, "slot": -1}, {**good, "slot": "x"}, {**good, "index": 63}, {**good, "index": -1},
        {**good, "nonce": None}, {**good, "nonce": 2**70}, {**good, "run_lease": "one"}, {**good, "delay_s": "soon"},
        {**good, "receipt_id": 1.5},
    ]  # fmt: skip
    answers = queue.finish(good, *broken, last.ended("fail"))
    assert answers == [("done", "retryable"), *[("invalid", None)] * len(broken), ("done", "failed")]


def test_what_is_no_array_is_refused(queue: Queue) -> None:
    for document in ("{}", "null", "5"):
        with pytest.raises(psycopg.Error) as refused:
            queue.rows("select * from awa_pool.finish(%s::json)", document)
        assert refused.value.sqlstate == "AW006"
    assert queue.finish() == []


@pytest.mark.parametrize("part", ["slot", "receipt_id", "nonce", "index", "job_id", "run_lease"])
def test_an_attempt_with_one_wrong_part_of_its_identity_ends_nothing(queue: Queue, part: str) -> None:
    attempts = [queue.claimed()]
    if part != "slot":  # a moved attempt has left its slot
        attempts.append(queue.claimed())
        queue.move(attempts[1])
    for attempt in attempts:
        for outcome in set(Outcome) - {Outcome.PARK}:  # which finish does not take
            item = attempt.ended(outcome.value, delay_s=1)
            item[part] += 1
            assert queue.finish(item) == [("stale", None)]
        assert queue.state(attempt.job_id) == "running"


def test_the_first_word_about_an_attempt_counts_in_one_call(queue: Queue) -> None:
    attempt = queue.claimed()
    wrong_nonce = {**attempt.ended("fail"), "nonce": attempt.nonce ^ 1}
    assert queue.finish(attempt.ended("snooze", delay_s=1), attempt.ended("fail"), wrong_nonce) == [
        ("done", "scheduled"), ("stale", None), ("stale", None),
    ]  # fmt: skip
    other = queue.claimed()
    answers = queue.finish({**other.ended("fail"), "nonce": other.nonce ^ 1}, other.ended("completed"))
    assert answers[0] == ("stale", None)
    assert answers[1] in [("busy", None), ("stale", None)]


def test_mixed_outcomes_of_one_receipt_all_land(queue: Queue) -> None:
    queue.fill(70)
    attempts = queue.claim()
    words = ["completed", "retry", "lost", "snooze", "fail", "cancel", "return"]
    ends = ["completed", "retryable", "retryable", "scheduled", "failed", "cancelled", "available"]
    answers = queue.finish(*(a.ended(words[i % 7], delay_s=9) for i, a in enumerate(attempts)))
    assert answers == [("done", ends[i % 7]) for i in range(70)]
    assert [queue.state(a.job_id) for a in attempts[:14]] == [ends[i % 7] for i in range(14)]


def test_a_receipt_held_elsewhere_is_busy_and_nothing_else_waits(queue: Queue) -> None:
    held, free = queue.claimed(), queue.claimed()
    moved = queue.claimed()
    queue.move(moved)
    with psycopg.connect(queue.dsn) as other:
        other.execute("select from awa_pool.receipts where receipt_id = %s for update", [held.receipt_id])
        other.execute("select from awa_pool.leases for update")
        answers = queue.finish(*(a.ended("fail") for a in (held, free, moved)))
        assert answers == [("busy", None), ("done", "failed"), ("busy", None)]
    assert queue.finish(held.ended("fail"), moved.ended("fail")) == [("done", "failed")] * 2


def test_errors_are_bounded_in_number_and_size_and_lose_nuls(queue: Queue) -> None:
    """Distilled 17."""
    job_id = queue.enqueue(max_attempts=1000)
    for n in range(25):
        (attempt,) = queue.claim()
        error = {
            "error": f"{n} " + "é\x00" * 5000,
            "type": "E" * 999,
            "traceback": "t" * 99_999,
            "more": "m" * 9999,
        }
        queue.finish(attempt.ended("retry", delay_s=0, error=error))
        queue.promote()
    errors = (queue.job(job_id) or {})["errors"]
    assert [e["attempt"] for e in errors] == list(range(6, 26))
    assert all(len(text.encode()) <= 4096 for e in errors for text in e.values() if isinstance(text, str))
    assert all({"error", "type", "at", "attempt"} <= e.keys() and "more" not in e for e in errors)


def test_an_error_that_spells_an_escape_keeps_it(queue: Queue) -> None:
    attempt = queue.claimed()
    queue.finish(attempt.ended("fail", error={"error": "\\u0000 and \x00"}))
    assert (queue.job(attempt.job_id) or {})["errors"][0]["error"] == "\\u0000 and \ufffd"


@pytest.mark.parametrize(
    ("delay_s", "low_s", "high_s"),
    [(0, 0, 0), (90.5, 90.5, 90.5), (-5, 0, 0), (1e300, 3155760000, 3155760000), (None, 2, 2.5)],
)
def test_a_delay_is_the_one_given_within_bounds_or_the_databases_own(
    queue: Queue, delay_s: float | None, low_s: float, high_s: float
) -> None:
    attempt = queue.claimed()
    before = queue.one("select clock_timestamp()")
    queue.finish(attempt.ended("retry", delay_s=delay_s))
    after = queue.one("select clock_timestamp()")
    due = (queue.job(attempt.job_id) or {})["run_at"]
    assert low_s <= (due - before).total_seconds()
    assert (due - after).total_seconds() <= high_s


def test_the_own_delay_is_capped_before_the_power_is_taken(queue: Queue) -> None:
    """B122; distilled 30."""
    for attempt, low_s, high_s in [(1, 2, 2.5), (10, 1024, 1280), (17, 86400, 86400), (1000, 86400, 86400)]:
        assert low_s <= queue.one("select awa_pool.retry_delay_s(%s)", attempt) <= high_s


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    "call",
    ["finish('[]')", "promote(1)", "rescue_stale(60, 1)", "cancel(1)", "retry(1)"],
)
def test_state_moving_functions_run_under_read_committed_only(queue: Queue, level: str, call: str) -> None:
    with queue.conn.transaction():
        queue.rows(f"set transaction isolation level {level}")
        with pytest.raises(psycopg.Error, match=level.upper()) as refused, queue.conn.transaction():
            queue.rows(f"select awa_pool.{call}")
    assert refused.value.sqlstate == "AW002"


def test_a_storm_of_failures_is_a_few_statements_not_one_a_job(queue: Queue) -> None:
    queue.fill(5000)
    attempts = queue.claim(5000)
    before = (
        queue.one("select sum(n_tup_upd) from pg_stat_xact_all_tables where relname like 'receipts%%'") or 0
    )
    with queue.conn.transaction():
        answers = queue.finish(*(a.ended("retry", error={"error": "storm"}) for a in attempts))
        updated = queue.one(
            "select sum(n_tup_upd) from pg_stat_xact_all_tables where relname like 'receipts%%'"
        )
    assert answers == [("done", "retryable")] * 5000
    assert updated - before == -(-5000 // 63)
    assert queue.one("select count(*) from awa_pool.jobs_deferred where queue = %s", queue.name) == 5000
