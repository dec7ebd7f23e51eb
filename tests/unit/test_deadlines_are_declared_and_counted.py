"""What a task may say about deadlines, what becomes of an attempt that overran, and how it is counted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from finalizer_world import World

from awa_pool import Client, DeadlineExceeded, JobCancelled, RegistrationError, RetryAfter, TerminalError
from awa_pool.job import Job
from awa_pool.outcomes import DEADLINE_EXCEEDED, Ending, resolve_outcome
from awa_pool.states import Outcome


@dataclass
class Args:
    n: int = 0


def handler(job: Job[Args]) -> None:
    pass


async def async_handler(job: Job[Args]) -> None:
    pass


def test_a_task_says_deadline_and_grace_in_seconds_or_as_timedeltas() -> None:
    client = Client()
    client.task(Args, kind="a", deadline=timedelta(minutes=2), grace=0)(handler)
    client.task(Args, kind="b", deadline=1.5, grace=timedelta(seconds=3), cancel_kill=False)(handler)
    client.task(Args, kind="c")(handler)
    client.task(Args, kind="d")(async_handler)
    client.task(Args, kind="e", cancel_kill=True)(async_handler)
    tasks = client.registry.tasks.values()
    assert [(t.deadline_s, t.grace_s, t.cancel_kill) for t in tasks] == [
        (120.0, 0.0, True), (1.5, 3.0, False), (None, None, True), (None, None, False), (None, None, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadline": 0}, "deadline: expected 0.01 to 31536000 seconds"),
        ({"deadline": float("nan")}, "deadline: expected 0.01 to"),
        ({"deadline": "1m"}, "deadline: expected seconds or a timedelta, got str"),
        ({"deadline": True}, "deadline: expected seconds or a timedelta, got bool"),
        ({"grace": -1}, "grace: expected 0 to 86400 seconds"),
        ({"grace": timedelta(days=2)}, "grace: expected 0 to"),
        ({"cancel_kill": 1}, "cancel_kill: expected True or False, got int"),
    ],
)
def test_a_limit_that_is_none_is_refused_naming_task_and_setting(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError, match=f"task 'args': {words}"):
        Client().task(Args, **options)(handler)


def resolve(result: object = None, raised: BaseException | None = None, *, late: bool) -> Ending:
    return resolve_outcome(result, raised, attempt=1, backoff=2.0, rng=random.Random(1), late=late)


def test_what_is_raised_after_the_deadline_has_its_reason_and_what_is_returned_counts_as_always() -> None:
    raised = resolve(raised=DeadlineExceeded("the deadline of 2 s has passed"), late=True)
    assert (raised.outcome, raised.delay_s) == (Outcome.RETRY, 2.0)
    assert raised.error == {
        "error": "the deadline of 2 s has passed", "type": "DeadlineExceeded", "reason": DEADLINE_EXCEEDED,
    }  # fmt: skip
    other = resolve(raised=ValueError("half done"), late=True)
    assert other.error is not None
    assert (other.error["type"], other.error["reason"]) == ("ValueError", DEADLINE_EXCEEDED)
    final = resolve(raised=TerminalError("never again"), late=True)
    assert (final.outcome, (final.error or {})["reason"]) == (Outcome.FAIL, DEADLINE_EXCEEDED)
    assert resolve(late=True).outcome is Outcome.COMPLETED
    for ending in (resolve(RetryAfter(3), late=True), resolve(raised=RetryAfter(3), late=True)):
        assert (ending.delay_s, "reason" in (ending.error or {})) == (3.0, False)
    assert "reason" not in (resolve(raised=ValueError("x"), late=False).error or {})


def test_a_cancel_let_through_is_a_cancel() -> None:
    ending = resolve(raised=JobCancelled("the job was cancelled"), late=False)
    assert (ending.outcome, ending.error) == (
        Outcome.CANCEL, {"error": "the job was cancelled", "type": "JobCancelled"},
    )  # fmt: skip


def test_a_time_out_is_counted_as_nothing_else() -> None:
    """B154."""
    world = World()
    worker = world.worker("w1")
    late = world.other(1, 0, "retry")
    late[6] = {
        "error": "the deadline of 2 s has passed",
        "type": "DeadlineExceeded",
        "reason": DEADLINE_EXCEEDED,
    }
    world.end(worker, 1, 0b1000, [late, world.other(1, 1, "retry"), world.other(1, 2, "fail")])
    world.settle()
    ended = world.core.figures()["ended"]["short"]
    assert ended == {"deadline_exceeded": 1, "retry": 1, "fail": 1, "completed": 1}
