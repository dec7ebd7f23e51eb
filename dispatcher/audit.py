"""The audit: what the database holds open for this host, against what books and lanes say.

Heals lost messages and lost answers to claims that committed. Closed in the database: off the books. Open there and
held by nobody in two audits running: given back if it never started, else ended as lost. The first audit after the
start rebuilds the books of a dispatcher that came before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from awa_pool.messages import AskHolding
from awa_pool.states import Outcome

from . import notes
from .books import FULL, Receipt, bits
from .desk import Desk
from .events import OpenRow, ReadOpenAttempts, ReadPages, Send
from .lanes import Lane

SOON_S = 1.0
AGAIN_S = (1.0, 2.0)
"""A lane that has not answered is asked again after so long, and after so long again: its question or its answer may be lost."""
PATIENT_AUDITS = 2
"""One that has not answered in more audits running is in a long handler, and would find all those questions after it."""
NO_AUDIT = 0
"""The number under which a lane is asked when it has only just greeted: so it knows that it was heard."""
TAKES_AT_MOST_S = 30.0
PATIENCE_S = 10.0
"""So long after its start a dispatcher waits for a worker that has not greeted: one that is stopped, and goes on, would run what
others have been given by then. One that stays away is replaced meanwhile, and then all have greeted."""
LOST = {"error": "the result of this attempt was lost within the pool", "type": "ResultLost"}

Suspects = dict[int, int]


@dataclass(slots=True)
class Found:
    """All that the database has open of one receipt, moved attempts included; ids stand at their indexes."""

    slot: int
    receipt_id: int
    nonce: int
    open_mask: int
    job_ids: list[int]
    leases: list[int] | None


def merge(rows: Sequence[OpenRow]) -> dict[int, Found]:
    """One `Found` per receipt: a receipt has a row, and each of its moved attempts another."""
    merged: dict[int, Found] = {}
    for row in rows:
        if not 0 < len(row.job_ids) <= 63:
            continue
        found = merged.setdefault(row.receipt_id, Found(row.slot, row.receipt_id, row.nonce, 0, [], []))
        leases = row.leases or [1] * len(row.job_ids)
        found.job_ids += [0] * (len(row.job_ids) - len(found.job_ids))
        found.leases = (found.leases or []) + [1] * (len(row.job_ids) - len(found.leases or []))
        for index in bits(row.open_mask & FULL[len(row.job_ids)]):
            found.job_ids[index], found.leases[index] = row.job_ids[index], leases[index]
            found.open_mask |= 1 << index
    return merged


class Audit:
    """One audit at a time; two in a row decide."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.number = 0
        self.due_s = 0.0
        self.recovered = False
        self._patient_until_s = 0.0
        self._began_s: float | None = None
        self.asked_s = 0.0
        self.asking = 0
        """Questions to the database that are not yet answered."""
        self._adrift: Suspects = {}
        self._unheld: dict[bytes, Suspects] = {}
        self._answered: dict[bytes, int] = {}
        self._silent: dict[bytes, int] = {}
        """Lanes that have not answered, and for how many audits."""
        self._again_s: list[float] = []
        self._begun: dict[int, int] = {}
        self._closed_waits: Suspects = {}
        self._holding: dict[bytes, dict[int, int]] = {}
        self.healed = 0

    @property
    def running(self) -> bool:
        return self._began_s is not None and self._desk.now_s - self._began_s < TAKES_AT_MOST_S

    def soon(self) -> None:
        """Something may have been lost just now: do not wait for the next turn."""
        self.due_s = min(self.due_s, self._desk.now_s + SOON_S)

    def next_s(self) -> float | None:
        """When `check` has something to do; None while only an answer matters."""
        due = [] if self.running else [self.due_s]
        if self._again_s and any(audits <= PATIENT_AUDITS for audits in self._silent.values()):
            due.append(self._again_s[0])
        return min(due, default=None)

    def check(self) -> bool:
        """Begin an audit when it is time; True when one has begun. Ask those again that have not answered."""
        now_s = self._desk.now_s
        if now_s >= self.due_s and not self.running:
            self._begin()
            return True
        if self._again_s and now_s >= self._again_s[0]:
            self._again_s = [at_s for at_s in self._again_s if at_s > now_s]
            for peer, audits in self._silent.items():
                if audits <= PATIENT_AUDITS:
                    self._desk.out.append(Send(peer, AskHolding(self.number)))
        return False

    def _begin(self) -> None:
        """Ask the database, and every lane that should hold something."""
        desk = self._desk
        self.number += 1
        self._began_s = self.asked_s = desk.now_s
        self.asking += 1
        if desk.books.closed is None:
            desk.books.closed = {}
        self.due_s = desk.now_s + desk.settings.audit_s
        self._begun = {}
        if self._adrift:
            desk.out.append(
                ReadPages()
            )  # before the question: what starts meanwhile is held by somebody known
        desk.out.append(ReadOpenAttempts())
        ran_by = {peer for receipt in desk.books for peer in receipt.ran_by}
        silent: dict[bytes, int] = {}
        for lane in desk.lanes:
            if lane.pieces or lane.waiting or lane.peer in ran_by:
                silent[lane.peer] = self._silent.get(lane.peer, 0) + 1
                desk.out.append(Send(lane.peer, AskHolding(self.number)))
        self._silent = silent
        self._again_s = [desk.now_s + AGAIN_S[0], desk.now_s + sum(AGAIN_S)]

    def failed(self) -> None:
        """The database did not answer; an audit that saw nothing decides nothing."""
        self._was_answered()
        self._began_s = None
        self.due_s = self._desk.now_s + (self._desk.settings.audit_s if self.recovered else 0.5)

    def pages_read(self, started: dict[int, int]) -> None:
        """A worker in a long job cannot greet a new dispatcher; its page speaks for what it has started."""
        self._begun = started

    def _was_answered(self) -> dict[int, int]:
        """Count an answer, or that there will be none; returns what was closed since the first question that waits."""
        closed = self._desk.books.closed or {}
        self.asking -= 1
        if not self.asking:
            self._desk.books.closed = None
        return closed

    # --- the database's side -------------------------------------------------------------------------------

    def rows_read(self, rows: Sequence[OpenRow]) -> None:
        """Compare what the database has open with the books."""
        desk, began_s = self._desk, self._began_s
        closed_since = self._was_answered()
        self._began_s = None
        if began_s is None:
            return
        merged = merge(rows)
        # Under load the answer is older than the news of what was closed meanwhile. Taken for adrift, that went to the lane
        # that had said before that it holds it: sixteen such chunks, and the lane was given nothing until the second audit.
        for receipt_id, mask in closed_since.items():
            if receipt_id in merged:
                merged[receipt_id].open_mask &= ~mask
        if not self.recovered:
            self._recover(merged)
            return
        waits: Suspects = {}
        for receipt in desk.books:
            if receipt.claimed_s < began_s:
                found = merged.get(receipt.receipt_id)
                closed = receipt.open & ~(0 if found is None else found.open_mask)
                # The finalizer tells a handler that waits how its attempt ended; only should that fail, it is told here.
                known = self._closed_waits.get(receipt.receipt_id, 0)
                if patient := closed & receipt.waiting & ~known:
                    waits[receipt.receipt_id] = patient
                self._closed_elsewhere(receipt, closed & ~patient)
        self._closed_waits = waits
        self._find_adrift(merged)

    def _recover(self, merged: dict[int, Found]) -> None:
        desk = self._desk
        self.recovered = True
        self._patient_until_s = desk.now_s + PATIENCE_S
        jobs = 0
        for found in merged.values():
            if desk.books.enter_open(found, found.open_mask, desk.now_s) is not None:
                jobs += found.open_mask.bit_count()
                self._adrift[found.receipt_id] = found.open_mask
        for peer, held in self._holding.items():
            lane = desk.lanes.get(peer)
            if lane is not None:
                self.adopt(lane, held)
        if jobs:
            desk.note(logging.INFO, notes.RECOVERED, jobs=jobs, receipts=len(merged))

    def _closed_elsewhere(self, receipt: Receipt, closed: int) -> None:
        if not closed:
            return
        for index in bits(closed & receipt.out):
            self._desk.cancel(
                receipt, index
            )  # cancelled or rescued: the handler learns of it, its credit stays
        self._desk.close(receipt, closed & ~receipt.out)

    def _find_adrift(self, merged: dict[int, Found]) -> None:
        """Attempts open in the database that neither books nor lanes know; seen twice, they are given back."""
        desk = self._desk
        seen: Suspects = {}
        returned = receipts = 0
        patient = desk.now_s < self._patient_until_s and not self._all_spoke()
        for receipt_id, found in merged.items():
            known = desk.books.get(receipt_id)
            adrift = found.open_mask & ~(known.open & ~known.adrift if known is not None else 0)
            if not adrift:
                continue
            receipt = desk.books.enter_open(found, adrift, desk.now_s)
            if receipt is None:
                continue
            for peer, held in self._holding.items():
                lane = desk.lanes.get(peer)
                if lane is not None and held.get(receipt_id, 0) & adrift:
                    self.adopt(lane, {receipt_id: held[receipt_id]})
            adrift = receipt.adrift
            twice = adrift & self._adrift.get(receipt_id, 0) & ~self._begun.get(receipt_id, 0)
            if twice and not patient:
                returned += desk.end(receipt, twice, Outcome.RETURN).bit_count()
                receipts += 1
            if receipt.adrift:
                seen[receipt_id] = receipt.adrift
        self._adrift = seen
        self.healed += returned
        if receipts:  # one line, also after a whole stock was lost with a dispatcher
            desk.note(logging.WARNING, notes.JOBS_ADRIFT, jobs=returned, receipts=receipts)
        if seen:
            self.soon_after_all_spoke()

    def soon_after_all_spoke(self) -> None:
        """With every worker heard, a second look need not wait for the next turn."""
        if self._adrift and self._all_spoke():
            self.soon()

    def _all_spoke(self) -> bool:
        return len({lane.worker for lane in self._desk.lanes}) >= self._desk.settings.workers

    # --- the lanes' side -----------------------------------------------------------------------------------

    def adopt(self, lane: Lane, held: dict[int, int]) -> None:
        """A lane says it holds these: what was adrift is out with it."""
        desk = self._desk
        for receipt_id, mask in held.items():
            receipt = desk.books.get(receipt_id)
            if receipt is not None and (adrift := mask & receipt.adrift):
                desk.books.hand(receipt, adrift)
                lane.hand(receipt, adrift, 0.0, desk.now_s)
                if receipt_id in lane.waits:
                    desk.settle_waits(lane, receipt_id)

    def lane_ready(self, lane: Lane, held: dict[int, int]) -> None:
        """A lane has (re)connected and says what it holds."""
        if held:
            self._holding[lane.peer] = held
            self.adopt(lane, held)
        self.soon_after_all_spoke()

    def holding(self, lane: Lane, number: int, held: dict[int, int]) -> None:
        """A lane's answer: what it was handed before we asked and does not hold any more was lost on the way."""
        desk = self._desk
        if number != self.number or self._answered.get(lane.peer, NO_AUDIT) == number:
            return  # an old answer, or one that came twice: the same news is no second audit
        self._answered[lane.peer] = number
        self._silent.pop(lane.peer, None)
        began_s = self.asked_s
        self._holding[lane.peer] = held
        self.adopt(lane, held)
        missing: Suspects = {}
        for piece in lane.held():
            if piece.handed_s < began_s:
                receipt_id = piece.receipt.receipt_id
                missing[receipt_id] = missing.get(receipt_id, 0) | piece.mask & ~held.get(receipt_id, 0)
        for receipt in desk.books:
            ran = receipt.ran_by.get(lane.peer, 0)
            if ran and receipt.claimed_s < began_s:
                missing[receipt.receipt_id] = missing.get(receipt.receipt_id, 0) | ran & ~held.get(
                    receipt.receipt_id, 0
                )
        before = self._unheld.get(lane.peer, {})
        for receipt_id, mask in missing.items():
            twice = mask & before.get(receipt_id, 0)
            if twice:
                self._unheld_twice(lane, receipt_id, twice)
        self._unheld[lane.peer] = missing
        if any(mask & ~before.get(receipt_id, 0) for receipt_id, mask in missing.items()):
            self.soon()  # asked and answered in order: a second look need not wait for the next turn

    def _unheld_twice(self, lane: Lane, receipt_id: int, mask: int) -> None:
        desk = self._desk
        receipt = desk.books.get(receipt_id)
        lane.drop(receipt_id, mask)
        if receipt is None:
            return
        ran = (receipt.ran | receipt.waiting) & mask  # what waits has started
        healed = desk.end(receipt, ran, Outcome.LOST, LOST)
        healed |= desk.end(receipt, mask & receipt.out, Outcome.RETURN)
        self.healed += healed.bit_count()
        desk.note(logging.WARNING, notes.JOBS_ADRIFT, receipt_id=receipt_id, jobs=healed.bit_count())

    def lane_gone(self, peer: bytes) -> None:
        self._holding.pop(peer, None)
        self._unheld.pop(peer, None)
        self._answered.pop(peer, None)
        self._silent.pop(peer, None)
