"""Recall: no job waits behind a long one while somebody could run it.

A lane that says nothing for 20 ms while it has more than it can run at once is asked to give back what it has not
started, if a lane beside it is idle and nothing is in stock, or, for the sake of other hosts, after a second in any
case. A handler that holds its interpreter cannot answer: if 50 ms later the page still shows a long-running attempt,
the recall counts as granted for what the page shows unstarted; those attempts are closed and come again through the database.
"""

from __future__ import annotations

import logging

from awa_pool.messages import Recall
from awa_pool.states import Outcome

from . import notes
from .desk import Desk
from .events import PageRead, ReadPage, Send
from .lanes import Lane
from .unplaced import Unplaced

QUIET_S = 0.02
"""A lane that has not been heard of for so long is behind a long job."""
GRANT_S = 0.05
"""An unanswered recall is looked into after this. The message has to be in the worker's inbox by then, also on a machine
so busy that its socket thread waits for a core, or a job given back here could start there all the same."""
ALWAYS_S = 1.0
"""After this, waiting jobs are recalled although nobody is idle here: another host may be."""


class Recalls:
    """When to recall, and what to make of the answers."""

    def __init__(self, desk: Desk, unplaced: Unplaced) -> None:
        self._desk = desk
        self._unplaced = unplaced
        self._look_s: dict[bytes, tuple[float, float]] = {}  # next look at the page, pause after it
        self.recalled = 0
        self.granted = 0
        self.vouched = 0

    def due_s(self) -> float | None:
        """The next moment at which a recall may be needed; None while no lane has anything waiting."""
        due: list[float] = []
        for lane in self._desk.lanes:
            if lane.unstarted:
                if lane.recall_s is not None:
                    due.append(
                        self._look_s[lane.peer][0] if lane.peer in self._look_s else lane.recall_s + GRANT_S
                    )
                else:
                    due.append(lane.heard_s + (QUIET_S if self._somebody_idle(lane) else ALWAYS_S))
        if (stale_s := self._unplaced.next_return_s()) is not None:
            due.append(stale_s)
        return min(due, default=None)

    def check(self) -> None:
        """Recall where it is time, look at the pages of lanes that did not answer, give back stale stock."""
        desk, now_s = self._desk, self._desk.now_s
        for lane in desk.lanes:
            if not lane.unstarted:
                continue
            if lane.recall_s is None:
                if now_s >= lane.heard_s + (QUIET_S if self._somebody_idle(lane) else ALWAYS_S):
                    desk.recall(lane)
                    self._look_s[lane.peer] = (now_s + GRANT_S, QUIET_S)
                continue
            look_s, pause_s = self._look_s.get(lane.peer, (lane.recall_s + GRANT_S, QUIET_S))
            if now_s >= look_s:
                self._look_s[lane.peer] = (now_s + pause_s, min(pause_s * 1.5, 0.5))
                desk.out.append(ReadPage(lane.peer, lane.worker, lane.incarnation))
        if jobs := self._unplaced.give_back():
            desk.note(logging.DEBUG, notes.JOBS_RETURNED, jobs=jobs, reason="no lane could take them")

    def answered(self, lane: Lane, receipt_id: int, mask: int) -> None:
        """`Recalled`: exactly these were not started and will not be."""
        desk = self._desk
        had = lane.drop(receipt_id, mask)
        lane.heard_s = desk.now_s
        older = (piece for piece in lane.pieces[1:] if piece.mask and not piece.started)
        if not any(piece.handed_s < (lane.recall_s or 0.0) for piece in older):
            lane.recall_s = None
        receipt = desk.books.get(receipt_id)
        if receipt is not None and had:
            self.recalled += (had & receipt.out).bit_count()
            desk.restock(receipt, had)

    def lane_gone(self, peer: bytes) -> None:
        self._look_s.pop(peer, None)

    def page_read(self, lane: Lane, page: PageRead) -> None:
        """Take an unanswered recall as granted if the page shows that a long job stands before the rest."""
        desk = self._desk
        if lane.recall_s is None or page.running is None:
            return
        busy_s = (
            age_s
            for (receipt_id, index), age_s in page.running.items()
            if not lane.waits.get(receipt_id, 0) >> index & 1
        )
        if not any(age_s >= QUIET_S for age_s in busy_s):
            return  # it is between two jobs and reads its inbox before the next
        started: dict[int, int] = {}
        completed: dict[int, int] = {}
        for marks in page.pieces:
            receipt_id = marks.receipt_id
            started[receipt_id] = started.get(receipt_id, 0) | marks.started | marks.completed
            completed[receipt_id] = completed.get(receipt_id, 0) | marks.completed
        for receipt_id, index in page.running:
            started[receipt_id] = started.get(receipt_id, 0) | 1 << index
        jobs = 0
        for piece in list(lane.pieces):
            if piece.handed_s > lane.recall_s or piece.started:
                continue
            receipt = piece.receipt
            # What ran just before the long job may not have been reported yet: the page vouches for it.
            done = lane.drop(receipt.receipt_id, piece.mask & completed.get(receipt.receipt_id, 0))
            self.vouched += desk.end(receipt, done & receipt.out, Outcome.COMPLETED).bit_count()
            waiting = lane.drop(receipt.receipt_id, piece.mask & ~started.get(receipt.receipt_id, 0))
            returned = desk.end(receipt, waiting & receipt.out, Outcome.RETURN)
            if (
                returned
            ):  # said once more: had the first word been lost, the lane would run what others have by then
                desk.out.append(Send(lane.peer, Recall(receipt.receipt_id, returned)))
                jobs += returned.bit_count()
        self.granted += jobs
        if jobs:
            desk.note(logging.DEBUG, notes.JOBS_RECALLED, worker=lane.worker, jobs=jobs)

    def _somebody_idle(self, lane: Lane) -> bool:
        return any(
            other.idle_slots > 0 and self._desk.stock.head(other.name) is None
            for other in self._desk.lanes.named(lane.name)
            if other is not lane
        )
