"""Claims: how many jobs to ask for, of which queues, and when.

One claim at a time. The next starts when the stock falls to what the lanes eat while a claim takes, so that they never
idle for it; under long jobs only when a lane is idle, so that nothing is hoarded. What the finalizer has not closed
yet counts against the window: when something behind stalls, claiming pauses first.
"""

from __future__ import annotations

import logging

from awa_pool.events import StoreSaysNo, ToSupervisor, Trouble
from awa_pool.messages import Idle

from . import notes
from .desk import Desk
from .events import Claim, Claimed, ReadWorkLeft, Withdraw, WorkLeftRead
from .pacing import MAX_CLAIM, Poll
from .unplaced import Unplaced

FIRST_CLAIM = 64
"""Jobs of the first claim after a queue gave less than was asked; each full one doubles it. What the last jobs of a queue
were like says little of the next: a claim sized by no-op jobs would hoard 5 ms ones for seconds."""
AHEAD_OF_FULL_LANES = 256
"""Jobs for lanes that are full which are kept here, so that what stands behind them in their queue reaches idle lanes of
another sort: async handlers that wait must not keep plain jobs from plain workers. More would hoard."""
EATING_S = 0.2
"""A busy lane that was not heard of for so long has a long job: nothing is claimed ahead for it. (One with short
jobs reports within LONG_SLICE_S of the worker.)"""


class Claiming:
    """When the next claim is due and how big it is."""

    def __init__(self, desk: Desk, unplaced: Unplaced) -> None:
        self._desk = desk
        self._unplaced = unplaced
        self._queues = list(desk.settings.queues)
        self._poll = Poll(desk.settings.poll_interval_s)
        self._nothing: set[str] = set()  # queues that gave nothing when last asked, and nobody notified since
        self._asked: Claim | None = None
        self._asked_left = False
        self._left_refused = False
        self._said_idle = False
        self._looked_again = False
        self._request = 0
        self._last_full = False
        self._most = FIRST_CLAIM
        self._gated = False
        self._rests = False
        self.accepting = True
        self.stopped = False
        self.store_up = True
        self.last_ok_s: float | None = None
        self.claims = self.jobs = 0
        self.seconds = 0.0

    def look_again(self, *, new: bool = True) -> None:
        """Something may have been enqueued; `new` False: it is what this host gave back."""
        if new:
            self._unplaced.notified()
        self._nothing.clear()
        self._looked_again = True

    @property
    def asking(self) -> bool:
        """A claim is with the database."""
        return self._asked is not None

    def due_s(self) -> float | None:
        """When to call `check` again; None if only an event can make a claim possible."""
        if self._asked is not None:
            return None
        if self._rests:
            return self._unplaced.rests_until_s
        return self._poll.due_s if self._gated else None

    def check(self) -> None:
        """Claim if it is time and there is room."""
        self._gated = False
        self._rests = self._asked is None and self._unplaced.rests()
        plan = None if self._asked is not None or self._rests else self._plan()
        if plan is None:
            return
        if self._desk.now_s < self._poll.due_s and (not self.store_up or self._all_empty(plan)):
            self._gated = True
            return
        names, limits, total = plan
        self._request += 1
        self._looked_again = False
        desk = self._desk
        self._asked = Claim(
            self._request,
            names,
            limits,
            total,
            max(1, desk.settings.window_bytes - desk.books.bytes),
            desk.pacing.receipt_size(),
            not self._last_full,
        )
        self._queues.append(self._queues.pop(0))  # the first in line takes what it can: take turns
        desk.out.append(self._asked)

    def _all_empty(self, plan: tuple[list[str], list[int], int]) -> bool:
        return self._nothing.issuperset(plan[0])

    def _plan(self) -> tuple[list[str], list[int], int] | None:
        """Queues, limits and total of the claim that would be right now; None if there is no need or no room."""
        desk = self._desk
        if self.stopped or not self.accepting:
            return None
        slots = idle = 0
        for lane in desk.lanes.by_peer.values():
            if not lane.retired:
                free = lane.capacity - lane.jobs
                idle += max(0, free)
                if free > 0 or desk.now_s - lane.heard_s < EATING_S:
                    slots += lane.capacity
        stocked = desk.books.stocked
        unfed = self._unfed() if idle and 0 < stocked < AHEAD_OF_FULL_LANES else 0
        if not unfed and idle <= stocked and (not slots or stocked >= desk.pacing.low_water(slots)):
            return None
        room = desk.settings.window_jobs - (desk.books.jobs - desk.books.waiting)
        if room <= 0 or desk.books.bytes >= desk.settings.window_bytes:
            return None
        names, limits = [], []
        for name, most in self._queues:
            limit = desk.pacing.ahead(name, slots, idle)
            if most is not None:
                limit = min(limit, most - desk.books.in_flight.get(name, 0))
            if limit > 0:
                names.append(name)
                limits.append(limit)
        wanted = min(max(limits, default=0), max(self._most, idle)) - stocked
        if unfed:
            wanted = max(wanted, min(max(self._most, unfed), AHEAD_OF_FULL_LANES - stocked))
        total = min(wanted, room)
        if total < 1 or (total * 2 < wanted and idle <= stocked):
            return (
                None  # a small claim costs as much as a big one: wait for room while the lanes have something
            )
        return names, limits, total

    def _unfed(self) -> int:
        """Idle slots of lanes for which nothing is in stock, beside lanes that are full."""
        desk = self._desk
        return sum(
            lane.idle_slots for lane in desk.lanes.by_peer.values() if desk.stock.head(lane.name) is None
        )

    # --- answers -------------------------------------------------------------------------------------------

    def answered(self, event: Claimed) -> None:
        """Enter what was claimed, and judge from it when to ask again."""
        desk, asked = self._desk, self._asked
        self._asked = None
        self._store_answered()
        self.last_ok_s = desk.now_s
        self.claims += 1
        self.seconds += event.took_s
        got = 0
        for row in event.receipts:
            receipt = desk.books.enter(row, desk.now_s)
            if receipt is None:
                desk.malformed("claim", f"receipt {row.receipt_id} cannot be entered")
                continue
            got += len(row.job_ids)
            desk.stock.put(receipt, receipt.stock, desk.now_s)
        self.jobs += got
        desk.pacing.claimed(event.took_s)
        self._last_full = asked is not None and got >= asked.total
        self._most = min(self._most * 2, MAX_CLAIM) if self._last_full else FIRST_CLAIM
        if not self._looked_again:
            self._nothing.difference_update(asked.queues if asked is not None else ())
            self._nothing.update(event.notes)
        if got:
            self._poll.found(desk.now_s)
        elif "busy" in event.notes.values():
            self._poll.busy(desk.now_s)
        else:
            self._poll.nothing(desk.now_s)
            self._maybe_idle()

    def failed(self, event: StoreSaysNo) -> None:
        """The database did not answer a claim: back off; what it may have claimed, the audit finds."""
        desk = self._desk
        self._asked = None
        self._nothing = {name for name, _ in self._queues}
        away = event.trouble is Trouble.AWAY
        self._poll.failed(desk.now_s, away)
        self.store_lost(event.what, event.error, away=away)

    def store_lost(self, question: str, error: str, *, away: bool = True) -> None:
        """Say once that the database does not answer."""
        if self.store_up:
            level, name = (
                (logging.WARNING, notes.STORE_AWAY) if away else (logging.ERROR, notes.STORE_REFUSED)
            )
            self._desk.note(level, name, question=question, error=error)
        self.store_up = False

    def store_back(self) -> None:
        """The database is there again: look at once."""
        self._store_answered()
        self._poll.at_once()
        self.look_again()

    def _store_answered(self) -> None:
        if not self.store_up:
            self._desk.note(logging.INFO, notes.STORE_BACK)
        self.store_up = True

    # --- ending and draining ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Claim nothing more; a claim that waits for the database is taken back, one that runs there is awaited."""
        self.stopped = True
        if self._asked is not None:
            self._desk.out.append(Withdraw(self._asked))

    def withdrawn(self) -> None:
        """The claim was taken back before it began."""
        self._asked = None

    def _maybe_idle(self) -> None:
        desk = self._desk
        if desk.settings.drain and not (self._said_idle or self._asked_left or desk.books.jobs):
            self._asked_left = True
            desk.out.append(ReadWorkLeft([name for name, _ in desk.settings.queues]))

    def work_left(self, event: WorkLeftRead | StoreSaysNo) -> None:
        """Under --drain: say once that nothing is left, and once that the database refuses to tell: the pool would not end."""
        self._asked_left = False
        if isinstance(event, StoreSaysNo):
            if event.trouble is Trouble.REFUSED and not self._left_refused:
                self._left_refused = True
                self._desk.note(logging.ERROR, notes.STORE_REFUSED, question=event.what, error=event.error)
            return
        self._left_refused = False
        if self._said_idle or event.available or event.running or self._desk.books.jobs:
            return
        self._said_idle = True
        self._desk.out.append(ToSupervisor(Idle(event.later, list(event.unknown), event.parked)))
