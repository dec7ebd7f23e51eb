"""Progress in the database: written for attempts that run, kept by whatever ends one but its completion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from general_rig import Attempt, Queue

from awa_pool import Client

SAID = {"percent": 40, "metadata": {"page": 3}}


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def say(queue: Queue, attempt: Attempt, progress: Any = SAID, **other: Any) -> int:
    item = {**attempt.ended("retry"), "progress": progress, **other}
    return queue.one("select awa_pool.keep_progress(%s::json)", json.dumps([item]))


def finish(queue: Queue, attempt: Attempt, outcome: str, **more: Any) -> tuple[str, str]:
    ((status, state),) = queue.rows(
        "select status, state from awa_pool.finish(%s::json)", json.dumps([attempt.ended(outcome, **more)])
    )
    return status, state


def seen(queue: Queue, job_id: int) -> Any:
    listed = queue.rows(
        "select progress from awa_pool.list_jobs(null, null, null, 100, null) where id = %s", job_id
    )
    viewed = queue.rows("select progress from awa_pool.jobs where id = %s", job_id)
    one = queue.rows("select progress from awa_pool.job(%s)", job_id)
    assert listed == viewed == one
    return one[0][0]


def rows_left(queue: Queue) -> int:
    return queue.one("select count(*) from awa_pool.attempt_state")


def claimed(queue: Queue, **named: Any) -> Attempt:
    queue.enqueue(**named)
    (attempt,) = queue.claim()
    return attempt


ENDS = [
    ("retry", {"delay_s": 0}, "retryable"),
    ("snooze", {"delay_s": 0}, "scheduled"),
    ("lost", {"delay_s": 0, "error": {"error": "killed"}}, "retryable"),
    ("return", {}, "available"),
    ("fail", {"error": {"error": "no"}}, "failed"),
    ("cancel", {"reason": "not wanted"}, "cancelled"),
]


@pytest.mark.parametrize(("outcome", "more", "state"), ENDS)
def test_every_end_but_completion_keeps_what_was_said(
    queue: Queue, outcome: str, more: dict[str, Any], state: str
) -> None:
    attempt = claimed(queue)
    assert seen(queue, attempt.job_id) is None
    assert say(queue, attempt) == 1 and seen(queue, attempt.job_id) == SAID
    assert finish(queue, attempt, outcome, **more) == ("done", state)
    assert seen(queue, attempt.job_id) == SAID and rows_left(queue) == 0
    if state in ("retryable", "scheduled", "available"):
        queue.one("select promoted from awa_pool.promote(10)")
        (again,) = queue.claim()
        body = queue.rows("select progress from awa_pool.job(%s)", again.job_id)
        assert body == [(SAID,)]
        assert say(queue, again, {"percent": 50}) == 1 and seen(queue, again.job_id) == {"percent": 50}
        assert say(queue, attempt, {"percent": 1}) == 0  # the attempt before has ended
        assert seen(queue, again.job_id) == {"percent": 50}


@pytest.mark.parametrize("moved", [False, True], ids=["in the ring", "moved out of it"])
def test_completion_clears_it_and_the_row_is_swept(queue: Queue, moved: bool) -> None:
    attempt = claimed(queue)
    say(queue, attempt)
    finish(queue, attempt, "retry", delay_s=0)
    queue.one("select promoted from awa_pool.promote(10)")
    (again,) = queue.claim()
    if moved:
        queue.rows(f"select awa_pool.move_open_{again.slot}(100, 0)")
        assert seen(queue, again.job_id) == SAID
    assert say(queue, again, {"percent": 99}) == 1 and seen(queue, again.job_id) == {"percent": 99}
    queue.rows(
        "select * from awa_pool.complete(%s, %s, %s, %s)",
        [again.slot], [again.receipt_id], [again.nonce], [1 << again.index],
    )  # fmt: skip
    assert queue.one("select state from awa_pool.job(%s)", again.job_id) == "completed"
    assert seen(queue, again.job_id) is None
    assert say(queue, again, {"percent": 5}) == 0
    queue.rows("update awa_pool.attempt_state set written_at = '2000-01-01'")
    running = claimed(queue)
    say(queue, running)
    queue.rows("update awa_pool.attempt_state set written_at = '2000-01-01'")
    queue.rows("select awa_pool.sweep()")
    assert rows_left(queue) == 1 and seen(queue, running.job_id) == SAID


def test_the_last_word_comes_with_the_end_and_counts(queue: Queue) -> None:
    attempt = claimed(queue)
    say(queue, attempt)
    finish(queue, attempt, "retry", delay_s=60, progress={"percent": 90})
    assert seen(queue, attempt.job_id) == {"percent": 90} and rows_left(queue) == 0
    # A late result changes nothing, nor does one that is not an object.
    assert finish(queue, attempt, "retry", delay_s=60, progress={"percent": 1})[0] == "stale"
    other = claimed(queue)
    assert finish(queue, other, "retry", delay_s=60, progress=7) == ("done", "retryable")
    assert seen(queue, attempt.job_id) == {"percent": 90} and seen(queue, other.job_id) is None


def test_a_bad_item_spoils_no_other(queue: Queue) -> None:
    attempt = claimed(queue)
    good = {**attempt.ended("retry", delay_s=60), "progress": SAID}
    bad = {**good, "slot": "x"}
    rows = queue.rows("select item, status from awa_pool.finish(%s::json)", json.dumps([bad, good]))
    assert rows == [(0, "invalid"), (1, "done")]


@pytest.mark.parametrize(
    "other", [{"nonce": 1}, {"run_lease": 9}, {"job_id": 10**6}, {"index": 5}, {"index": 63}, {"slot": 24}]
)
def test_only_the_very_attempt_is_written_for(queue: Queue, other: dict[str, int]) -> None:
    attempt = claimed(queue)
    assert say(queue, attempt, **other) == 0 and seen(queue, attempt.job_id) is None


def test_a_cancel_by_hand_and_a_rescue_keep_it_and_another_life_drops_it(queue: Queue, dsn: str) -> None:
    first = claimed(queue)
    say(queue, first)
    with Client(dsn) as client:
        client.cancel(first.job_id)
        row = client.get_job(first.job_id)
        assert row is not None and (row.state, row.progress) == ("cancelled", SAID)
        client.retry(first.job_id)
        row = client.get_job(first.job_id)
        assert row is not None and (row.state, row.progress) == ("available", None)
    assert rows_left(queue) == 0
