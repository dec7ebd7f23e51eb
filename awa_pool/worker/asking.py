"""Carries requests of handlers to the finalizer: a thread and a socket of its own, made by the first that asks.

So a handler may ask from any thread or event loop, and its lane's sockets stay with their owner. A request is said again
until the finalizer has answered; each names what it is about, so that asking twice does nothing twice.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from awa_pool.errors import AwaError, LeaseLost, ShuttingDown, StoreUnavailable
from awa_pool.messages import AttemptLeased, CallbackAnswered, CallbackRegistered, Message
from awa_pool.wire import Dealer, Poller

from .reporting import identity_of

if TYPE_CHECKING:
    from .attempt import Attempt

RESEND_S = 1.0
RESEND_MAX_S = 10.0
LAST_LOOK_S = 0.5
"""So long an answer that was accepted before the stop may still come: longer than deaf pools take to look again."""
_LOOK_S = 0.5  # how often it looks for requests that are out of time, once the pool stops
_CLOSE_S = 1.0
_NEVER_S = 3600.0

Answer = CallbackRegistered | CallbackAnswered | AttemptLeased


class Request:
    """What one handler waits for; `wake` is called once, from any thread, when there is an `outcome`."""

    expects: ClassVar[type[Message]]
    cut_short: ClassVar[str]
    """What is said to a handler whose pool stops."""
    most_s = math.inf
    """So long it waits for its answer."""
    __slots__ = ("asked_s", "due_s", "message", "number", "outcome", "payload", "wait_s", "wake")

    def __init__(self, number: int, message: Message, wake: Callable[[], object], now_s: float) -> None:
        self.number = number
        self.message = message
        self.wake = wake
        self.asked_s = self.due_s = now_s
        self.wait_s = RESEND_S
        self.outcome: Message | AwaError | None = None
        self.payload: Sequence[bytes] = ()

    def ends_s(self, stopping_s: float, look_s: float) -> float:
        """Return until when it waits for its answer in a pool that stops since then, and looks on for `look_s` seconds."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return what was asked for, or raise what stood in the way."""
        raise NotImplementedError

    def begun(self) -> None:
        """The handler begins to wait."""

    def over(self) -> None:
        """The handler waits no more."""

    def farewell(self) -> Message | None:
        """Return what the finalizer is to be told when nobody waits for the answer any more."""
        return None


R = TypeVar("R", bound=Request)
Making = Callable[[int, list[int]], R]
"""Of its number and the identity of an attempt (see `identity_of`): a request."""


class Asker:
    """Sends requests and hands the answers out."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.schema = str(settings.get("schema") or "awa_pool")
        """Where the pool's jobs are."""
        self._path = str(settings["finalizer_path"])
        self._identity = f"w{settings['worker']}-{settings['incarnation']}-callbacks"
        self._changed = threading.Lock()
        self._requests: dict[int, Request] = {}
        self._fresh: list[Request] = []
        self._farewells: list[Message] = []
        self._due: list[tuple[float, int]] = []
        """A heap of when which request is to be said again; what has changed since stands in the request."""
        self._look_s = 0.0
        self._pid = os.getpid()
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._bell: tuple[int, int] | None = None
        self._stopping_s: float | None = None
        self._look_on_s = 0.0
        self._cut = False
        self._closing = False

    def ask(self, job: Attempt, make: Making[R]) -> R:
        """Send a request. Errors: LeaseLost once the handler has returned; ShuttingDown."""
        identity = identity_of(job)
        if identity is None:
            raise LeaseLost("the attempt has ended: callbacks are for handlers that run")
        if os.getpid() != self._pid:
            raise LeaseLost("this is a process that the handler has forked: ask in the handler's own")
        with self._changed:
            if self._closing:
                raise ShuttingDown("this worker ends")
            number = next(self._numbers)
            request = make(number, identity)
            self._requests[number] = request
            self._fresh.append(request)
            self._look_s = 0.0
            if self._thread is None:
                self._bell = os.pipe()
                os.set_blocking(self._bell[1], False)
                self._thread = threading.Thread(target=self._run, name="awa-pool-callbacks", daemon=True)
                self._thread.start()
        self._ring()
        return request

    def end(self, request: Request, problem: AwaError) -> bool:
        """Let a request end with an error; False if it has its outcome already."""
        with self._changed:
            return self._conclude(request, problem)

    def forget(self, request: Request) -> None:
        """Nobody waits for that answer any more."""
        with self._changed:
            known = self._requests.pop(request.number, None) is not None
            if request in self._fresh:  # not even sent
                self._fresh.remove(request)
                return
            farewell = None if isinstance(request.outcome, request.expects) else request.farewell()
            if not known or farewell is None:
                return
            self._farewells.append(farewell)
        self._ring()

    def say_again(self) -> None:
        """The finalizer is a new one: it knows nothing of what was asked."""
        with self._changed:
            self._due.clear()
            for request in self._requests.values():
                request.due_s, request.wait_s = 0.0, RESEND_S
                heappush(self._due, (0.0, request.number))
        self._ring()

    def stopping(self, drain_s: float = 0.0, *, at_once: bool = False) -> None:
        """The pool stops: requests that it does not answer soon, or `at_once` all, end as ShuttingDown.

        A wait looks on for a moment, as its answer may be on its way and its handler has `drain_s` seconds to go on."""
        with self._changed:
            if self._stopping_s is None:
                self._stopping_s = monotonic()
                self._look_on_s = min(LAST_LOOK_S, drain_s / 4)
            self._cut = at_once or self._cut
            self._look_s = 0.0
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
                    if isinstance(received[1], Answer):
                        self._answered(received[1], received[2])
        finally:
            poller.remove(socket)
            socket.close()

    def _send_due(self, socket: Dealer) -> float | None:
        """Send what is new and what is due; returns the seconds until something is, None at the end."""
        now_s = monotonic()
        with self._changed:
            farewells, self._farewells = self._farewells, []
            for farewell in farewells:
                socket.send(farewell)
            fresh, self._fresh = self._fresh, []
            for request in fresh:
                self._send(socket, request, now_s)
            while self._due and self._due[0][0] <= now_s:
                due_s, number = heappop(self._due)
                again = self._requests.get(number)
                if again is not None and again.outcome is None and again.due_s == due_s:
                    self._send(socket, again, now_s)
            if self._closing or self._stopping_s is not None:
                self._end_what_is_out_of_time(now_s)
            due_s = self._due[0][0] if self._due else now_s + _NEVER_S
            if self._stopping_s is not None:
                due_s = min(due_s, self._look_s)
            return None if self._closing else max(0.0, due_s - now_s)

    def _send(self, socket: Dealer, request: Request, now_s: float) -> None:
        if now_s >= request.asked_s + request.most_s:
            self._conclude(
                request, StoreUnavailable(f"the finalizer has not answered within {request.most_s:g} s")
            )
        if request.outcome is None:
            socket.send(request.message)
            request.due_s = min(now_s + request.wait_s, max(now_s, request.asked_s + request.most_s))
            request.wait_s = min(request.wait_s * 2, RESEND_MAX_S)
            heappush(self._due, (request.due_s, request.number))

    def _end_what_is_out_of_time(self, now_s: float) -> None:
        if now_s < self._look_s and not self._closing:
            return
        self._look_s = now_s + _LOOK_S
        for request in self._requests.values():
            ends_s = now_s if self._stopping_s is None else request.ends_s(self._stopping_s, self._look_on_s)
            if self._closing or self._cut or now_s >= ends_s:
                self._conclude(request, ShuttingDown(request.cut_short))
            else:
                self._look_s = min(self._look_s, ends_s)

    def _answered(self, message: Answer, payload: Sequence[bytes]) -> None:
        with self._changed:
            request = self._requests.get(message.request)
            if request is not None and isinstance(message, request.expects):
                request.payload = payload
                self._conclude(request, message)

    @staticmethod
    def _conclude(request: Request, outcome: Message | AwaError) -> bool:
        if request.outcome is not None:
            return False
        request.outcome = outcome
        request.wake()
        return True


class _Bell:
    """The end of a pipe that the thread listens to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor
