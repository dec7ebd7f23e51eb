"""Back-off, far-off times and snoozes at their bounds: no job vanishes, none runs out by waiting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest
from general_rig import Queue

from awa_pool import Client, RetryAfter, Snooze, ValidationError
from awa_pool.outcomes import resolve_outcome
from awa_pool.states import Outcome

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def _shared(pg_server: Any, _template: str) -> Iterator[str]:
    """A database for all tests of this module, which keep to queues of their own."""
    pg_server.execute("create database retry_rules template awa_template")
    yield pg_server.dsn("retry_rules")
    pg_server.execute("drop database retry_rules with (force)")


@pytest.fixture
def queue(_shared: str) -> Iterator[Queue]:
    with Queue(_shared, f"queue_{next(_numbers)}") as found:
        yield found


@pytest.mark.parametrize(
    ("backoff", "low_s", "high_s"),
    [
        (lambda n: min(5**n, 3600), 3600, 3600),
        (
            lambda n: min(5.0**n, 3600),
            86400,
            86400,
        ),  # overflows in the user's own hands: the default takes over
        (None, 86400, 86400),
        (3600.0, 3600, 3600),
    ],
    ids=["whole-numbers", "floats", "default", "constant"],
)
def test_the_thousandth_attempt_waits_as_long_as_the_cap_says(
    queue: Queue, backoff: Any, low_s: float, high_s: float
) -> None:
    """B122."""
    job_id = queue.enqueue(max_attempts=1000)
    queue.rows("update awa_pool.jobs_ready set attempt = 998 where job_id = %s", job_id)
    (attempt,) = queue.claim()
    assert attempt.attempt == 999
    ending = resolve_outcome(None, ValueError("no"), attempt=999, backoff=backoff, rng=Random(1))
    assert ending.outcome is Outcome.RETRY and ending.delay_s is not None
    before = queue.one("select clock_timestamp()")
    assert queue.finish(attempt.ended("retry", delay_s=ending.delay_s, error=ending.error)) == [
        ("done", "retryable")
    ]
    delay_s = ((queue.job(job_id) or {})["run_at"] - before).total_seconds()
    assert low_s <= delay_s <= high_s + 60
    queue.make_due()
    queue.promote()
    (last,) = queue.claim()
    assert last.attempt == 1000
    assert queue.finish(last.ended("retry")) == [("done", "failed")]
    assert (queue.job(job_id) or {})["dead"]


def test_a_time_beyond_the_calendar_is_refused_when_it_is_said(queue: Queue, _shared: str) -> None:
    """B124."""
    for far in ("infinity", "294276-12-31 23:59:59Z", "10000-01-01 00:00:00Z"):
        with pytest.raises(psycopg.Error) as refused:
            queue.enqueue(run_at=far)
        assert refused.value.sqlstate == "AW001"
    for answer in (RetryAfter, Snooze):
        with pytest.raises(ValidationError, match="between 0 and"):
            answer(timedelta(days=36_525_000))
    with Client(_shared) as client:
        last = datetime.max.replace(tzinfo=UTC)
        job_id = client.insert({}, kind="k", queue=queue.name, run_at=last)
        assert client.get_job(job_id).run_at == last  # type: ignore[union-attr]
        assert [job.id for job in client.list_jobs(queue=queue.name)] == [job_id]


def test_a_delay_of_a_hundred_thousand_years_from_elsewhere_is_held_within_what_can_be_read(
    queue: Queue,
) -> None:
    """B124: rows and results of other software."""
    for word in ("retry", "snooze"):
        attempt = queue.claimed()
        queue.finish(attempt.ended(word, delay_s=100_000 * 365.25 * 86400))
        due = (queue.job(attempt.job_id) or {})["run_at"]
        assert 99 < (due - datetime.now(UTC)).days / 365.25 < 101


def test_a_job_that_snoozes_a_thousand_times_completes_on_its_first_attempt(queue: Queue) -> None:
    """B128; the first 850 times are told and not lived."""
    job_id = queue.enqueue(max_attempts=3)
    queue.rows("update awa_pool.jobs_ready set snoozes = 850, run_lease = 850 where job_id = %s", job_id)
    for n in range(851, 1001):
        (attempt,) = queue.claim()
        assert (attempt.attempt, attempt.run_lease) == (1, n)
        assert queue.finish(attempt.ended("snooze", delay_s=0)) == [("done", "scheduled")]
        assert queue.promote()[0] == 1
    (attempt,) = queue.claim()
    assert queue.finish(attempt.ended("completed")) == [("done", "completed")]
    found = queue.job(job_id) or {}
    assert (found["state"], found["attempt"], found["snoozes"], found["errors"]) == (
        "completed",
        1,
        1000,
        None,
    )


def test_a_retry_after_on_the_last_attempt_fails_the_job_and_names_the_delay(queue: Queue) -> None:
    attempt = queue.claimed(max_attempts=1)
    ending = resolve_outcome(RetryAfter(90), None, attempt=1, backoff=None, rng=Random(1))
    item = attempt.ended(ending.outcome.value, delay_s=ending.delay_s, error=ending.error)
    assert queue.finish(item) == [("done", "failed")]
    found = queue.job(attempt.job_id) or {}
    assert (found["reason"], found["dead"]) == ("max_attempts_exhausted", True)
    assert "90 s" in found["errors"][0]["error"]


def test_the_history_of_errors_is_bounded_over_all_lives_of_a_job(queue: Queue) -> None:
    """Twenty entries, each small, however often it dies and is retried."""
    job_id = queue.enqueue(max_attempts=5)
    for n in range(30):
        (attempt,) = queue.claim()
        queue.finish(
            attempt.ended(
                "retry", delay_s=0, error={"error": f"{n} " + "x" * 20_000, "traceback": "y" * 20_000}
            )
        )
        queue.promote()
        if attempt.attempt == 5:
            assert queue.retry_dead(job_id) == [(job_id, "done", "available")]
    errors = (queue.job(job_id) or {})["errors"]
    assert [int(e["error"].split()[0]) for e in errors] == list(range(10, 30))
    assert queue.one("select length(errors::text) from awa_pool.jobs where id = %s", job_id) < 20 * 10_000
