"""The core's questions as calls on the database thread, and its answers as events."""

from __future__ import annotations

import logging
import time
from typing import Any

from awa_pool.events import StoreIsBack, StoreLost, StoreSaysNo, reason_of, trouble_of
from awa_pool.store.listener import ListenerBack, ListenerLost
from awa_pool.store.listener import Notified as Heard
from awa_pool.store.store import Store
from awa_pool.store.threads import StoreAnswered, StoreBack, StoreFailed, StoreThread, StoreWithdrawn
from awa_pool.store.threads import StoreLost as ConnectionLost

from . import notes
from .events import (
    Claim,
    Claimed,
    ClaimWithdrawn,
    Command,
    Event,
    Hearing,
    Notified,
    OpenAttemptsRead,
    ReadOpenAttempts,
    ReadWorkLeft,
    Withdraw,
    WorkLeftRead,
)

_log = logging.getLogger("awa_pool.dispatcher")
_NAMES = {Claim: "claim", ReadOpenAttempts: "open_attempts", ReadWorkLeft: "work_left"}


class Database:
    """One claiming connection for one runtime."""

    def __init__(self, thread: StoreThread, runtime_id: str) -> None:
        self._thread = thread
        self._runtime_id = runtime_id
        self._listener_lost = False

    def ask(self, command: Command) -> None:
        """Queue a question, or take one back; the answer comes through the mailbox."""
        if isinstance(command, Withdraw):
            self._thread.withdraw(command.claim)
            return

        def call(store: Store) -> tuple[Any, float]:
            began_s = time.monotonic()
            return self._call(store, command), time.monotonic() - began_s

        self._thread.submit(call, command)

    def _call(self, store: Store, command: Command) -> Any:
        match command:
            case Claim(request, queues, limits, total, max_bytes, chunk, waiting):
                runtime = self._runtime_id
                return store.claim(queues, limits, total, max_bytes, chunk, runtime, request, waiting)
            case ReadOpenAttempts():
                return store.open_attempts(self._runtime_id)
            case ReadWorkLeft(queues):
                left = store.work_left(queues)
                known = queues if left.available or left.running else store.known_queues()
                return left, [queue for queue in queues if queue not in known]
        raise TypeError(f"{type(command).__name__} is no question to the database")

    def event(self, answer: Any) -> Event | None:
        """Translate what lay in the mailbox; None for what the core need not know."""
        match answer:
            case StoreAnswered(Claim(request), (claimed, took_s)):
                return Claimed(request, claimed.receipts, claimed.notes, took_s)
            case StoreAnswered(ReadOpenAttempts(), (rows, _)):
                return OpenAttemptsRead(rows)
            case StoreAnswered(ReadWorkLeft(), ((left, unknown), _)):
                return WorkLeftRead(left.available, left.running, left.later, unknown, left.parked)
            case StoreWithdrawn():
                return ClaimWithdrawn()
            case StoreFailed(token, error):
                return StoreSaysNo(_NAMES[type(token)], trouble_of(error), str(error))
            case ConnectionLost(_, error):
                return StoreLost(reason_of(error))
            case StoreBack():
                return StoreIsBack()
            case Heard(payload):
                return Notified(payload)
            case ListenerBack(pooled):
                if pooled:
                    _log.warning(
                        "%s a transaction pooler passes no notifications on: give a direct address with --listen-dsn",
                        notes.LISTENER_DEAF,
                        extra={"event": notes.LISTENER_DEAF},
                    )
                elif self._listener_lost:
                    _log.info(
                        "%s notifications come again",
                        notes.LISTENER_BACK,
                        extra={"event": notes.LISTENER_BACK},
                    )
                self._listener_lost = False
                return Hearing(not pooled)
            case ListenerLost(error):
                self._listener_lost = True
                _log.warning(
                    "%s jobs are found by polling until notifications come again: %s",
                    notes.LISTENER_LOST,
                    reason_of(error),
                    extra={"event": notes.LISTENER_LOST},
                )
                return Hearing(False)
        return None
