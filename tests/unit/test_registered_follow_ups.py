"""Specs are called with what belongs to their outcome, in order, before what was staged; one that fails follows the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import orjson
import pytest

from awa_pool import Cancel, Client, EnqueueRequest, RegistrationError, RetryAfter, Snooze, TerminalError
from awa_pool.job import Job
from awa_pool.specs import SpecFailed
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.owed import outcome_task
from awa_pool.worker.spec_failures import SpecFailures


@dataclass
class Signup:
    name: str


@dataclass
class Mail:
    to: str


def fail(*_: Any) -> Any:
    raise ValueError("the spec is broken")


class World:
    """An app with one task, and one attempt of it after the other, as a worker's lane would settle it."""

    def __init__(self, *, max_attempts: int = 3) -> None:
        self.client = Client("host=nowhere")
        self.max_attempts = max_attempts

        @self.client.task(Signup, max_attempts=max_attempts, backoff=5.0)
        def signup(job: Job[Signup]) -> None: ...

        self.client.task(Mail)(_mail)

    def settle(
        self,
        result: object = None,
        raised: BaseException | None = None,
        *,
        attempt: int = 1,
        stage: bool = False,
    ) -> tuple[str, dict[str, Any] | None, list[dict[str, Any]], bool]:
        """End an attempt; returns outcome, error, follow-ups, and whether the page may call it completed."""
        self.endings = endings = Endings(self.client.registry, "app", Random(1))
        task = self.client.registry.tasks["signup"]
        piece = Piece("q", 2, 0, 1, 1, [0], [], 1)
        body = [7, "signup", {"name": "ann"}, attempt, 1, self.max_attempts, None]
        job = endings.job(piece, task, 0, body, lambda: False)
        assert job is not None
        if stage:
            job.enqueue_on_completion(Mail("staged"))
        ending = endings.of_handler(task, attempt, result, raised)
        plain = endings.settle(piece, 0, job, task, ending)
        if piece.done:
            return "completed", None, [], plain
        (item,) = piece.others
        return item[4], item[6], orjson.loads(piece.staged.get(0, b"[]")), plain


def _mail(job: Job[Mail]) -> None: ...


@pytest.fixture
def world() -> World:
    return World()


def test_a_kind_without_specs_is_not_looked_at(world: World) -> None:
    assert world.settle() == ("completed", None, [], True)


def test_specs_run_in_order_of_registration_and_before_what_was_staged(world: World) -> None:
    world.client.on_completed_enqueue(Signup, lambda args, job: Mail(f"first {args.name} {job.id}"))

    @world.client.on_completed_enqueue(Signup)
    def second(args: Signup, job: Job[Signup]) -> EnqueueRequest:
        return EnqueueRequest(Mail("second")).queue("fast").unique()

    world.client.on_completed_enqueue("signup", lambda args, job: None)
    outcome, error, jobs, plain = world.settle(stage=True)
    assert (outcome, error, plain) == ("completed", None, False)
    assert [job["args"]["to"] for job in jobs] == ["first ann 7", "second", "staged"]
    assert jobs[1]["queue"] == "fast" and "unique_key" in jobs[1]
    assert all(job["metadata"]["awa:parent"] == 7 for job in jobs)


def test_a_spec_that_returns_none_leaves_the_job_on_the_batched_road(world: World) -> None:
    world.client.on_completed_enqueue(Signup, lambda args, job: None)
    assert world.settle() == ("completed", None, [], True)


ENDS: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("on_retried_enqueue", {"raised": ValueError("no")}, "retry", ["no", 1, datetime]),
    ("on_retried_enqueue", {"result": RetryAfter(9)}, "retry", [str, 1, datetime]),
    ("on_exhausted_enqueue", {"raised": ValueError("no"), "attempt": 3}, "retry", ["no", 3]),
    ("on_exhausted_enqueue", {"raised": TerminalError("never")}, "fail", ["never", 1]),
    ("on_cancelled_enqueue", {"result": Cancel("why")}, "cancel", ["why"]),
]


@pytest.mark.parametrize(("door", "end", "outcome", "told"), ENDS)
def test_a_spec_is_told_what_belongs_to_its_outcome(
    world: World, door: str, end: dict[str, Any], outcome: str, told: list[Any]
) -> None:
    heard: list[Any] = []

    def spec(args: Signup, job: Job[Signup], *more: Any) -> Mail:
        heard.extend(more)
        return Mail("x")

    getattr(world.client, door)(Signup, spec)
    before = datetime.now(UTC)
    found, _, jobs, _ = world.settle(**end)
    assert (found, len(jobs)) == (outcome, 1)
    for value, wanted in zip(heard, told, strict=True):
        assert value == wanted if not isinstance(wanted, type) else isinstance(value, wanted)
    if datetime in told:
        assert heard[-1] > before and heard[-1].tzinfo is not None


def test_snoozes_and_other_outcomes_tell_nobody(world: World) -> None:
    for door in ("completed", "retried", "exhausted", "cancelled", "rescued", "waiting_for_callback"):
        getattr(world.client, f"on_{door}_enqueue")(Signup, fail)
    assert world.settle(Snooze(9))[0] == "snooze"


FAILURES: list[tuple[str, dict[str, Any], str, str | None]] = [
    # the outcome is undone: a failure that tries again and names the spec
    ("on_completed_enqueue", {}, "retry", None),
    ("on_cancelled_enqueue", {"result": Cancel("why")}, "retry", None),
    # and where that was the last attempt, an end that says what it lacks
    ("on_completed_enqueue", {"attempt": 3}, "fail", "follow_up_failed"),
    # the outcome stays
    ("on_retried_enqueue", {"raised": ValueError("no")}, "retry", None),
    ("on_exhausted_enqueue", {"raised": TerminalError("never")}, "fail", "follow_up_failed"),
    ("on_exhausted_enqueue", {"raised": ValueError("no"), "attempt": 3}, "fail", "follow_up_failed"),
]


@pytest.mark.parametrize(("door", "end", "outcome", "reason"), FAILURES)
@pytest.mark.parametrize("how", ["raises", "makes no valid job", "exits"])
def test_a_spec_that_fails_follows_the_rules_and_nothing_loops(
    world: World, door: str, end: dict[str, Any], outcome: str, reason: str | None, how: str
) -> None:
    def exit_(*_: Any) -> Any:
        raise SystemExit(1)

    specs: dict[str, Callable[..., Any]] = {
        "raises": fail,
        "makes no valid job": lambda *_: EnqueueRequest(Mail("x")).priority(9),
        "exits": exit_,
    }
    getattr(world.client, door)(Signup, lambda *_: Mail("of another spec"))
    getattr(world.client, door)(Signup, specs[how])
    found, error, jobs, plain = world.settle(stage=True, **end)
    assert (found, jobs, plain) == (outcome, [], False)
    assert error is not None and error.get("reason") == reason
    if door in ("on_completed_enqueue", "on_cancelled_enqueue"):
        assert ("fail" if how == "raises" else "") in error["error"]
        assert error["error"].split(":")[0].endswith((">", "fail", "exit_"))
    else:
        assert error["error"] in ("no", "never")


def test_each_function_that_fails_is_logged_and_counted_by_the_outcome_it_was_called_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.client.on_completed_enqueue(Signup, fail)
    world.client.on_exhausted_enqueue(Signup, fail)
    for end, outcome in (({}, "completed"), ({"raised": TerminalError("never")}, "exhausted")):
        world.settle(**end)
        assert world.endings.spec_failures.figures() == {"specs_failed": {outcome: 1}, "owed_given_up": 0}
        assert caplog.messages.pop() == "a spec of kind signup failed: fail: ValueError"
    world.settle(Snooze(9))
    assert world.endings.spec_failures.figures()["specs_failed"] == {}


def test_an_owed_outcome_counts_each_try_and_says_when_it_is_given_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.client.on_rescued_enqueue(Signup, fail)
    failures = SpecFailures()
    task = outcome_task(world.client.registry, failures)
    ended = {
        "id": 7, "kind": "signup", "args": {"name": "ann"}, "attempt": 1, "max_attempts": 3, "queue": "q",
        "priority": 2, "run_lease": 1, "outcomes": ["rescued"],
    }  # fmt: skip
    endings = Endings(world.client.registry, "app", Random(1))

    def attempt(number: int) -> object:
        piece = Piece("q", 2, 0, 1, 1, [0], [], 1)
        return task.handler(
            endings.job(piece, task, 0, [8, task.kind, ended, number, 1, 3, None], lambda: False)
        )

    for number in (1, 2):
        with pytest.raises(SpecFailed):
            attempt(number)
    assert failures.figures() == {"specs_failed": {"rescued": 2}, "owed_given_up": 0}
    assert isinstance(attempt(3), Cancel)
    assert failures.figures() == {"specs_failed": {"rescued": 3}, "owed_given_up": 1}
    assert caplog.messages[2:] == [
        "a spec of kind signup failed: fail: ValueError",
        "follow-ups of job 7 are given up after 3 tries: ValueError",
    ]


@pytest.mark.parametrize(
    ("target", "function", "match"),
    [
        (Signup, 3, "must be a function"),
        (Signup, lambda: None, r"\(args, job\)"),
        (dict, lambda args, job: None, "args type"),
        (7, lambda args, job: None, "args type"),
    ],
)
def test_what_cannot_be_a_spec_is_refused(world: World, target: Any, function: Any, match: str) -> None:
    with pytest.raises(RegistrationError, match=match):
        world.client.on_completed_enqueue(target, function)


def test_an_async_spec_is_refused(world: World) -> None:
    async def spec(args: Any, job: Any) -> None: ...

    with pytest.raises(RegistrationError, match="async"):
        world.client.on_completed_enqueue(Signup, spec)


def test_kinds_of_the_queues_own_are_refused(world: World) -> None:
    with pytest.raises(RegistrationError, match="belong to the queue"):
        world.client.task(kind="awa:mine")(_mail)
