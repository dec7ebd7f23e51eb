"""Work as steps: a generator says what it needs, and is given the answer; one driver for each kind of client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from awa_pool.client import AsyncClient, Client
from awa_pool.hooks import JobEvent, call_hooks
from awa_pool.job import Job
from awa_pool.registry import Registry, Task
from awa_pool.store.calls import Call

from . import attempts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Handle:
    """Call the task's handler; answered by what it returned and raised."""

    task: Task
    job: Job[Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """Call the hooks of these events; what they raise is logged."""

    registry: Registry
    events: Sequence[JobEvent]

    def __call__(self) -> None:
        """Call them."""
        for event in self.events:
            task = self.registry.tasks.get(event.job.kind)
            call_hooks(self.registry.triggers, dict if task is None else task.args_type, event)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait a moment."""

    seconds: float


Step = Call[Any] | Handle | Tell | Pause
Steps = Generator[Step, Any, T]


def drive(client: Client | AsyncClient, steps: Steps[T]) -> T | Coroutine[Any, Any, T]:
    """Carry out the steps with the client's own connections; with an AsyncClient the answer is to be awaited."""
    if isinstance(client, AsyncClient):
        return _drive_async(client, steps)
    if isinstance(client, Client):
        return _drive(client, steps)
    raise TypeError(f"expected a Client or AsyncClient, got {type(client).__name__}")


def _drive(client: Client, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = _carried_out(client, step)
            except BaseException as problem:  # noqa: BLE001 (the steps give back what they hold, and raise it again)
                step = steps.throw(problem)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        done: T = end.value
        return done


def _carried_out(client: Client, step: Step) -> Any:
    match step:
        case Handle(task, job):
            return attempts.call(task, job)
        case Tell():
            return step()
        case Pause(seconds):
            return time.sleep(seconds)
    return client._run(step, None)


async def _drive_async(client: AsyncClient, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = await _carried_out_async(client, step)
            except BaseException as problem:  # noqa: BLE001 (as above)
                step = steps.throw(problem)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        done: T = end.value
        return done


async def _carried_out_async(client: AsyncClient, step: Step) -> Any:
    match step:
        case Handle(task, job):
            return await attempts.call_async(task, job)
        case Tell():
            return await asyncio.to_thread(step)
        case Pause(seconds):
            return await asyncio.sleep(seconds)
    return await client._run(step, None)
