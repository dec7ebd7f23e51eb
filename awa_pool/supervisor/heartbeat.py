"""The host's sign of life in the database, on a connection and thread that no job and no other process can hold up."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from awa_pool.errors import ConfigError, SchemaMismatch, StoreConflict

if TYPE_CHECKING:  # the driver is imported on the heart's own thread, while the children boot
    from awa_pool.store.store import Store

RETRY_S = 1.0
DEPTHS_EVERY_S = 5.0
NO_ANSWER_S = 5.0
_REGISTER, _BEAT, _DEPTHS, _BYE = "register", "beat", "depths", "goodbye"


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


News = DatabaseRefused | DatabaseAway | DatabaseBack | RuntimeGone


class Heart:
    """Registers the runtime, beats, samples queue depths while they are wanted, and says good-bye.

    `connect` makes a `Store` or raises one of errors.py; it runs on the heart's thread.
    """

    def __init__(self, connect: Callable[[], Store], *, heartbeat_s: float, info: dict[str, Any]) -> None:
        from awa_pool.store.mailbox import Mailbox
        from awa_pool.store.threads import StoreThread

        self.runtime_id = str(uuid4())
        self.up: bool | None = None  # None: not yet known
        self.reason = ""
        self.depths: list[Any] = []
        self.depths_at_s: float | None = None
        self.last_beat_s: float | None = None
        self._heartbeat_s = heartbeat_s
        self._info = orjson.dumps(info).decode()
        self._mailbox = Mailbox()
        self._thread = StoreThread(connect, self._mailbox, name="heartbeat")
        self._registered = False
        self._asked: dict[str, float] = {}  # call -> since when it is under way
        self._due_s: dict[str, float] = {}

    def fileno(self) -> int:
        """Descriptor that is readable when there is news."""
        return self._mailbox.fileno()

    def take_new_runtime(self) -> None:
        """Go on under a new id."""
        self.runtime_id = str(uuid4())
        self._registered = False
        self._due_s.pop(_REGISTER, None)

    def silence_s(self, now_s: float) -> float:
        """Return for how long the oldest question has had no answer."""
        return max((now_s - since for since in self._asked.values()), default=0.0)

    def next_due_s(self, now_s: float, *, want_depths: bool) -> float:
        """Return how long `tick` has nothing to do."""
        calls = [_BEAT if self._registered else _REGISTER] + ([_DEPTHS] if want_depths else [])
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
                    self._asked.pop(token, None)
                    news += self._back() + self._answered(token, value, now_s)
                case StoreFailed(token=token, error=error):
                    self._asked.pop(token, None)
                    self._due_s[token] = now_s + RETRY_S
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
            self._asked[call] = now_s

    def _answered(self, token: str, value: Any, now_s: float) -> list[News]:
        if token == _REGISTER:
            self._registered = True
            self.last_beat_s = now_s
            self._due_s[_BEAT] = now_s + self._heartbeat_s
        elif token == _BEAT:
            runtime, verdict = value
            self.last_beat_s = now_s
            self._due_s[_BEAT] = now_s + self._heartbeat_s
            if verdict != "alive" and runtime == self.runtime_id:
                return [RuntimeGone()]
        elif token == _DEPTHS:
            self.depths, self.depths_at_s = value, now_s
            self._due_s[_DEPTHS] = now_s + DEPTHS_EVERY_S
        return []

    def _lost(self, error: Exception) -> list[News]:
        reason = str(error)
        if isinstance(error, SchemaMismatch | ConfigError):
            return [DatabaseRefused(reason)]
        was, self.up, self.reason = self.up, False, reason
        return [DatabaseAway(reason)] if was is not False else []

    def _back(self) -> list[News]:
        was, self.up, self.reason = self.up, True, ""
        return [DatabaseBack()] if was is not True else []
