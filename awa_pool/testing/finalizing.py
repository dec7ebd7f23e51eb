"""An attempt's end written by the finalizer's own core: its roads, guards, retries and refusals, without its process."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from awa_pool.errors import StoreError, StoreUnavailable
from awa_pool.events import Tick
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.database import Database, call_of
from awa_pool.finalizer.events import (
    Command,
    Complete,
    Completed,
    Event,
    Finish,
    Finished,
    FinishStaged,
    Heard,
    LookUp,
    Send,
    Settings,
    StagedAnswered,
    StagedNo,
)
from awa_pool.messages import AttemptsEnded, ResultsCommitted
from awa_pool.store.threads import StoreAnswered, StoreFailed

from .results import STALE
from .steps import Pause, Steps

PATIENCE_S = 30.0
_LONGEST_NAP_S = 0.05


@dataclass(slots=True)
class Written:
    """What the database says of an attempt's end; `values` is what was written in the end, None for a plain completion."""

    status: str = STALE
    state: str | None = None
    values: dict[str, Any] | None = None
    follow_ups: bool = False
    skipped: tuple[tuple[str, int], ...] = ()
    word: ResultsCommitted | None = None
    """What the worker would hear."""

    def note(self, command: Command, event: Event | None) -> None:
        """Take an answer; the last one counts."""
        match command, event:
            case Complete(), Completed([row, *_]) if not row.busy:
                self.status, self.state = ("done", "completed") if row.done else (STALE, None)
            case Finish([values, *_]), Finished([row, *_]):
                self.status, self.state, self.values = row.status, row.state, values
            case FinishStaged(_, [(values, _), *_]), StagedAnswered(_, [answer, *_]) if not isinstance(
                answer, StagedNo
            ):
                self.status, self.state, self.values = answer.status, answer.state, values
                self.follow_ups = answer.status == "done"
                self.skipped = tuple((kind, holder) for kind, holder in answer.skipped)
            case _:
                return


def finish(message: AttemptsEnded, payload: tuple[bytes, ...], runtime_id: str) -> Steps[Written]:
    """Write one attempt's end as the finalizer would. Errors: StoreUnavailable when the database is away."""
    core = Finalizer(Settings(incarnation=message.incarnation))
    events: deque[Event] = deque([Heard(b"test", message, payload)])
    written = Written()
    until_s = time.monotonic() + PATIENCE_S
    while True:
        event = events.popleft() if events else Tick()
        for command in core.step(event, time.monotonic()):
            match command:
                case Complete() | Finish() | FinishStaged() | LookUp():
                    answer = yield from _ask(command, runtime_id)
                    written.note(command, answer)
                    if answer is not None:
                        events.append(answer)
                case Send(_, ResultsCommitted() as word):
                    written.word = word
        if written.word is not None:
            return written
        now_s = time.monotonic()
        if now_s > until_s:
            raise StoreUnavailable(f"the attempt's end could not be written within {PATIENCE_S:.0f} s")
        due_s = core.next_tick_s()
        if not events and (due_s is None or due_s > now_s):
            yield Pause(_LONGEST_NAP_S if due_s is None else min(due_s - now_s, _LONGEST_NAP_S))


def _ask(command: Command, runtime_id: str) -> Steps[Event | None]:
    try:
        rows = yield call_of(command, runtime_id)
    except StoreError as problem:
        return Database.event(StoreFailed(command, problem))
    return Database.event(StoreAnswered(command, (rows, 0.0)))
