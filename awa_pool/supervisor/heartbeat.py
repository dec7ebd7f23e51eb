"""The host's sign of life in the database, on threads of its own: no job, no other process, and not even a standing
supervisor loop can hold it up."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from awa_pool.errors import ConfigError, SchemaMismatch, StoreConflict
from awa_pool.faults import reach

if TYPE_CHECKING:  # the driver is imported on the heart's own thread, while the children boot
    from awa_pool.store.store import Store

RETRY_S = 1.0
DEPTHS_EVERY_S = 5.0
NO_ANSWER_S = 5.0
RESTORED = ("AW003", "3F000", "42P01", "42883")
"""States of a database that is being restored under a pool: of another cluster (see sql/functions/check_cluster.sql), or
without a schema, a table or a function for now."""
_REGISTER, _BEAT, _DEPTHS, _KNOWN, _BYE = "register", "beat", "depths", "known queues", "goodbye"


@dataclass(frozen=True, slots=True)
class DatabaseRefused:
    """This schema or address will never do: stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseAway:
    """No connection; said once per outage."""

    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseBack:
    """There is a connection, the first or again."""


@dataclass(frozen=True, slots=True)
class RuntimeGone:
    """The database no longer knows this runtime: it was rescued."""


@dataclass(frozen=True, slots=True)
class KnownQueues:
    """The queues that have jobs, history or settings."""

    names: tuple[str, ...]


News = DatabaseRefused | DatabaseAway | DatabaseBack | RuntimeGone | KnownQueues


class Pulse:
    """What is asked when: registers the runtime, beats, samples queue depths while they are wanted. For one thread.

    `connect` makes a `Store` or raises one of errors.py; it runs on the store's thread.
    """

    def __init__(
        self, connect: Callable[[], Store], runtime_id: str, *, heartbeat_s: float, info: dict[str, Any]
    ) -> None:
        from awa_pool.store.mailbox import Mailbox
        from awa_pool.store.threads import StoreThread

        self.runtime_id = runtime_id
        self.up: bool | None = None  # None: not yet known
        self.reason = ""
        self.depths: list[Any] = []
        self.depths_at_s: float | None = None
        self.unbroken: tuple[float, float] | None = None
        """Since when beats have followed each other without a gap, and when the last of them was answered."""
        self._heartbeat_s = heartbeat_s
        self._told = info
        self._info = orjson.dumps(info).decode()
        self._mailbox = Mailbox()
        self._thread = StoreThread(connect, self._mailbox, name="heartbeat")
        self._registered = False
        self._known = False  # has been registered once
        self._want_queues = False
        self._asked: dict[str, float] = {}  # call -> since when it is under way
        self._due_s: dict[str, float] = {}

    def fileno(self) -> int:
        """Descriptor that is readable when there is news."""
        return self._mailbox.fileno()

    def take_new_runtime(self, runtime_id: str) -> None:
        """Go on under a new id."""
        self.runtime_id = runtime_id
        self._registered = False
        self._due_s.pop(_REGISTER, None)

    def tell(self, facts: dict[str, Any]) -> None:
        """Tell what is known only once the app is, such as the queues served: as soon as can be, with a beat."""
        if facts.items() <= self._told.items():
            return
        self._told = self._told | facts
        self._info = orjson.dumps(self._told).decode()
        self._due_s.pop(_BEAT, None)

    def ask_known_queues(self) -> None:
        """Ask once which queues the database knows."""
        self._want_queues = True

    def silence_s(self, now_s: float) -> float:
        """Return for how long the oldest question has had no answer."""
        return max((now_s - since for since in self._asked.values()), default=0.0)

    def next_due_s(self, now_s: float, *, want_depths: bool) -> float:
        """Return how long `tick` has nothing to do."""
        calls = [_BEAT if self._registered else _REGISTER] + ([_DEPTHS] if want_depths else [])
        calls += [_KNOWN] if self._want_queues and self._registered else []
        due = [self._due_s.get(call, now_s) for call in calls if call not in self._asked]
        return max(0.0, min(due, default=now_s + 1.0) - now_s)

    def tick(self, now_s: float, *, want_depths: bool) -> None:
        """Ask what is due; a question under way is not asked twice."""
        runtime = self.runtime_id
        if not self._registered:
            host, pid, info = socket.gethostname(), os.getpid(), self._info
            self._ask(_REGISTER, lambda store: store.register_runtime(runtime, host, pid, info), now_s)
        else:
            info = self._info
            self._ask(_BEAT, lambda store: (runtime, store.heartbeat(runtime, info)), now_s)
        if self._want_queues and self._registered:
            self._ask(_KNOWN, lambda store: store.known_queues(), now_s)
        if want_depths and self.up:
            self._ask(_DEPTHS, lambda store: store.queue_depths(), now_s)

    def take(self, now_s: float) -> list[News]:
        """Return what the thread has to say."""
        from awa_pool.store.threads import StoreAnswered, StoreBack, StoreFailed, StoreLost

        news: list[News] = []
        for event in self._mailbox.take():
            match event:
                case StoreLost(error=error):
                    news += self._lost(error)
                case StoreBack():
                    news += self._back()
                case StoreAnswered(token=token, value=value):
                    self._forget(token)
                    news += self._back() + self._answered(token, value, now_s)
                case StoreFailed(token=token, error=error):
                    self._forget(token)
                    self._due_s[token] = now_s + RETRY_S
                    if token == _KNOWN:  # a warning is not worth a quarrel
                        self._want_queues = False
                    if token in (_REGISTER, _BEAT) and not isinstance(error, StoreConflict):
                        news += self._lost(error)
        return news

    def say_goodbye(self, within_s: float) -> bool:
        """End the runtime by its own will, so that nobody waits for its silence; True when the thread ended."""
        runtime = self.runtime_id
        if self._registered and self.up:
            self._thread.submit(lambda store: store.say_goodbye(runtime), _BYE)
        closed = self._thread.close(within_s)
        self._mailbox.close()
        return closed

    def _ask(self, call: str, question: Callable[[Store], Any], now_s: float) -> None:
        if call in self._asked or now_s < self._due_s.get(call, now_s):
            return
        if self._thread.submit(question, call):
            self._asked = {**self._asked, call: now_s}  # replaced, as another thread reads it

    def _forget(self, call: str) -> None:
        self._asked = {known: since for known, since in self._asked.items() if known != call}

    def _answered(self, token: str, value: Any, now_s: float) -> list[News]:
        if token == _REGISTER:
            self._registered = self._known = True
            self._beaten(now_s)
        elif token == _BEAT:
            runtime, verdict = value
            reach("supervisor.beat")
            self._beaten(now_s)
            if verdict != "alive" and runtime == self.runtime_id:
                self.unbroken = None
                return [RuntimeGone()]
        elif token == _KNOWN:
            self._want_queues = False
            return [KnownQueues(tuple(value))]
        elif token == _DEPTHS:
            self.depths, self.depths_at_s = value, now_s
            self._due_s[_DEPTHS] = now_s + DEPTHS_EVERY_S
        return []

    def _beaten(self, now_s: float) -> None:
        since_s, last_s = self.unbroken or (now_s, now_s)
        self.unbroken = (since_s if now_s - last_s <= 3 * self._heartbeat_s else now_s, now_s)
        self._due_s[_BEAT] = now_s + self._heartbeat_s

    def _lost(self, error: Exception) -> list[News]:
        reason = str(error)
        self.unbroken = None
        if isinstance(error, SchemaMismatch | ConfigError) and not self._may_be_restored(error):
            return [DatabaseRefused(reason)]
        # Said once per outage, and again when it turns out that a person has to act.
        news = self.up is not False or (isinstance(error, SchemaMismatch) and self.reason != reason)
        self.up, self.reason = False, reason
        return [DatabaseAway(reason)] if news else []

    def _may_be_restored(self, error: Exception) -> bool:
        """A database that is restored under a pool that has worked before: a person is at it, and the pool goes on after that."""
        return self._known and getattr(error, "sqlstate", None) in RESTORED

    def _back(self) -> list[News]:
        was, self.up, self.reason = self.up, True, ""
        return [DatabaseBack()] if was is not True else []


class Heart:
    """A `Pulse` on a thread of its own, with its news in a mailbox. The driver is imported there, too."""

    def __init__(self, make: Callable[[], Pulse]) -> None:
        from awa_pool.store.mailbox import Mailbox

        self.want_depths = False
        """Whether somebody looks at queue depths."""
        self._news = Mailbox()
        self._orders = Mailbox()
        self._pulse: Pulse | None = None
        self._thread = threading.Thread(target=self._run, args=(make,), name="awa-pool heart", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Descriptor that is readable when there is news."""
        return self._news.fileno()

    def take(self) -> list[News]:
        """Return the news."""
        return self._news.take()

    @property
    def up(self) -> bool | None:
        """Whether there is a connection; None before the first try has ended."""
        return None if self._pulse is None else self._pulse.up

    @property
    def reason(self) -> str:
        """Why there is no connection."""
        return "" if self._pulse is None else self._pulse.reason

    @property
    def depths(self) -> list[Any]:
        """The newest sample of the queues."""
        return [] if self._pulse is None else self._pulse.depths

    @property
    def unbroken(self) -> tuple[float, float] | None:
        """Since when this host has been connected without a gap, and when that was last seen."""
        return None if self._pulse is None else self._pulse.unbroken

    def silence_s(self, now_s: float) -> float:
        """Return for how long the oldest question has had no answer."""
        return 0.0 if self._pulse is None else self._pulse.silence_s(now_s)

    def take_new_runtime(self, runtime_id: str) -> None:
        """Go on under a new id."""
        self._orders.put(runtime_id)

    def tell(self, facts: dict[str, Any]) -> None:
        """Tell others about the app, under names of the runtime's info: `queues`, `outcomes`."""
        self._orders.put(facts)

    def ask_known_queues(self) -> None:
        """Ask once which queues the database knows; the answer is among the news."""
        self._orders.put(_KNOWN)

    def say_goodbye(self, within_s: float) -> bool:
        """End the runtime by its own will, so that nobody waits for its silence; True when all was said in time."""
        self._orders.put(_BYE)
        self._thread.join(within_s + 1.0)
        pulse = self._pulse
        if self._thread.is_alive() or pulse is None:
            return False
        return pulse.say_goodbye(within_s)

    def _run(self, make: Callable[[], Pulse]) -> None:
        self._pulse = pulse = make()
        poll = select.poll()
        poll.register(pulse.fileno(), select.POLLIN)
        poll.register(self._orders.fileno(), select.POLLIN)
        while True:
            now_s = time.monotonic()
            pulse.tick(now_s, want_depths=self.want_depths)
            pause_s = min(1.0, pulse.next_due_s(now_s, want_depths=self.want_depths))
            poll.poll(max(1, int(pause_s * 1000)))
            for order in self._orders.take():
                if order == _BYE:
                    return
                if order == _KNOWN:
                    pulse.ask_known_queues()
                elif isinstance(order, dict):
                    pulse.tell(order)
                else:
                    pulse.take_new_runtime(order)
            for news in pulse.take(time.monotonic()):
                self._news.put(news)
