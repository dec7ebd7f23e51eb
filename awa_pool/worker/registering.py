"""What handlers ask about callbacks: registers them, and waits for their answers; `asking` carries it to the finalizer.

A plain handler blocks its thread, an async one awaits on whatever loop it runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from awa_pool.errors import AwaError, JobCancelled, LeaseLost, StoreRefused, TransitionRefused
from awa_pool.messages import CallbackRegistered, RegisterCallback
from awa_pool.tokens import Registered, Rules

from .asking import Asker, Request
from .limits import TaskLeaseLost
from .reporting import identity_of

if TYPE_CHECKING:
    from .attempt import Attempt

LOOK_S = 0.05  # how often a handler that cannot be told looks whether its job was cancelled
STOPPING_S = 2.0  # so long a request may take while the pool stops

R = TypeVar("R", bound=Request)
Asking = Callable[[Callable[[], object], int, list[int]], R]
"""Of what wakes the handler, the request's number, and the identity of its attempt."""


class Registration(Request):
    """A callback that is to be registered."""

    expects = CallbackRegistered
    cut_short = "the pool stops, and the database does not answer"
    __slots__ = ()
    message: RegisterCallback

    def ends_s(self, stopping_s: float, look_s: float) -> float:
        return max(stopping_s, self.asked_s) + STOPPING_S

    def result(self) -> Registered:
        """Return id and number of the callback, or raise what stood in the way."""
        match self.outcome:
            case CallbackRegistered(_, "done", number):
                return self.message.callback_id, number
            case CallbackRegistered(_, "stale"):
                raise LeaseLost("the attempt has ended: its job was cancelled, rescued or answered meanwhile")
            case CallbackRegistered(_, "waiting"):
                raise TransitionRefused("the attempt waits for a callback: it cannot have another")
            case CallbackRegistered(_, _, _, error):
                raise StoreRefused(f"the callback could not be registered: {error}")
            case AwaError() as problem:
                raise problem
        raise LeaseLost("nobody has answered")


class Registrar(Asker):
    """`register` and `wait` for plain handlers, `register_async` and `wait_async` for async ones."""

    def register(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait until it is committed; returns id and number. Errors: as of `Job.register_callback`."""
        return self.block(job, _registration_of(job, timeout_s, rules)).result()

    async def register_async(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait on the running event loop until it is committed."""
        registered: Registered = await self._result(job, _registration_of(job, timeout_s, rules))
        return registered

    def wait(self, job: Attempt, callback_id: str) -> Any:
        """Wait for the answer to a callback; returns the payload. Errors: as of `Job.wait_for_callback`."""
        from .waiting import check_thread, wait_for

        check_thread(job)
        return self.block(job, partial(wait_for, job, callback_id)).result()

    async def wait_async(self, job: Attempt, callback_id: str) -> Any:
        """Wait on the running event loop for the answer to a callback; returns the payload."""
        from .waiting import wait_for

        return await self._result(job, partial(wait_for, job, callback_id))

    def lease(self, job: Attempt, inside: bool = False) -> None:
        """Have an attempt moved to leases, and wait until that is committed. Errors: as of `Job.completing`."""
        from .leasing import leasing

        self.block(job, partial(leasing, inside)).result()

    async def lease_async(self, job: Attempt, inside: bool = False) -> None:
        """Have an attempt moved to leases, and await on the running event loop that it is committed."""
        from .leasing import leasing

        await self._result(job, partial(leasing, inside))

    async def _result(self, job: Attempt, asking: Asking[R]) -> Any:
        """Return what came of a request, or raise it; to a task that is left when its handler has ended, as its cancelling."""
        request = await self.suspend(job, asking)
        try:
            return request.result()
        except AwaError as problem:
            if identity_of(job) is not None:
                raise
            raise TaskLeaseLost(str(problem)) from None

    def block(self, job: Attempt, asking: Asking[R]) -> R:
        """Ask, and block the calling thread until there is an outcome."""
        import _thread

        gate = _thread.allocate_lock()
        gate.acquire()
        seat = getattr(job, "_seat", None)
        reins = None if seat is None else seat.reins.of_this_thread()
        if reins is None:
            request = self.ask(job, partial(asking, gate.release))
            try:
                request.begun()
                while not gate.acquire(timeout=LOOK_S):
                    if job.is_cancelled():
                        raise JobCancelled("the job was cancelled")
            finally:
                request.over()
                self.forget(request)
            return request
        with reins:
            request = self.ask(job, partial(asking, gate.release))
            try:
                request.begun()
                reins.hold(partial(self.end, request))
                gate.acquire()
            finally:
                request.over()
                self.forget(request)
        return request

    async def suspend(self, job: Attempt, asking: Asking[R]) -> R:
        """Ask, and await the outcome on the running event loop."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(answered.set)

        request = self.ask(job, partial(asking, wake))
        try:
            request.begun()
            await answered.wait()
        finally:
            request.over()
            self.forget(request)
        return request


def given_up(job: Attempt) -> str:
    """Return the callback that the handler has waited for last, if any. Errors: TransitionRefused while it waits."""
    if getattr(job, "_wait", None) is not None:
        raise TransitionRefused("the attempt waits for a callback: give that wait up to register another")
    return getattr(job, "_waited_for", "")


def count_callback(job: Attempt) -> int:
    """Return the number, from 1, of one more callback that the attempt asks for."""
    job._asked = getattr(job, "_asked", 0) + 1
    return job._asked


def _registration_of(job: Attempt, timeout_s: float, rules: Rules | None) -> Asking[Registration]:
    return partial(registration, timeout_s, rules or {}, given_up(job), count_callback(job))


def registration(
    timeout_s: float,
    rules: Rules,
    over: str,
    nth: int,
    wake: Callable[[], object],
    number: int,
    identity: list[int],
) -> Registration:
    """Make the request for a callback, with a random id."""
    from uuid import uuid4  # worth 1 MiB to a worker that registers none

    slot, receipt_id, nonce, index, job_id, run_lease = identity
    message = RegisterCallback(
        number, slot, receipt_id, nonce, index, job_id, run_lease, str(uuid4()), timeout_s, rules, over, nth
    )
    return Registration(number, message, wake, monotonic())


NOT_TO_BREAK = (
    Asker.ask.__code__,
    Asker.forget.__code__,
)
"""Functions that a deadline must not cut in two."""
