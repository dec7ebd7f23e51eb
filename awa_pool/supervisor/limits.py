"""Attempts that ran past their deadline, or go on although cancelled: which worker is ended from outside, and when. Pure.

An attempt has its grace after the deadline (its handler has been told) or after the news of its cancel. SIGTERM comes
a little before the end, so that programs which the handler started may end in order, but only where no other attempt
runs beside it: theirs have done nothing wrong. Then SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from awa_pool.outcomes import DEADLINE_EXCEEDED
from awa_pool.visible import visible

TERM_AHEAD_S = 1.0
"""SIGTERM comes so long before SIGKILL, and never before half of the grace."""
REMEMBER_S = 60.0
"""The news of a cancel are kept for so long when the page does not show the attempt; the dispatcher repeats them."""
MOST_CANCELS = 1000
CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a page names an attempt by."""

    receipt_id: int
    nonce: int
    index: int


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that a worker's page shows running."""

    attempt: Attempt
    job_id: int
    kind: str
    deadline_s: float  # the host's monotonic clock; 0: none
    grace_s: float
    cancel_kill: bool


@dataclass(frozen=True, slots=True)
class Overdue:
    """An attempt whose time is over, and why."""

    held: Held
    reason: str  # DEADLINE_EXCEEDED | CANCELLED

    def __str__(self) -> str:
        what = (
            "ran past its deadline and"
            if self.reason == DEADLINE_EXCEEDED
            else "was cancelled and went on for"
        )
        return f"job {self.held.job_id} ({visible(self.held.kind)}) {what} a grace of {self.held.grace_s:g} s"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is due for one worker now."""

    kill_for: tuple[Overdue, ...] = ()
    terminate_for: tuple[Attempt, ...] = ()


class Limits:
    """What was cancelled, what was warned, and the next moment at which something is due."""

    def __init__(self) -> None:
        self._cancelled: dict[str, dict[Attempt, float]] = {}
        self._warned: dict[str, dict[Attempt, str]] = {}
        self._due: dict[str, float] = {}

    def due_s(self) -> float | None:
        """Return when the next step is due, as far as was seen; None when nothing is in sight."""
        return min(self._due.values(), default=None)

    def concerns(self, incarnation: str) -> bool:
        """Say whether that worker may run something that was cancelled, or has been seen with a deadline."""
        return incarnation in self._cancelled or incarnation in self._due

    def cancelled(self, incarnation: str, attempt: Attempt, now_s: float) -> None:
        """Note that the database has cancelled an attempt; its grace begins with the first news."""
        known = self._cancelled.setdefault(incarnation, {})
        if len(known) < MOST_CANCELS:
            known.setdefault(attempt, now_s)
            self._due[incarnation] = now_s

    def warned(self, incarnation: str) -> list[list[Any]]:
        """Return what SIGTERM was sent for, as `WorkerGone.charged` has it: a handler may have made it deadly."""
        return [
            [attempt.receipt_id, 1 << attempt.index, reason]
            for attempt, reason in self._warned.get(incarnation, {}).items()
        ]

    def forget(self, incarnation: str) -> None:
        """That worker is gone."""
        for kept in (self._cancelled, self._warned, self._due):
            kept.pop(incarnation, None)

    def seen(self, incarnation: str, held: Iterable[Held], *, alone: bool, now_s: float) -> Verdict:
        """Judge all that a page shows running; `alone`: it shows no more than one attempt."""
        shown = {each.attempt: each for each in held}
        self._tidy(incarnation, shown, now_s)
        warned = self._warned.get(incarnation, {})
        kill: list[Overdue] = []
        terminate: dict[Attempt, str] = {}
        due: list[float] = []
        for attempt, each in shown.items():
            end = self._end_of(incarnation, each)
            if end is None:
                continue
            kill_s, reason = end
            warn_s = kill_s - min(TERM_AHEAD_S, each.grace_s / 2)
            if kill_s <= now_s:
                kill.append(Overdue(each, reason))
            elif warn_s <= now_s and alone and attempt not in warned:
                terminate[attempt] = reason
                due.append(kill_s)
            else:
                due.append(kill_s if warn_s <= now_s else warn_s)
        if terminate:
            self._warned.setdefault(incarnation, {}).update(terminate)
        if due:
            self._due[incarnation] = min(due)
        else:
            self._due.pop(incarnation, None)
        return Verdict(tuple(kill), tuple(terminate))

    def _end_of(self, incarnation: str, held: Held) -> tuple[float, str] | None:
        ends: list[tuple[float, str]] = []
        if held.deadline_s > 0:
            ends.append((held.deadline_s + held.grace_s, DEADLINE_EXCEEDED))
        told_s = self._cancelled.get(incarnation, {}).get(held.attempt)
        if told_s is not None and held.cancel_kill:
            ends.append((told_s + held.grace_s, CANCELLED))
        return min(ends, default=None)

    def _tidy(self, incarnation: str, shown: dict[Attempt, Held], now_s: float) -> None:
        if (warned := self._warned.get(incarnation)) is not None:
            for attempt in warned.keys() - shown.keys():
                del warned[attempt]
        known = self._cancelled.get(incarnation)
        if known is not None:
            for attempt in [
                each for each, told_s in known.items() if each not in shown and told_s + REMEMBER_S < now_s
            ]:
                del known[attempt]
            if not known:
                del self._cancelled[incarnation]
