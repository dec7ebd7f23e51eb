"""What handlers raise together, as an `asyncio.TaskGroup` does, is one outcome."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from awa_pool.errors import DeadlineExceeded, JobCancelled, LeaseLost, ShuttingDown, TerminalError
from awa_pool.outcomes import (
    DEADLINE_EXCEEDED,
    ERROR_TEXT_BYTES,
    Cancel,
    Ending,
    RetryAfter,
    Snooze,
    describe_error,
    leaves,
    resolve_outcome,
)
from awa_pool.states import Outcome
from awa_pool.worker.limits import Reins, TaskDeadlineExceeded, TaskJobCancelled


def resolve(*raised: BaseException, late: bool = False) -> Ending:
    return resolve_outcome(None, together(*raised), attempt=1, backoff=5.0, rng=random.Random(1), late=late)


def together(*raised: BaseException) -> BaseException:
    """As they leave a group within a group."""
    return BaseExceptionGroup("outer", [BaseExceptionGroup("inner", raised)])


NO = ValueError("no")


@pytest.mark.parametrize(
    ("raised", "outcome", "delay_s"),
    [
        ([ShuttingDown("stop")], Outcome.RETURN, None),
        ([ShuttingDown("stop"), LeaseLost("gone")], Outcome.RETURN, None),
        ([NO, ShuttingDown("stop")], Outcome.RETURN, None),
        ([DeadlineExceeded("late"), ShuttingDown("stop")], Outcome.RETURN, None),
        ([ShuttingDown("stop"), TerminalError("never")], Outcome.FAIL, None),
        ([NO, TerminalError("never")], Outcome.FAIL, None),
        ([ShuttingDown("stop"), TaskJobCancelled("cancelled")], Outcome.CANCEL, None),
        ([NO, JobCancelled("cancelled")], Outcome.CANCEL, None),
        ([NO, Cancel("not wanted")], Outcome.CANCEL, None),
        ([JobCancelled("cancelled"), TerminalError("never")], Outcome.FAIL, None),
        ([TaskDeadlineExceeded("late")], Outcome.RETRY, 5.0),
        ([NO, KeyError("a")], Outcome.RETRY, 5.0),
        ([NO, Snooze(60)], Outcome.RETRY, 5.0),
        ([NO, RetryAfter(60), RetryAfter(90)], Outcome.RETRY, 90.0),
        ([RetryAfter(60), Snooze(90)], Outcome.RETRY, 60.0),
        ([Snooze(60), Snooze(90)], Outcome.SNOOZE, 90.0),
        ([asyncio.CancelledError()], Outcome.RETRY, 5.0),
    ],
)
def test_what_is_in_a_group_decides_how_its_attempt_ends(
    raised: list[BaseException], outcome: Outcome, delay_s: float | None
) -> None:
    for order in (raised, raised[::-1]):
        ending = resolve(*order)
        assert (ending.outcome, ending.delay_s) == (outcome, delay_s)


def test_one_answer_in_a_group_means_the_same_as_alone() -> None:
    for answer in (Snooze(3), RetryAfter(60, "busy"), Cancel("not wanted")):
        alone = resolve_outcome(answer, None, attempt=1, backoff=None, rng=random.Random(1))
        assert resolve(answer) == alone


def test_a_deadline_in_a_group_is_the_reason_of_its_error() -> None:
    error = resolve(NO, TaskDeadlineExceeded("the deadline of 2 s has passed")).error
    assert error is not None
    assert (error["type"], error["reason"]) == ("DeadlineExceeded", DEADLINE_EXCEEDED)
    assert "ValueError: no" in error["error"] and "the deadline of 2 s has passed" in error["error"]


def test_the_error_of_a_group_shows_what_is_in_it_and_where_the_first_came_from() -> None:
    def breaks() -> None:
        raise ValueError("no card")

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(breaks))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(handler())
    error = describe_error(caught.value)
    assert error["type"] == "ExceptionGroup"
    assert error["error"] == "unhandled errors in a TaskGroup (1 sub-exception): ValueError: no card"
    assert "in handler" in error["traceback"] and "in breaks" in error["traceback"]
    outer = RuntimeError("outer")
    outer.__cause__ = caught.value
    assert "ValueError: no card" in describe_error(outer)["error"]


def test_groups_of_any_width_and_depth_are_bounded_in_their_record() -> None:
    wide = describe_error(ExceptionGroup("g", [ValueError(f"{n} " + "x" * 5000) for n in range(2000)]))
    assert len(json.dumps(wide).encode()) < ERROR_TEXT_BYTES + 200
    assert "ValueError: 7 x" in wide["error"] and "ValueError: 8 x" not in wide["error"]
    assert "and 1992 more" in wide["error"]
    deep: BaseException = ShuttingDown("stop")
    for _ in range(5000):
        deep = BaseExceptionGroup("deep", [deep, deep])  # 2^5000 ways to the one leaf
    assert len(leaves(deep)) == 1
    assert resolve(deep).outcome is Outcome.RETURN


def test_a_group_that_says_strange_things_of_itself_is_an_outcome_all_the_same() -> None:
    class Strange(ExceptionGroup[Exception]):
        exceptions = property(lambda self: 1 / 0)  # type: ignore[assignment]

        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert resolve(Strange("g", [ShuttingDown("stop")])).outcome is Outcome.RETURN
    error = resolve(Strange("g", [NO])).error
    assert error is not None and "ValueError: no" in error["error"]
    altered = Snooze(1)
    altered.seconds = "soon"  # type: ignore[assignment]
    assert resolve(altered, Snooze(2)).outcome is Outcome.RETRY


@pytest.mark.parametrize(("tell", "outcome"), [("exceed", Outcome.RETRY), ("cancel", Outcome.CANCEL)])
def test_a_handler_told_in_the_body_of_its_task_group_ends_as_one_without(
    tell: str, outcome: Outcome
) -> None:
    async def handler(job: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            await asyncio.sleep(3600)

    async def attempt() -> BaseException | None:
        mine = asyncio.current_task()
        assert mine is not None
        reins = Reins(mine)
        asyncio.get_running_loop().call_soon(*((reins.exceed, 2.0) if tell == "exceed" else (reins.cancel,)))
        try:
            await reins.drive(handler(None))
        except BaseException as problem:  # noqa: BLE001
            return problem
        return None

    raised = asyncio.run(attempt())
    ending = resolve_outcome(None, raised, attempt=1, backoff=5.0, rng=random.Random(1))
    assert ending.outcome is outcome
