"""Jobs that no lane here has room for: they go back to the database, for other hosts, and are not claimed again at once.

Claims know no kinds. Where plain workers are in long jobs and async ones idle, a claim for the idle ones may bring plain
jobs only, again and again. So after jobs went back in vain this host rests: until a lane that could take them has room, until
something new is notified, or until a pause is over that doubles each time. When it looks again it keeps them just long enough
to see what stands behind them.
"""

from __future__ import annotations

from .desk import Desk

STALE_STOCK_S = 1.0
"""Jobs of which none could be handed over for so long go back to the database."""
LOOK_S = 0.1
"""The same when they have gone back before, and nothing was handed over since."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 5.0
"""A claim keeps the word for 10 s that this host wants to be notified."""
NEWS_PAUSE_S = 1.0
"""What is notified is looked at after this pause at the latest, or jobs would go to and fro with each that is put in."""


class Unplaced:
    """What has gone back in vain, and when to look again."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._names: set[str] = set()
        self._since_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._news = False
        self._receipts: set[int] = set()

    def gave_back(self, receipt_id: str) -> bool:
        """Say whether the receipt of which the database notifies is one that went back from here."""
        return receipt_id.isdecimal() and int(receipt_id) in self._receipts

    def notified(self) -> None:
        """There may be something new."""
        self._news = True

    def next_return_s(self) -> float | None:
        """Return when jobs in stock become stale."""
        return min(self._stale_s().values(), default=None)

    def give_back(self) -> int:
        """Return what is stale to the database."""
        desk, jobs = self._desk, 0
        stale = [name for name, stale_s in self._stale_s().items() if desk.now_s >= stale_s]
        if stale:  # of all shelves that go now: the database names one receipt of those that go together
            self._receipts = {
                segment.receipt.receipt_id for name in stale for segment in desk.stock.shelves[name]
            }
        for name in stale:
            jobs += desk.give_back_shelf(name)
            self._note(name)
        return jobs

    def rests(self) -> bool:
        """Say whether nothing is to be claimed now; a lane that has room again ends the rest."""
        if not self._names:
            return False
        if self._desk.handed_s > self._since_s or self._has_room():
            self._names.clear()
            self._pause_s = FIRST_PAUSE_S
            return False
        return self._desk.now_s < self.rests_until_s

    @property
    def rests_until_s(self) -> float:
        pause_s = min(self._pause_s, NEWS_PAUSE_S) if self._news else self._pause_s
        return self._since_s + pause_s

    def _note(self, name: str) -> None:
        desk = self._desk
        if desk.now_s - desk.handed_s < STALE_STOCK_S:
            return  # other jobs are handed over meanwhile: to find more of them these have to be claimed too
        if self._in_vain and desk.now_s > self._since_s:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._names.add(name)
        self._since_s = desk.now_s
        self._news = False

    @property
    def _in_vain(self) -> bool:
        return bool(self._names) and self._desk.handed_s <= self._since_s

    def _has_room(self) -> bool:
        return any(lane.idle_slots > 0 for name in self._names for lane in self._desk.lanes.named(name))

    def _stale_s(self) -> dict[str, float]:
        """When the jobs of each shelf become stale."""
        desk = self._desk
        if not desk.books.stocked:
            return {}
        hold_s = LOOK_S if self._in_vain else STALE_STOCK_S
        heads = {name: desk.stock.head(name) for name in desk.stock.shelves}
        return {
            name: max(head.since_s, desk.handed.get(name, 0.0)) + hold_s
            for name, head in heads.items()
            if head is not None
        }
