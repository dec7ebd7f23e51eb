"""Registers callbacks for handlers: a thread and a socket of its own, made by the first that asks.

So a handler may ask from any thread or event loop, and its lane's sockets stay with their owner. A request is said again
until the finalizer has answered; it names the id that the callback is to have, so that asking twice registers once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from awa_pool.errors import AwaError, JobCancelled, LeaseLost, ShuttingDown, StoreRefused, TransitionRefused
from awa_pool.messages import CallbackRegistered, RegisterCallback
from awa_pool.tokens import Registered, Rules
from awa_pool.wire import Dealer, Poller

from .reporting import identity_of

if TYPE_CHECKING:
    from .attempt import Attempt

RESEND_S = 1.0
RESEND_MAX_S = 10.0
LOOK_S = 0.05  # how often a sync handler that waits looks whether its job was cancelled
STOPPING_S = 2.0  # so long a request may take while the pool stops
_CLOSE_S = 1.0
_NEVER_S = 3600.0


class Request:
    """What one handler waits for; `wake` is called from the registrar's thread once `result` has something to return."""

    __slots__ = ("asked_s", "due_s", "message", "outcome", "wait_s", "wake")

    def __init__(self, message: RegisterCallback, wake: Callable[[], object], now_s: float) -> None:
        self.message = message
        self.wake = wake
        self.asked_s = self.due_s = now_s
        self.wait_s = RESEND_S
        self.outcome: CallbackRegistered | AwaError | None = None

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


class Registrar:
    """`register` for sync handlers, `register_async` for async ones; both return id and number of the callback."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._path = str(settings["finalizer_path"])
        self._identity = f"w{settings['worker']}-{settings['incarnation']}-callbacks"
        self._changed = threading.Lock()
        self._requests: dict[int, Request] = {}
        self._fresh: list[Request] = []
        self._scan_s = 0.0
        self._pid = os.getpid()
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._bell: tuple[int, int] | None = None
        self._stopping_s: float | None = None
        self._cut = False
        self._closing = False

    def register(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait until it is committed. Errors: as of `Job.register_callback`."""
        answered = threading.Event()
        request = self.ask(job, timeout_s, answered.set, rules)
        try:
            while not answered.wait(LOOK_S):
                if job.is_cancelled():
                    raise JobCancelled("the job was cancelled")
        finally:
            self.forget(request)
        return request.result()

    async def register_async(self, job: Attempt, timeout_s: float, rules: Rules | None = None) -> Registered:
        """Register, and wait on the running event loop until it is committed."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(answered.set)

        request = self.ask(job, timeout_s, wake, rules)
        try:
            await answered.wait()
        finally:
            self.forget(request)
        return request.result()

    def ask(
        self, job: Attempt, timeout_s: float, wake: Callable[[], object], rules: Rules | None = None
    ) -> Request:
        """Send a request for a callback. Errors: LeaseLost once the handler has returned; ShuttingDown."""
        from uuid import uuid4  # worth 1 MiB to a worker that registers none

        identity = identity_of(job)
        if identity is None:
            raise LeaseLost("the attempt has ended: register a callback while its handler runs")
        if os.getpid() != self._pid:
            raise LeaseLost("this is a process that the handler has forked: register in the handler's own")
        with self._changed:
            if self._closing:
                raise ShuttingDown("this worker ends")
            number = next(self._numbers)
            slot, receipt_id, nonce, index, job_id, run_lease = identity
            message = RegisterCallback(
                number, slot, receipt_id, nonce, index, job_id, run_lease, str(uuid4()), timeout_s, rules or {}
            )
            request = self._requests[number] = Request(message, wake, monotonic())
            self._fresh.append(request)
            if self._thread is None:
                self._bell = os.pipe()
                os.set_blocking(self._bell[1], False)
                self._thread = threading.Thread(target=self._run, name="awa-pool-callbacks", daemon=True)
                self._thread.start()
        self._ring()
        return request

    def forget(self, request: Request) -> None:
        """Nobody waits for that answer any more."""
        with self._changed:
            self._requests.pop(request.message.request, None)

    def say_again(self) -> None:
        """The finalizer is a new one: it knows nothing of what was asked."""
        with self._changed:
            for request in self._requests.values():
                request.due_s, request.wait_s = 0.0, RESEND_S
            self._scan_s = 0.0
        self._ring()

    def stopping(self, *, at_once: bool = False) -> None:
        """The pool stops: requests that it does not answer soon, or `at_once` all, end as ShuttingDown."""
        with self._changed:
            self._stopping_s, self._cut = monotonic(), at_once or self._cut
            self._scan_s = 0.0
        self._ring()

    def close(self) -> None:
        """Stop the thread and close its socket."""
        with self._changed:
            self._closing = True
        self._ring()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._bell[1], b"!")

    def _run(self) -> None:
        assert self._bell is not None
        socket, bell = Dealer(self._path, self._identity), _Bell(self._bell[0])
        poller = Poller([socket, bell])
        try:
            while (wait_s := self._send_due(socket)) is not None:
                if bell in poller.wait(wait_s):
                    os.read(self._bell[0], 4096)
                while (received := socket.receive()) is not None:
                    if isinstance(received[1], CallbackRegistered):
                        self._answered(received[1])
        finally:
            poller.remove(socket)
            socket.close()

    def _send_due(self, socket: Dealer) -> float | None:
        """Send what is new and what is due; returns the seconds until something is, None at the end."""
        now_s = monotonic()
        with self._changed:
            fresh, self._fresh = self._fresh, []
            for request in fresh:
                self._send(socket, request, now_s)
            if now_s >= self._scan_s or self._closing:
                self._scan_s = now_s + (_NEVER_S if self._stopping_s is None else STOPPING_S / 4)
                for request in self._requests.values():
                    self._look_after(socket, request, now_s)
            return None if self._closing else self._scan_s - now_s

    def _look_after(self, socket: Dealer, request: Request, now_s: float) -> None:
        if request.outcome is not None:
            return
        if self._closing or self._out_of_time(request, now_s):
            request.outcome = ShuttingDown("the pool stops, and the database does not answer")
            request.wake()
        elif request.due_s <= now_s:
            self._send(socket, request, now_s)
        self._scan_s = min(self._scan_s, request.due_s)

    def _send(self, socket: Dealer, request: Request, now_s: float) -> None:
        socket.send(request.message)
        request.due_s = now_s + request.wait_s
        request.wait_s = min(request.wait_s * 2, RESEND_MAX_S)
        self._scan_s = min(self._scan_s, request.due_s)

    def _out_of_time(self, request: Request, now_s: float) -> bool:
        if self._stopping_s is None:
            return False
        return self._cut or now_s >= max(self._stopping_s, request.asked_s) + STOPPING_S

    def _answered(self, message: CallbackRegistered) -> None:
        with self._changed:
            request = self._requests.get(message.request)
            if request is not None and request.outcome is None:
                request.outcome = message
                request.wake()


NOT_TO_BREAK = (
    Registrar.ask.__code__,
    Registrar.forget.__code__,
)
"""Functions that a deadline must not cut in two."""


class _Bell:
    """The end of a pipe that the thread listens to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor
