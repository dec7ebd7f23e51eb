"""The core's flushes as calls on two database threads, and their answers as events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson

from awa_pool.events import StoreIsBack, StoreLost, StoreSaysNo, reason_of, trouble_of
from awa_pool.store import statements as do
from awa_pool.store.callbacks import register_callbacks, wait_for_callbacks
from awa_pool.store.calls import Call
from awa_pool.store.leases import lease_attempts
from awa_pool.store.progress import keep_progress
from awa_pool.store.staged import EndedStaged, finish_staged
from awa_pool.store.store import Store
from awa_pool.store.threads import StoreAnswered, StoreBack, StoreFailed, StoreThread
from awa_pool.store.threads import StoreLost as ConnectionLost

from .events import (
    AttemptsLeased,
    AttemptsNotLeased,
    CallbacksNotRegistered,
    CallbacksRegistered,
    Command,
    Complete,
    Completed,
    Event,
    Finish,
    Finished,
    FinishStaged,
    KeepProgress,
    LeaseAttempts,
    LookedUp,
    LookUp,
    ProgressKept,
    ProgressNotKept,
    RegisterCallbacks,
    StagedAnswered,
    StagedNo,
    StagedRow,
    WaitForCallbacks,
    WaitsNotRead,
    WaitsRead,
)

HASTE_MS, PATIENCE_MS = 10, 200
"""How long an end with follow-ups waits for a key that another session holds: at its first try, and later."""


class Database:
    """A connection for completions and one for all other outcomes, so that neither waits for the other."""

    def __init__(
        self,
        completing: StoreThread,
        finishing: StoreThread,
        runtime_id: str,
        open_lane: Callable[[str], StoreThread],
    ) -> None:
        """`open_lane` makes a further connection, of that name: one for each lane of staged ends, at its first call."""
        self._completing = completing
        self._finishing = finishing
        self._runtime_id = runtime_id
        self._open_lane = open_lane
        self._lanes: dict[int, StoreThread] = {}

    def close(self, deadline_s: float) -> None:
        """Run what is queued while the connections last, then end: all at once, in `deadline_s` or a moment more."""
        threads = (self._completing, self._finishing, *self._lanes.values())
        for thread in threads:
            thread.take_no_more()
        until_s = time.monotonic() + deadline_s
        for thread in threads:
            thread.close(max(0.0, until_s - time.monotonic()))

    def ask(self, command: Command) -> None:
        """Queue a call; its answer comes through the mailbox."""

        def call(store: Store) -> tuple[Any, float]:
            began_s = time.monotonic()
            return store.run(call_of(command, self._runtime_id)), time.monotonic() - began_s

        self._thread_for(command).submit(call, command)

    def _thread_for(self, command: Command) -> StoreThread:
        if isinstance(command, FinishStaged):
            lane = command.lane
            if lane not in self._lanes:
                self._lanes[lane] = self._open_lane(f"staged {lane + 1}")
            return self._lanes[lane]
        return self._completing if isinstance(command, Complete) else self._finishing

    @staticmethod
    def event(answer: Any) -> Event | None:
        """Translate what lay in the mailbox."""
        match answer:
            case StoreAnswered(Complete(), (rows, took_s)):
                return Completed(rows, took_s)
            case StoreAnswered(Finish(), (rows, took_s)):
                return Finished(rows, took_s)
            case StoreAnswered(FinishStaged(lane), (ends, took_s)):
                return StagedAnswered(lane, [_staged_answer(end) for end in ends], took_s)
            case StoreFailed(FinishStaged(lane, ends), error):
                return StagedAnswered(lane, [_no(error, whole_trip=True)] * len(ends), 0.0)
            case StoreAnswered(LookUp(), (rows, _)):
                return LookedUp(rows)
            case StoreFailed(LookUp(), _):
                return LookedUp(None)
            case StoreAnswered(RegisterCallbacks(), (rows, _)):
                return CallbacksRegistered(rows)
            case StoreFailed(RegisterCallbacks(), error):
                return CallbacksNotRegistered(trouble_of(error), reason_of(error))
            case StoreAnswered(LeaseAttempts(), (rows, _)):
                return AttemptsLeased(rows)
            case StoreFailed(LeaseAttempts(), error):
                return AttemptsNotLeased(trouble_of(error), reason_of(error))
            case StoreAnswered(WaitForCallbacks(), (rows, _)):
                return WaitsRead(rows)
            case StoreFailed(WaitForCallbacks(), error):
                return WaitsNotRead(trouble_of(error), reason_of(error))
            case StoreAnswered(KeepProgress(), (written, _)):
                return ProgressKept(written)
            case StoreFailed(KeepProgress(), error):
                return ProgressNotKept(trouble_of(error), reason_of(error))
            case StoreFailed(token, error):
                what = "complete" if isinstance(token, Complete) else "finish"
                return StoreSaysNo(
                    what, trouble_of(error), reason_of(error), getattr(error, "sqlstate", None)
                )
            case ConnectionLost(_, error):
                return StoreLost(reason_of(error))
            case StoreBack():
                return StoreIsBack()
        return None


def call_of(command: Command, runtime_id: str) -> Call[Any]:
    """Return what a command asks of the database."""
    match command:
        case Complete(slots, receipts, nonces, masks):
            return do.complete(slots, receipts, nonces, masks)
        case Finish(items):
            return do.finish(orjson.dumps(items))
        case FinishStaged(_, ends, patient):
            return finish_staged(ends, PATIENCE_MS if patient else HASTE_MS)
        case LookUp():
            return do.open_attempts(runtime_id)
        case RegisterCallbacks(items):
            return register_callbacks(orjson.dumps(items))
        case LeaseAttempts(items):
            return lease_attempts(items)
        case WaitForCallbacks(items):
            return wait_for_callbacks(orjson.dumps(items))
        case KeepProgress(items):
            return keep_progress(items)
    raise TypeError(f"{type(command).__name__} is no call to the database")


def _staged_answer(end: EndedStaged | Exception) -> StagedRow | StagedNo:
    if isinstance(end, Exception):
        return _no(end)
    return StagedRow(end.status, end.state, end.inserted, end.skipped)


def _no(error: Exception, *, whole_trip: bool = False) -> StagedNo:
    sqlstate = getattr(error, "sqlstate", None)
    return StagedNo(trouble_of(error), reason_of(error), sqlstate, whole_trip)
