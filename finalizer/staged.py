"""The road of attempts that end with follow-ups: a transaction each, many a trip, several trips at once.

A lane is a connection. It is given up to `MOST_ENDS` at a time, in one trip, and commits them one by one. What comes gathers
for the next trip; a further lane is opened only for a full one, so a pool that stages little keeps to the first. While
ends of a receipt are under way, all others of it wait, so that no two trips meet at its row. An end whose key another session
holds is put off at once; it comes again with patience and alone, on half of the lanes at most, so that never all wait.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from awa_pool.events import Trouble
from awa_pool.states import Outcome

from .events import FinishStaged, StagedNo, StagedRow
from .flush import Result
from .retry import REQUEUE_MAX_S, REQUEUE_S, Again, Requeue, finalize_with_retry

FOLLOW_UP_FAILED = "follow_up_failed"
LANES = 4
MOST_ENDS = 32
"""Ends of a trip. They share one wait for the disk: one by one, a job cost twice the CPU in PostgreSQL."""
LINGER_S = 0.02
"""The longest gathering for the first lane: a trip costs about 0.5 ms of CPU, whatever it carries."""
CROWDED_S = 0.03
"""So long a few wait for a trip under way to land; then they get a lane of their own."""


@dataclass(slots=True, eq=False)
class StagedEnd:
    """An attempt's end and its follow-ups: sealed bytes, borrowed by each try and never emptied."""

    values: dict[str, Any]
    kind: str
    follow_ups: bytes
    result: Result | None
    tries: int = 0
    waits: int = 0
    """How often somebody else's lock was in the way, which is no failure."""
    locked: bool = False
    """It has met a key that another session holds."""
    alone: bool = False
    """It travels alone: it is locked, or one of a trip that was refused as a whole."""
    since_s: float = 0.0


@dataclass(slots=True)
class _Trip:
    ends: list[StagedEnd]
    patient: bool
    receipts: set[int] = field(default_factory=set)


class StagedRoad:
    """The ends that wait, are put off, or are under way; one trip a lane at most."""

    def __init__(self, rng: random.Random, lanes: int = LANES) -> None:
        self._rng = rng
        self._trips: list[_Trip | None] = [None] * lanes
        self._fresh: dict[int, deque[StagedEnd]] = {}  # by receipt, in the order in which they came
        self._fresh_ends = 0
        self._alone: deque[StagedEnd] = deque()
        self._under_way: set[int] = set()
        self._later: list[tuple[float, int, StagedEnd]] = []
        self._ticket = count()
        self.held = 0
        self.trips = self.retried = self.locked = 0
        self.seconds = 0.0

    @property
    def empty(self) -> bool:
        """Nothing is left to write."""
        return self.held == 0

    def put(self, end: StagedEnd, now_s: float) -> None:
        """Take an end."""
        self.held += 1
        self._queue(end, now_s)

    def _queue(self, end: StagedEnd, now_s: float) -> None:
        end.since_s = now_s
        if end.alone:
            self._alone.append(end)
        else:
            self._fresh.setdefault(end.values["receipt_id"], deque()).append(end)
            self._fresh_ends += 1

    def due_s(self, now_s: float, linger_s: float) -> float | None:
        """Return when `flush` has something to do; None: only an answer matters."""
        due = [] if None not in self._trips else [*self._fresh_due_s(linger_s), *self._alone_due_s(now_s)]
        if self._later:
            due.append(self._later[0][0])
        return min(due, default=None)

    def _fresh_due_s(self, linger_s: float) -> Iterator[float]:
        free = (ends[0].since_s for key, ends in self._fresh.items() if key not in self._under_way)
        oldest_s = next(free, None)
        if oldest_s is None:
            return
        if self._fresh_ends >= MOST_ENDS:
            yield oldest_s
        elif any(trip is not None and not trip.patient for trip in self._trips):
            yield oldest_s + CROWDED_S
        else:
            yield oldest_s + min(linger_s, LINGER_S)

    def _alone_due_s(self, now_s: float) -> Iterator[float]:
        waiting = sum(trip is not None and trip.patient for trip in self._trips)
        if waiting < max(1, len(self._trips) // 2) and any(
            end.values["receipt_id"] not in self._under_way for end in self._alone
        ):
            yield now_s

    def flush(self, now_s: float, linger_s: float) -> list[FinishStaged]:
        """Start the trips that are due."""
        while self._later and self._later[0][0] <= now_s:
            self._queue(heapq.heappop(self._later)[2], now_s)
        calls: list[FinishStaged] = []
        while None in self._trips:
            if any(
                due_s <= now_s for due_s in self._fresh_due_s(linger_s)
            ):  # what hopes to get through at once
                ends = self._next_ends()
            elif any(self._alone_due_s(now_s)):
                ends = [self._next_alone()]
            else:
                break
            calls.append(self._start(ends))
        return calls

    def _start(self, ends: list[StagedEnd]) -> FinishStaged:
        number = self._trips.index(None)
        trip = _Trip(ends, ends[0].alone, {end.values["receipt_id"] for end in ends})
        self._trips[number] = trip
        self._under_way |= trip.receipts
        self.trips += 1
        return FinishStaged(number, [(end.values, end.follow_ups) for end in ends], patient=ends[0].locked)

    def _next_ends(self) -> list[StagedEnd]:
        ends: list[StagedEnd] = []
        for key in [key for key in self._fresh if key not in self._under_way]:
            waiting = self._fresh[key]
            while waiting and len(ends) < MOST_ENDS:
                ends.append(waiting.popleft())
            if not waiting:
                del self._fresh[key]
            if len(ends) == MOST_ENDS:
                break
        self._fresh_ends -= len(ends)
        return ends

    def _next_alone(self) -> StagedEnd:
        end = next(end for end in self._alone if end.values["receipt_id"] not in self._under_way)
        self._alone.remove(end)
        return end

    def answered(
        self, number: int, answers: Sequence[StagedRow | StagedNo], took_s: float, now_s: float
    ) -> Iterator[tuple[StagedEnd, StagedRow | StagedNo]]:
        """Yield the ends that are settled: written, stale, or refused for good; the others come again."""
        trip, self._trips[number] = self._trips[number], None
        if trip is None:
            return
        self._under_way -= trip.receipts
        self.seconds += took_s
        for at, end in enumerate(trip.ends):
            answer = answers[at] if at < len(answers) else StagedNo(Trouble.AWAY, "no answer came")
            if isinstance(answer, StagedNo):
                if not self._comes_again(end, answer, len(trip.ends), now_s):
                    self.held -= 1
                    yield end, answer
            elif answer.status == "busy":
                self._put_off(end, REQUEUE_S / 4, now_s)
            else:
                self.held -= 1
                yield end, answer

    def _comes_again(self, end: StagedEnd, no: StagedNo, beside: int, now_s: float) -> bool:
        if no.trouble is Trouble.LOCKED:
            end.waits += 1
        else:
            end.tries += 1
        counted = end.waits if no.trouble is Trouble.LOCKED else end.tries
        match finalize_with_retry(no.trouble, counted, self._rng.random()):
            case Again(after_s):
                self.retried += 1
                self._later_at(end, now_s + after_s)
                return True
            case Requeue(after_s):
                self.locked += 1
                end.locked = end.alone = True
                self._later_at(end, now_s + after_s)
                return True
        if no.whole_trip and beside > 1:  # whose fault it was shows when each goes alone
            end.alone = True
            self._queue(end, now_s)
            return True
        return False

    def _put_off(self, end: StagedEnd, pause_s: float, now_s: float) -> None:
        end.waits += 1
        pause_s = min(pause_s * 2 ** min(end.waits, 10), REQUEUE_MAX_S)
        self._later_at(end, now_s + pause_s * (0.75 + self._rng.random() / 2))

    def _later_at(self, end: StagedEnd, at_s: float) -> None:
        heapq.heappush(self._later, (at_s, next(self._ticket), end))

    def figures(self) -> dict[str, Any]:
        return {
            "staged_held": self.held,
            "staged_trips": self.trips,
            "staged_seconds": self.seconds,
            "staged_locked": self.locked,
        }


def not_parked(end: StagedEnd) -> dict[str, Any]:
    """Return what is written instead where the callback is not the attempt's newest: a failed attempt that tries again."""
    text = "the handler returned to wait for a callback that is not the newest of its attempt"
    return {
        **_attempt_of(end),
        "outcome": Outcome.RETRY.value,
        "error": {"error": text, "type": "CallbackNotFound"},
    }


def _attempt_of(end: StagedEnd) -> dict[str, Any]:
    kept = ("slot", "receipt_id", "nonce", "index", "job_id", "run_lease", "progress", "owned")
    return {name: end.values[name] for name in kept if name in end.values}


def without_follow_ups(end: StagedEnd, error: str) -> dict[str, Any]:
    """Return what is written instead when the database refused an end with its follow-ups.

    What would have completed, parked or been cancelled is a failed attempt that tries again; a retry stays the retry it was;
    an end stays an end, and says why it has no follow-ups.
    """
    if end.values["outcome"] in (Outcome.RETRY, Outcome.SNOOZE, Outcome.FAIL):
        return {**end.values, "reason": FOLLOW_UP_FAILED}  # kept only where this ends the job
    what = "the outcome" if end.follow_ups == b"[]" else "a follow-up"
    text = f"{what} could not be stored: {error}"
    return {
        **_attempt_of(end),
        "outcome": Outcome.RETRY.value,
        "error": {"error": text, "type": "FollowUpRefused"},
        "reason": FOLLOW_UP_FAILED,
    }
