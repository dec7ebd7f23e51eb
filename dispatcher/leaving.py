"""The way out: claim nothing more, give back what has not started, let the rest run for its time, and leave.

What is not closed by then waits for the finalizer's word a little longer, but for a database that is away only as long
as the pool has to drain: nothing can end without it.
"""

from __future__ import annotations

import logging

from awa_pool.states import Outcome

from . import notes
from .audit import Audit
from .claims import Claiming
from .departures import Departures
from .desk import Desk

FAREWELL_S = 8.0
"""After the drain time: how long to wait for the finalizer to confirm what was given back; so long that one which is
frozen has been noticed and replaced."""
HASTE_S = 2.0
"""The same once everything is to end at once."""


class Leaving:
    """Whether the dispatcher leaves, and when."""

    def __init__(self, desk: Desk, claiming: Claiming, departures: Departures, audit: Audit) -> None:
        self._desk = desk
        self._claiming = claiming
        self._departures = departures
        self._audit = audit
        self._cut_s: float | None = None
        self._leave_s: float | None = None
        self._away_s = 0.0
        self._at_once = False
        self.cut = False
        """The time to drain is over: what had not ended was given back."""

    def due_s(self) -> float | None:
        """When to call `check` again; None if only an event can matter."""
        if self._cut_s is None or self._leave_s is None:
            return None
        due = [self._leave_s]
        if not self.cut and (self._audit.recovered or self._desk.now_s < self._cut_s):
            due.append(self._cut_s)
        if not self._claiming.store_up and (away_s := max(self._away_s, self._cut_s)) > self._desk.now_s:
            due.append(away_s)
        return min(due)

    def stop(self, drain_s: float, away_s: float) -> None:
        """Claim nothing more, give back what has not started, let the rest run for `drain_s`.

        While the database is away, leave after `away_s` at the latest.
        """
        desk = self._desk
        self._claiming.stop()
        self._away_s = desk.now_s + away_s
        cut_s = desk.now_s + drain_s
        if self._cut_s is not None and (self.cut or self._cut_s <= cut_s):
            return
        first = self._cut_s is None
        self._cut_s, self._leave_s = cut_s, cut_s + FAREWELL_S
        if first:
            desk.give_back_stock()
            for lane in desk.lanes:
                if lane.jobs:
                    desk.recall(lane)
            desk.note(weight(desk.books.jobs), notes.DRAINING, jobs=desk.books.jobs, drain_s=round(away_s, 1))
        self.check()

    def stop_now(self) -> None:
        """Give everything back and leave."""
        self._at_once = True
        self.stop(0.0, 0.0)
        if self._leave_s is not None:
            self._leave_s = min(self._leave_s, self._desk.now_s + HASTE_S)

    def check(self) -> None:
        """Cut what still runs when its time is over; before the books are known they cannot tell what that is."""
        due = self._cut_s is not None and self._desk.now_s >= self._cut_s
        if due and not self.cut and self._audit.recovered:
            self._cut()

    def _cut(self) -> None:
        """The drain is over: what has not ended is given back, without an attempt used."""
        desk = self._desk
        self.cut = True
        self._departures.check(at_once=True)
        reason = "the pool ends at once" if self._at_once else "the drain time is over"
        jobs = 0
        ids: list[int] = []
        for receipt in desk.books:
            cut = desk.end(receipt, receipt.open & ~receipt.ran, Outcome.RETURN)
            jobs += cut.bit_count()
            ids += receipt.ids_of(cut)
        if jobs:
            desk.note(
                logging.WARNING, notes.JOBS_RETURNED, jobs=jobs, reason=reason, job_ids=notes.some_of(ids)
            )

    def over(self) -> bool:
        """Say whether nothing is left to wait for, or no time."""
        if not self._claiming.stopped:
            return False
        desk, now_s = self._desk, self._desk.now_s
        known = self._audit.recovered or desk.settings.first  # what a predecessor held is in the database
        if known and not desk.books.jobs and not self._claiming.asking and self._departures.due_s() is None:
            return True
        if self._cut_s is None or self._leave_s is None:
            return False
        in_vain = not self._claiming.store_up and now_s >= max(self._cut_s, self._away_s)
        return in_vain or now_s >= self._leave_s


def weight(jobs: int) -> int:
    """Return the log level of a stage of the way out: with no job in hand it is no news."""
    return logging.INFO if jobs else logging.DEBUG
