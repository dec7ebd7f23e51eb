"""An attempt that ends in this process exactly as it would in a worker: the same endings, specs and poisoning."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from awa_pool.hooks import JobEvent
from awa_pool.messages import AttemptsEnded, ResultsCommitted
from awa_pool.registry import Registry, Task, kind_of
from awa_pool.worker import owed
from awa_pool.worker.attempt import Attempt
from awa_pool.worker.core import LaneCore
from awa_pool.worker.endings import Endings, leave_out_our_frame
from awa_pool.worker.events import Arrived, Flush, Piece, TellHooks, ToFinalizer
from awa_pool.worker.registering import Registrar
from awa_pool.worker.reporting import Reporter
from awa_pool.worker.spec_failures import SpecFailures

APP = "under test"
Handled = tuple[object, BaseException | None]


def view_of(registry: Registry, *tasks: Task) -> Registry:
    """Return a registry with further tasks, or others in their place; the app's own stays as it is."""
    view = Registry()
    view.__dict__.update(registry.__dict__)
    view.tasks = {**registry.tasks, **{task.kind: task for task in tasks}}
    view.tasks[owed.KIND] = owed.outcome_task(view, SpecFailures())
    return view


class LastWords(Reporter):
    """What a handler says of its progress: kept until the attempt ends, and stored with its outcome."""

    words: dict[tuple[int, int], Any]

    def __init__(self) -> None:
        self.words = {}

    def say(self, job: Attempt, *, at_once: bool) -> None:
        """Note that there is something to be stored."""
        self.words[job.id, job.run_lease] = True

    def settle(self, job: Attempt) -> dict[str, Any] | None:
        """Return the last word of an attempt that ends, None if it has said nothing."""
        return None if self.words.pop((job.id, job.run_lease), None) is None else job.progress

    def close(self) -> None:
        """There is nothing to close."""


def endings_of(
    registry: Registry,
    tell: Callable[[list[JobEvent]], None] | None = None,
    registrar: Registrar | None = None,
) -> Endings:
    """Return what resolves outcomes for this app; `tell` is handed what hooks are to hear at once."""
    return Endings(registry, APP, Random(), tell, LastWords(), registrar)


def kind_named(registry: Registry, what: Any, kind: str | None = None) -> str:
    """Return the kind that a test means by an args type, args or a name. Errors: TypeError."""
    if kind is not None:
        return kind
    if isinstance(what, str):
        return what
    args_type = what if isinstance(what, type) else type(what)
    if args_type is dict:
        raise TypeError("a plain dict does not say what it is for: give kind='…'")
    task = registry.by_type.get(args_type)
    if task is not None:
        return task.kind
    rivals = [task.kind for task in registry.tasks.values() if task.args_type is args_type]
    if rivals:
        raise TypeError(f"{args_type.__name__} belongs to {', '.join(rivals)}: give kind='…'")
    return kind_of(args_type.__name__)


def task_with(registry: Registry, kind: str, args_type: Any, handler: Callable[[Any], Any]) -> Task:
    """Return the task of a kind with another handler: anything callable, a stub of a test too."""
    is_async = inspect.iscoroutinefunction(handler)
    known = registry.tasks.get(kind)
    if known is not None:
        may_wait = known.waits or known.is_async
        return replace(known, handler=handler, is_async=is_async, waits=may_wait and not is_async)
    return Task(kind=kind, args_type=args_type, handler=handler, is_async=is_async, waits=not is_async)


def refuse_a_running_loop(task: Task, instead: str) -> None:
    """Say before anything is called that an async handler cannot be run here. Errors: TypeError."""
    if not task.is_async or not loop_runs():
        return
    raise TypeError(f"the handler of {task.kind!r} is async, and an event loop runs here: {instead}")


def loop_runs() -> bool:
    """Say whether this is called from within an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def call(task: Task, job: Any) -> Handled:
    """Call a handler; returns what it returned and raised. An interrupt and pytest's own go through."""
    try:
        result = task.handler(job)
        return (asyncio.run(result) if task.is_async else result), None
    except BaseException as problem:
        if _is_the_tests_own(problem):
            raise
        leave_out_our_frame(problem)
        return None, problem


async def call_async(task: Task, job: Any) -> Handled:
    """The same on a running event loop; a sync handler gets a thread, as it may block or run a loop of its own."""
    if not task.is_async:
        return await asyncio.to_thread(
            call, task, job
        )  # what a handler raises may be nothing that a future takes
    try:
        return await task.handler(job), None
    except BaseException as problem:
        current = asyncio.current_task()
        if _is_the_tests_own(problem) or (current is not None and current.cancelling()):
            raise
        leave_out_our_frame(problem)
        return None, problem


def _is_the_tests_own(problem: BaseException) -> bool:
    """`pytest.fail` and `pytest.skip` in a stub speak of the test, not of the job."""
    return isinstance(problem, KeyboardInterrupt) or any(
        cls.__module__.startswith("_pytest.") for cls in type(problem).__mro__
    )


class Sent:
    """What a worker has sent to the finalizer, and keeps until it is acknowledged."""

    def __init__(self, piece: Piece) -> None:
        self._lane = LaneCore(0, APP, "sync", 1, [])
        (sent,) = (step for step in self._lane.step(Flush(piece), 0.0) if isinstance(step, ToFinalizer))
        self.message: AttemptsEnded = sent.message
        self.payload = tuple(sent.payload)

    def acknowledged(self, word: ResultsCommitted) -> list[JobEvent]:
        """Return what hooks are to hear now that it is committed."""
        told = (step.events for step in self._lane.step(Arrived(word), 0.0) if isinstance(step, TellHooks))
        return [event for events in told for event in events]
