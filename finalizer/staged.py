"""The road of attempts that end with follow-ups: a transaction each, several at once.

A lane is a connection. It is given up to `MOST_ENDS` at a time, in one trip, and commits them one by one. All ends of a
receipt go by one lane, so that no two of them meet at its row. An end whose key another session holds is put off at
once; it comes again with patience, on the first half of the lanes only, so that the others never all wait for a key.
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

LANES = 4
MOST_ENDS = 16


@dataclass(slots=True, eq=False)
class StagedEnd:
    """An attempt's end and its follow-ups: sealed bytes, borrowed by each try and never emptied."""

    values: dict[str, Any]
    kind: str
    follow_ups: bytes
    result: Result | None
    tries: int = 0
    locked: bool = False
    """It has met a key that another session holds."""


@dataclass(slots=True)
class _Lane:
    waiting: deque[StagedEnd] = field(default_factory=deque)
    patient: deque[StagedEnd] = field(default_factory=deque)
    flying: list[StagedEnd] = field(default_factory=list)


class StagedRoad:
    """The ends that wait, are put off, or are under way; one call a lane at most."""

    def __init__(self, rng: random.Random, lanes: int = LANES) -> None:
        self._rng = rng
        self._lanes = [_Lane() for _ in range(lanes)]
        self._later: list[tuple[float, int, StagedEnd]] = []
        self._ticket = count()
        self.held = 0
        self.retried = self.locked = 0
        self.seconds = 0.0

    @property
    def empty(self) -> bool:
        """Nothing is left to write."""
        return self.held == 0

    def put(self, end: StagedEnd) -> None:
        """Take an end."""
        self.held += 1
        self._queue(end)

    def _queue(self, end: StagedEnd) -> None:
        number = end.values["receipt_id"]
        if end.locked:
            self._lanes[number % max(1, len(self._lanes) // 2)].patient.append(end)
        else:
            self._lanes[number % len(self._lanes)].waiting.append(end)

    def due_s(self, now_s: float) -> float | None:
        """Return when `flush` has something to do; None: only an answer matters."""
        if any((lane.waiting or lane.patient) and not lane.flying for lane in self._lanes):
            return now_s
        return self._later[0][0] if self._later else None

    def flush(self, now_s: float) -> list[FinishStaged]:
        """Start the calls that are due."""
        while self._later and self._later[0][0] <= now_s:
            self._queue(heapq.heappop(self._later)[2])
        calls: list[FinishStaged] = []
        for number, lane in enumerate(self._lanes):
            if lane.flying:
                continue
            if lane.waiting:  # first what hopes to get through at once
                lane.flying = [lane.waiting.popleft() for _ in range(min(MOST_ENDS, len(lane.waiting)))]
            elif lane.patient:
                lane.flying = [lane.patient.popleft()]
            if lane.flying:
                ends = [(end.values, end.follow_ups) for end in lane.flying]
                calls.append(FinishStaged(number, ends, patient=lane.flying[0].locked))
        return calls

    def answered(
        self, number: int, answers: Sequence[StagedRow | StagedNo], took_s: float, now_s: float
    ) -> Iterator[tuple[StagedEnd, StagedRow | StagedNo]]:
        """Yield the ends that are settled: written, stale, or refused for good; the others come again."""
        lane = self._lanes[number]
        flown, lane.flying = lane.flying, []
        self.seconds += took_s
        for at, end in enumerate(flown):
            answer = answers[at] if at < len(answers) else StagedNo(Trouble.AWAY, "no answer came")
            if isinstance(answer, StagedNo):
                if not self._comes_again(end, answer, now_s):
                    self.held -= 1
                    yield end, answer
            elif answer.status == "busy":
                self._put_off(end, REQUEUE_S / 4, now_s)
            else:
                self.held -= 1
                yield end, answer

    def _comes_again(self, end: StagedEnd, no: StagedNo, now_s: float) -> bool:
        end.tries += 1
        match finalize_with_retry(no.trouble, end.tries, self._rng.random()):
            case Again(after_s):
                self.retried += 1
                self._later_at(end, now_s + after_s)
                return True
            case Requeue(after_s):
                self.locked += 1
                end.locked = True
                self._later_at(end, now_s + after_s)
                return True
        return False

    def _put_off(self, end: StagedEnd, pause_s: float, now_s: float) -> None:
        end.tries += 1
        pause_s = min(pause_s * 2 ** min(end.tries, 10), REQUEUE_MAX_S)
        self._later_at(end, now_s + pause_s * (0.75 + self._rng.random() / 2))

    def _later_at(self, end: StagedEnd, at_s: float) -> None:
        heapq.heappush(self._later, (at_s, next(self._ticket), end))

    def figures(self) -> dict[str, Any]:
        return {"staged_held": self.held, "staged_seconds": self.seconds, "staged_locked": self.locked}


def without_follow_ups(end: StagedEnd, error: str) -> dict[str, Any]:
    """Return what is written instead when the database refused an end with its follow-ups.

    What would have completed, or been cancelled, is a failed attempt that tries again; a retry stays the retry it was;
    an end stays an end, and says why it has no follow-ups.
    """
    values = {
        name: end.values[name] for name in ("slot", "receipt_id", "nonce", "index", "job_id", "run_lease")
    }
    outcome = end.values["outcome"]
    if outcome in (Outcome.RETRY, Outcome.SNOOZE):
        return {**end.values}
    if outcome == Outcome.FAIL:
        return {**end.values, "reason": "follow_up_failed"}
    text = f"a follow-up could not be stored: {error}"
    return {**values, "outcome": Outcome.RETRY.value, "error": {"error": text, "type": "FollowUpRefused"}}
