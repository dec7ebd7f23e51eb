"""The core's flushes as calls on two database threads, and their answers as events."""

from __future__ import annotations

import time
from typing import Any

import orjson

from awa_pool.errors import SchemaMismatch, StoreConflict, StoreError, StoreUnavailable
from awa_pool.store.store import Store
from awa_pool.store.threads import StoreAnswered, StoreBack, StoreFailed, StoreLost, StoreThread

from .events import (
    Command,
    Complete,
    Completed,
    Event,
    Finish,
    Finished,
    LookedUp,
    LookUp,
    StoreIsBack,
    StoreSaysNo,
    Trouble,
)
from .events import (
    StoreLost as Lost,
)

BUSY_STATES = ("55P03", "57014")
"""A lock was not to be had in time, or the whole call: nothing is wrong with what was to be written."""
RIGHTS_GONE = "42501"


class Database:
    """A connection for completions and one for all other outcomes, so that neither waits for the other."""

    def __init__(self, completing: StoreThread, finishing: StoreThread, runtime_id: str) -> None:
        self._completing = completing
        self._finishing = finishing
        self._runtime_id = runtime_id

    def ask(self, command: Command) -> None:
        """Queue a call; its answer comes through the mailbox."""

        def call(store: Store) -> tuple[Any, float]:
            began_s = time.monotonic()
            return self._call(store, command), time.monotonic() - began_s

        thread = self._completing if isinstance(command, Complete) else self._finishing
        thread.submit(call, command)

    def _call(self, store: Store, command: Command) -> Any:
        match command:
            case Complete(slots, receipts, nonces, masks):
                return store.complete(slots, receipts, nonces, masks)
            case Finish(items):
                return store.finish(orjson.dumps(items))
            case LookUp():
                return store.open_attempts(self._runtime_id)
        raise TypeError(f"{type(command).__name__} is no call to the database")

    @staticmethod
    def event(answer: Any) -> Event | None:
        """Translate what lay in the mailbox."""
        match answer:
            case StoreAnswered(Complete(), (rows, took_s)):
                return Completed(rows, took_s)
            case StoreAnswered(Finish(), (rows, took_s)):
                return Finished(rows, took_s)
            case StoreAnswered(LookUp(), (rows, _)):
                return LookedUp(rows)
            case StoreFailed(LookUp(), _):
                return LookedUp(None)
            case StoreFailed(token, error):
                what = "complete" if isinstance(token, Complete) else "finish"
                return StoreSaysNo(what, trouble_of(error), str(error), getattr(error, "sqlstate", None))
            case StoreLost(_, error):
                return Lost(str(error))
            case StoreBack():
                return StoreIsBack()
        return None


def trouble_of(error: Exception) -> Trouble:
    """What kind of failure this is; a schema that is not ours, or that is closed to us, is as good as no database:
    results wait."""
    if isinstance(error, StoreUnavailable | SchemaMismatch):
        return Trouble.AWAY
    if isinstance(error, StoreConflict):
        return Trouble.LOCKED if error.sqlstate in BUSY_STATES else Trouble.CONFLICT
    if isinstance(error, StoreError) and error.sqlstate == RIGHTS_GONE:
        return Trouble.AWAY
    return Trouble.REFUSED
