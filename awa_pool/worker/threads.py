"""Runs plain handlers that wait (`waits=True`): each attempt on a thread of its own, which the async lane drives.

The lane's loop keeps the books and the clock; a thread only calls the handler and says what came of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from time import monotonic
from typing import Any

from awa_pool.errors import AwaError, DeadlineExceeded, JobCancelled, ShuttingDown
from awa_pool.job import Job
from awa_pool.registry import Task

from .endings import leave_out_our_frame
from .limits import deadline_exceeded
from .process import leave_if_forked

STACK_BYTES = 4 << 20
"""Of address space, where the usual is 128 KiB to 8 MiB. Memory is used only by what is touched (16 KiB a waiting thread, whatever
this says), and C code that calls Python and recurses to its limit, as a sort with such a key does, needs as much."""
_BREATH_S = 1.0
"""An attempt without a thread goes back after this, as it would come again at once."""
_WARN_EVERY_S = 60.0

_log = logging.getLogger(__name__)
_raise_in_thread: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
_starting = threading.Lock()


class NoThread(ShuttingDown):
    """The system has no thread for this attempt, which goes back: an interruption, no failure."""


class ThreadReins:
    """Raises exceptions of ours in a handler's thread: at its next step, or where it waits for something of ours.

    `with reins:` marks our own code on that thread, which nothing may break: what comes meanwhile ends the request that
    is being waited for, or is raised on the way out.
    """

    __slots__ = (
        "_depth", "_end", "_ended", "_ident", "_lock", "_pending", "_thrown", "cancelled", "late",
    )  # fmt: skip

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ident = 0
        self._depth = 0
        self._end: Callable[[AwaError], bool] | None = None
        self._pending: AwaError | None = None
        self._thrown: list[DeadlineExceeded | None] | None = None
        """[None] once it is on its way to the handler, which gets it at its next step; then it holds what was raised."""
        self._ended = False
        self.late = False
        """Its deadline has passed."""
        self.cancelled = False
        """It has been told of its cancel."""

    def of_this_thread(self) -> ThreadReins | None:
        """Return these reins to the handler's own thread, None to another."""
        return self if threading.get_ident() == self._ident else None

    def in_handler(self) -> bool:
        """Say whether the calling thread is the handler's own."""
        return threading.get_ident() == self._ident

    def exceed(self, limit_s: float) -> None:
        """Raise `DeadlineExceeded` in the handler. Blocking calls are not broken off: it comes when they return."""
        with self._lock:
            self.late = True
            problem = deadline_exceeded(limit_s)
            if self._ended:
                return
            if self._depth or not self._ident:
                if self._end is None or not self._end(problem):
                    self._pending = problem
                return
            self._thrown = [None]
            _raise_in_thread(ctypes.c_ulong(self._ident), ctypes.py_object(_exception(problem, self._thrown)))

    def cancel(self) -> None:
        """Raise `JobCancelled` where the handler waits; elsewhere it asks, as plain handlers do, or is told at its next wait."""
        with self._lock:
            if not self.cancelled and self._end is not None:
                self._end(JobCancelled("the job was cancelled"))
            self.cancelled = True

    def hold(self, end: Callable[[AwaError], bool]) -> None:
        """Say how to end what the handler begins to wait for."""
        with self._lock:
            self._end = end
            if self._pending is not None and end(self._pending):
                self._pending = None
            elif self.cancelled:
                end(JobCancelled("the job was cancelled"))

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0 and (undelivered := self._take_back()) is not None:
                raise undelivered
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            self._end = None
            if self._depth == 0 and self._pending is not None:
                problem, self._pending = self._pending, None
                raise problem

    def begin(self) -> None:
        """The thread has begun. Errors: DeadlineExceeded where the time is over already."""
        with self._lock:
            self._ident = threading.get_ident()
            if self._pending is not None:
                problem, self._pending = self._pending, None
                raise problem

    def end(self) -> None:
        """The handler has ended: nothing is raised in this thread any more."""
        with self._lock:
            self._ended = True
            self._take_back()

    def _take_back(self) -> AwaError | None:
        """Return what is on its way to this thread and has not been raised; it will not be."""
        if self._thrown is None or self._thrown[0] is not None:
            return None
        _raise_in_thread(ctypes.c_ulong(self._ident), None)
        self._thrown = None
        return DeadlineExceeded("the deadline has passed")


def _exception(problem: DeadlineExceeded, thrown: list[DeadlineExceeded | None]) -> type[DeadlineExceeded]:
    """Return what the interpreter can raise in another thread: a class, which it calls there without arguments."""

    class Exceeded(DeadlineExceeded):
        def __init__(self, *args: object) -> None:
            super().__init__(*(args or problem.args))
            thrown[0] = self

    Exceeded.__name__ = Exceeded.__qualname__ = DeadlineExceeded.__name__
    Exceeded.__module__ = DeadlineExceeded.__module__
    return Exceeded


class Threads:
    """Starts the threads of a lane, for the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._warn_s = 0.0

    async def run(self, task: Task, job: Job[Any], reins: ThreadReins) -> tuple[object, BaseException | None]:
        """Return what the handler returned and raised. Errors: NoThread, after a moment, where none can be started."""
        ended: asyncio.Future[tuple[object, BaseException | None]] = self._loop.create_future()
        call = _Call(self._loop, ended, task, job, reins)
        try:
            # At once only because of this thread: others might start theirs with the small stack meanwhile.
            with _starting:
                usual = threading.stack_size(STACK_BYTES)
                try:
                    threading.Thread(target=call.run, name=f"awa-pool job {job.id}", daemon=True).start()
                finally:
                    threading.stack_size(usual)
        except (RuntimeError, MemoryError, OSError) as problem:
            self._warn(job, problem)
            await asyncio.sleep(_BREATH_S)
            raise NoThread from None
        while True:
            try:
                return await asyncio.shield(ended)
            except (
                asyncio.CancelledError
            ):  # by a handler that cancels all tasks of the loop: the thread goes on
                if ended.cancelled():
                    raise

    def _warn(self, job: Job[Any], problem: BaseException) -> None:
        if (now_s := monotonic()) >= self._warn_s:
            self._warn_s = now_s + _WARN_EVERY_S
            _log.warning(
                "job %s, kind %s, goes back: no thread can be started for its handler (%s, with %s threads in this worker): "
                "allow more threads or memory, or lower --concurrency and --max-waiting",
                job.id, job.kind, problem or type(problem).__name__, threading.active_count(),
            )  # fmt: skip


class _Call:
    """One handler on its thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: asyncio.Future[tuple[object, BaseException | None]],
        task: Task,
        job: Job[Any],
        reins: ThreadReins,
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._task = task
        self._job = job
        self._reins = reins
        self._context = copy_context()  # of the attempt: what it prints and logs carries its tag

    def run(self) -> None:
        """Call the handler and tell the loop; an exception of ours may strike between any two steps up to `end`."""
        result: object = None
        raised: BaseException | None = None
        returned = False
        try:
            try:
                self._reins.begin()
                result = self._context.run(self._task.handler, self._job)
                returned = True
            except BaseException as problem:  # noqa: BLE001 (exit too ends the attempt, never the worker)
                raised = problem
            leave_if_forked()
            self._reins.end()
        except DeadlineExceeded as late:
            leave_if_forked()
            self._reins.end()
            if not returned and raised is None:
                raised = late
        if raised is not None:
            leave_out_our_frame(raised)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has gone
            self._loop.call_soon_threadsafe(self._tell, result, raised)

    def _tell(self, result: object, raised: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result((result, raised))
