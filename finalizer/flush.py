"""Results on their way into the database: grouping into calls, and what the answers mean.

Two streams, each with at most one call under way while the next gathers: completions with nothing to record, by
receipt, and all other outcomes, by attempt. A unit leaves a stream when the database has it (or had it before).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from awa_pool.outcomes import DEADLINE_EXCEEDED
from awa_pool.states import Outcome

from .events import Complete, Finish

ERROR_CHARS = 500
"""So much of what the database says goes into an attempt's error."""


@dataclass(slots=True, eq=False)
class Result:
    """One `AttemptsEnded`: acknowledged when nothing of it is left."""

    peer: bytes
    seq: int
    jobs: int
    size_bytes: int
    left: int = 0
    receipt_id: int = 0
    stale: int = 0
    """Attempts whose end is not what the message says."""


@dataclass(slots=True, eq=False)
class Part:
    """Completed attempts of one receipt out of one message: `kinds` says which are whose."""

    slot: int
    receipt_id: int
    nonce: int
    mask: int
    kinds: list[tuple[str, int]]
    result: Result | None
    urgent: bool = False
    tries: int = 0

    @property
    def jobs(self) -> int:
        return self.mask.bit_count()


@dataclass(slots=True, eq=False)
class Item:
    """One attempt that ended in another way; `values` goes to the database as it stands."""

    values: dict[str, Any]
    kind: str
    result: Result | None
    urgent: bool = False
    attempt: int = 0  # and the most of its job: zeros where nobody knows
    max_attempts: int = 0
    replaced: bool = False
    """It stands in for an outcome that the database refused."""
    untold: bool = False
    """It is a failure that no worker has told."""
    tries: int = 0

    @property
    def jobs(self) -> int:
        return 1

    @property
    def to_be_told(self) -> bool:
        """People hear of it from nobody else."""
        return self.untold or self.replaced or self.values["outcome"] == Outcome.LOST

    @property
    def overran(self) -> bool:
        """The attempt ended because its deadline had passed."""
        error = self.values.get("error")
        return isinstance(error, dict) and error.get("reason") == DEADLINE_EXCEEDED

    @property
    def owned(self) -> bool:
        """Its handler may have completed it in a transaction of its own."""
        return self.values.get("owned") is True

    def completed_itself(self, state: str | None) -> bool:
        """Say of a stale one whether its handler has completed it."""
        return self.owned and state == "completed"

    def is_so(self, status: str, state: str | None) -> bool:
        """Say whether what came to be is what its worker has told hooks to expect: of a handler's own completion, that."""
        outcome = self.values["outcome"]
        if self.owned and outcome == Outcome.LOST:
            return status != "done" and self.completed_itself(state)
        return status == "done" and (state == "cancelled") == (outcome == Outcome.CANCEL)

    @property
    def key(self) -> tuple[int, int, int]:
        """Receipt, nonce and index: the attempt."""
        return self.values["receipt_id"], self.values["nonce"], self.values["index"]


U = TypeVar("U", Part, Item)


@dataclass(slots=True)
class Batch(Generic[U]):
    """Units that go in one call."""

    units: list[U]
    tries: int = 0


@dataclass(slots=True)
class Stream(Generic[U]):
    """The units of one road: waiting, put off, to be sent again as they are, or under way."""

    most_jobs: int
    waiting: deque[U] = field(default_factory=deque)
    waiting_jobs: int = 0
    since_s: float | None = None
    urgent: bool = False
    again: deque[Batch[U]] = field(default_factory=deque)
    hold_until_s: float = 0.0
    flying: Batch[U] | None = None
    _later: list[tuple[float, int, U]] = field(default_factory=list)
    _ticket: count[int] = field(default_factory=count)

    def put(self, unit: U, now_s: float) -> None:
        if self.since_s is None:
            self.since_s = now_s
        self.urgent = self.urgent or unit.urgent
        self.waiting.append(unit)
        self.waiting_jobs += unit.jobs

    def put_off(self, unit: U, until_s: float) -> None:
        heapq.heappush(self._later, (until_s, next(self._ticket), unit))

    def due_s(self, linger_s: float, full_jobs: int) -> float | None:
        """When the next call may start; None if nothing is there or one is under way."""
        if self.flying is not None:
            return None
        due = [self._later[0][0]] if self._later else []
        if self.again:
            due.append(self.hold_until_s)
        elif self.since_s is not None:
            at_once = self.urgent or self.waiting_jobs >= full_jobs
            due.append(max(self.hold_until_s, self.since_s if at_once else self.since_s + linger_s))
        return min(due, default=None)

    def next_batch(self, now_s: float, linger_s: float, full_jobs: int) -> Batch[U] | None:
        """Take what is to be sent now."""
        while self._later and self._later[0][0] <= now_s:
            self.put(heapq.heappop(self._later)[2], now_s)
            self.urgent = True
        due_s = self.due_s(linger_s, full_jobs)
        if due_s is None or due_s > now_s or now_s < self.hold_until_s or not (self.again or self.waiting):
            return None
        self.flying = self.again.popleft() if self.again else self._gather(now_s)
        return self.flying

    def _gather(self, now_s: float) -> Batch[U]:
        units: list[U] = []
        jobs = 0
        while self.waiting and (not units or jobs + self.waiting[0].jobs <= self.most_jobs):
            unit = self.waiting.popleft()
            jobs += unit.jobs
            units.append(unit)
        self.waiting_jobs -= jobs
        self.since_s = now_s if self.waiting else None
        self.urgent = self.urgent and bool(self.waiting)
        return Batch(units)

    def landed(self) -> list[U]:
        """The call under way was answered: its units."""
        batch, self.flying = self.flying, None
        return batch.units if batch is not None else []

    def failed(self) -> Batch[U]:
        """The call under way failed: its batch, one try more on its account."""
        batch, self.flying = self.flying, None
        if batch is None:
            return Batch([])
        batch.tries += 1
        return batch

    def send_again(self, batch: Batch[U], not_before_s: float) -> None:
        self.again.appendleft(batch)
        self.hold_until_s = not_before_s

    def split(self, batch: Batch[U]) -> None:
        """Send the two halves of a batch one after the other, each with retries of its own."""
        half = len(batch.units) // 2
        self.again.appendleft(Batch(batch.units[half:]))
        self.again.appendleft(Batch(batch.units[:half]))

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.again or self._later) and self.flying is None


def complete_call(parts: Iterable[Part]) -> Complete:
    """One row per receipt, however many messages spoke of it."""
    masks: dict[tuple[int, int, int], int] = {}
    for part in parts:
        key = (part.slot, part.receipt_id, part.nonce)
        masks[key] = masks.get(key, 0) | part.mask
    slots, receipts, nonces = ([key[place] for key in masks] for place in range(3))
    return Complete(slots, receipts, nonces, list(masks.values()))


def finish_call(items: Iterable[Item]) -> Finish:
    """The items as the database takes them."""
    return Finish([item.values for item in items])
