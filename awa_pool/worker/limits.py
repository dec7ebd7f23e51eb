"""How long an attempt may take, and how its handler is told that the time is over, or that its job was cancelled.

This is the soft half. The hard one is the supervisor's: it reads deadlines on the page and kills from outside.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Generator, Iterable
from types import CodeType, FrameType, coroutine
from typing import Any

from awa_pool.errors import DeadlineExceeded, JobCancelled, LeaseLost
from awa_pool.job import Job
from awa_pool.registry import Handler, Task
from awa_pool.validation import DEADLINE_S

_SOON_S = 0.001  # until the next try, where the handler cannot be broken off just now


def nearest_limit_s(extra: dict[str, Any], task: Task) -> float | None:
    """Return how long an attempt may take: as its job says, else its task, else its queue; None: no limit."""
    own_s = _seconds(extra.get("deadline_s"))
    if own_s is not None:
        return own_s
    return task.deadline_s if task.deadline_s is not None else _seconds(extra.get("queue_deadline_s"))


def _seconds(value: Any) -> float | None:
    """Read a deadline that any software may have written; what is none counts as not said."""
    if type(value) not in (int, float) or not value > 0:
        return None
    return float(min(max(value, DEADLINE_S[0]), DEADLINE_S[1]))


def deadline_exceeded(limit_s: float) -> DeadlineExceeded:
    """Make what is raised in a sync handler."""
    return DeadlineExceeded(f"the deadline of {limit_s:g} s has passed")


# --- sync ----------------------------------------------------------------------------------------------------


class Alarm:
    """Calls a handler on the main thread and raises `DeadlineExceeded` in it, once, when its time is over.

    A signal's Python handler runs between any two steps of the main thread, also a moment after the job. So it raises
    only where the interrupted frame lies below the call in hand: it cannot reach another attempt, nor our own books.
    """

    def __init__(self, unbroken: Iterable[CodeType] = ()) -> None:
        """`unbroken`: functions of ours that handlers call, and that have to come to their end."""
        self.rang = False
        """It was raised in the newest call."""
        self._armed = False
        self._limit_s = 0.0
        self._call = Alarm.call.__code__
        self._unbroken = list(unbroken)  # kept, so that their ids are theirs
        self._unbroken_ids = {id(code) for code in self._unbroken}
        self._minds_forks = False

    def call(self, handler: Handler, job: Job[Any], limit_s: float) -> tuple[object, BaseException | None]:
        """Return what the handler returned and raised; never raises itself."""
        if not self._minds_forks:
            self._minds_forks = True
            os.register_at_fork(after_in_child=self._forked)
        self.rang, self._limit_s = False, limit_s
        before = signal.signal(signal.SIGALRM, self._ring)
        result: object = None
        raised: BaseException | None = None
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            result = handler(job)
        except BaseException as problem:  # noqa: BLE001 (exit too ends the attempt, never the worker)
            raised = problem
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        # Ours stays where there was none: a signal that is still on its way would end the process.
        if callable(before) and before != self._ring:
            signal.signal(signal.SIGALRM, before)
        return result, raised

    def _ring(self, signum: int, frame: FrameType | None) -> None:
        if not self._armed:
            return
        if not self._may_break(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON_S)
            return
        self._armed, self.rang = False, True
        raise deadline_exceeded(self._limit_s)

    def _may_break(self, frame: FrameType | None) -> bool:
        """Say whether the interrupted frame is the handler's, or below it, and nothing of ours."""
        if frame is None or frame.f_code is self._call:
            return False
        while frame is not None and frame.f_code is not self._call:
            if id(frame.f_code) in self._unbroken_ids:
                return False
            frame = frame.f_back
        return frame is not None

    def _forked(self) -> None:
        """Leave a handler's own child process the signal as it usually is."""
        self._armed = False
        if signal.getsignal(signal.SIGALRM) == self._ring:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


# --- async ---------------------------------------------------------------------------------------------------


class TaskDeadlineExceeded(DeadlineExceeded, asyncio.CancelledError):
    """`DeadlineExceeded` as an async handler gets it: what asyncio does when a task is cancelled is done too."""


class TaskJobCancelled(JobCancelled, asyncio.CancelledError):
    """`JobCancelled` as an async handler gets it."""


class TaskLeaseLost(LeaseLost, asyncio.CancelledError):
    """`LeaseLost` as a task gets it that its handler has left behind: nobody looks at how that ends, and asyncio does not complain
    of a task that was cancelled."""


class Reins:
    """Runs a coroutine so that an exception of ours can be raised where it waits, in that task and no other."""

    __slots__ = ("_pending", "_task", "cancelled", "late")

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task
        self._pending: list[BaseException] = []
        self.late = False
        """Its deadline has passed."""
        self.cancelled = False
        """It has been told of its cancel."""

    def of_this_thread(self) -> None:
        """Tell that no thread is the handler's own (`ThreadReins` are of one)."""

    def in_handler(self) -> bool:
        """Say whether the running task is the handler's own, and not one that it has made."""
        return asyncio.current_task() is self._task

    def exceed(self, limit_s: float) -> None:
        """Raise `DeadlineExceeded` in the handler."""
        self.late = True
        self._throw(TaskDeadlineExceeded(str(deadline_exceeded(limit_s))))

    def cancel(self) -> None:
        """Raise `JobCancelled` in the handler, the first time."""
        if not self.cancelled:
            self.cancelled = True
            self._throw(TaskJobCancelled("the job was cancelled"))

    def _throw(self, problem: BaseException) -> None:
        self._pending.append(problem)
        self._task.cancel()

    @coroutine
    def drive(self, running: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Await `running`; the cancellation by which we reach it arrives there as our exception."""
        problem: BaseException | None = None
        while True:
            try:
                waits_for = running.send(None) if problem is None else running.throw(problem)
            except StopIteration as end:
                return end.value
            problem = None
            try:
                yield waits_for
            except BaseException as came:  # noqa: BLE001 (whatever is thrown in goes on)
                problem = came
            if self._pending:
                # Also where what it waited for has swallowed the cancellation and came to an end of its own.
                ours = self._pending.pop(0)
                self._task.uncancel()
                if type(problem) is not asyncio.CancelledError:
                    ours.__context__ = problem
                problem = ours
