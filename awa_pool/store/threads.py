"""A thread with a connection of its own, so that an actor's loop never waits for the database.

Calls go in by `submit`, answers come back as events in a `Mailbox`. The thread reconnects by itself; calls wait
meanwhile. A call that was under way when the connection broke fails with StoreUnavailable: it may or may not have
committed.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from awa_pool.errors import AwaError, SchemaMismatch, StoreUnavailable

from .mailbox import Mailbox
from .store import Store

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
CALLS_WAITING = 256
RESTED_S = 1.0
"""After so long without a call the next one first looks whether its connection is still there."""


class StoreAnswered(NamedTuple):
    """A submitted call has returned `value`."""

    token: Any
    value: Any


class StoreFailed(NamedTuple):
    """A submitted call has failed; `error` is one of errors.py (or what the call itself raised)."""

    token: Any
    error: Exception


class StoreWithdrawn(NamedTuple):
    """A submitted call was taken back before it began."""

    token: Any


class StoreLost(NamedTuple):
    """The thread `name` has no connection, first try or lost: said once until it is back."""

    name: str
    error: AwaError


class StoreBack(NamedTuple):
    """The thread `name` has a connection, the first or again."""

    name: str


class Pauses:
    """Growing pauses between tries, with jitter: 50 ms doubling to 5 s."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._next_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s = self._next_s * (0.5 + self._rng.random() / 2)
        self._next_s = min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        self._next_s = FIRST_PAUSE_S


class StoreThread:
    """Runs calls one after another on a connection made by `connect`; answers lie in `mailbox`.

    `connect` returns a new Store or raises one of errors.py. Starts at once.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        mailbox: Mailbox,
        *,
        name: str = "store",
        waiting: int = CALLS_WAITING,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._connect = connect
        self._mailbox = mailbox
        self._limit = waiting
        self._pauses = Pauses(rng)
        self._changed = threading.Condition()
        self._calls: deque[tuple[Callable[[Store], Any], Any]] = deque()
        self._closing = False
        self._lost_said = False
        self._proven = True
        """A call has succeeded on this connection; one on which none did is followed by a pause."""
        self._running = False
        self._store: Store | None = None
        self._used_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"awa-pool {name}", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Calls that wait or run."""
        return len(self._calls) + self._running

    def submit(self, call: Callable[[Store], Any], token: Any) -> bool:
        """Queue a call; its answer is an event with this token. False when the bound is reached or it is closing."""
        with self._changed:
            if self._closing or len(self._calls) >= self._limit:
                return False
            self._calls.append((call, token))
            self._changed.notify()
            return True

    def withdraw(self, token: Any) -> None:
        """Take back the queued call with this token, if it has not begun: `StoreWithdrawn` comes instead of an answer."""
        with self._changed:
            for item in self._calls:
                if item[1] is token:
                    self._calls.remove(item)
                    self._mailbox.put(StoreWithdrawn(token))
                    return

    def take_no_more(self) -> None:
        """Begin to close: run what is queued while the connection lasts, then end. Returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self, deadline_s: float = 5.0) -> bool:
        """Run what is queued while the connection lasts, then end; True when it ended within `deadline_s`.

        At the deadline a running statement is cancelled on the server and the connection closed under it.
        """
        self.take_no_more()
        self._thread.join(deadline_s)
        if self._thread.is_alive() and (store := self._store) is not None:
            with contextlib.suppress(Exception):
                store.conn.cancel_safe(timeout=1.0)
            self._thread.join(1.0)
        return not self._thread.is_alive()

    # --- in the thread

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                self._serve(*item)
        finally:
            self._drop()
            for _, token in self._calls:
                self._mailbox.put(StoreFailed(token, StoreUnavailable("closed while the database was away")))

    def _next(self) -> tuple[Callable[[Store], Any], Any] | None:
        """Return the next call once there is a connection to run it on; None to end."""
        while True:
            if self._store is None:
                if not self._proven:
                    self._pause()
                if not self._reconnect():
                    return None
            with self._changed:
                while not self._calls and not self._closing:
                    self._changed.wait()
                if not self._calls:
                    return None
                if self._ended_at_rest():
                    # Nothing was under way: an outage only for those who cannot have another connection at once.
                    self._drop()
                if self._store is not None:
                    self._running = True
                    return self._calls.popleft()

    def _reconnect(self) -> bool:
        """Try until there is a connection; False when closing."""
        while True:
            with self._changed:
                if self._closing:
                    return False
            try:
                self._store = self._connect()
            except AwaError as problem:
                self._say_lost(problem)
                if isinstance(problem, SchemaMismatch):
                    self._fail_waiting(problem)
                self._pause()
                continue
            self._proven = False
            self._lost_said = False
            self._used_s = time.monotonic()
            self._mailbox.put(StoreBack(self.name))
            return True

    def _pause(self) -> None:
        until = time.monotonic() + self._pauses.next_s()
        with self._changed:
            while not self._closing and (left_s := until - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def _serve(self, call: Callable[[Store], Any], token: Any) -> None:
        store = self._store
        assert store is not None
        event: StoreAnswered | StoreFailed
        try:
            event = StoreAnswered(token, call(store))
            if not self._proven:
                self._proven = True
                self._pauses.reset()
        except Exception as problem:  # noqa: BLE001 (whatever it was, it belongs to that call)
            event = StoreFailed(token, problem)
            if isinstance(problem, StoreUnavailable | SchemaMismatch) or not store.usable:
                self._drop()
                if isinstance(problem, AwaError):
                    self._say_lost(problem)
        self._running = False
        self._used_s = time.monotonic()
        self._mailbox.put(event)

    def _ended_at_rest(self) -> bool:
        rested = time.monotonic() - self._used_s >= RESTED_S
        return rested and self._store is not None and self._store.ended_at_rest()

    def _say_lost(self, problem: AwaError) -> None:
        if not self._lost_said:
            self._lost_said = True
            self._mailbox.put(StoreLost(self.name, problem))

    def _fail_waiting(self, problem: AwaError) -> None:
        with self._changed:
            calls, self._calls = list(self._calls), deque()
        for _, token in calls:
            self._mailbox.put(StoreFailed(token, problem))

    def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):
                store.close()
