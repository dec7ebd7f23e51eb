"""What all rooms of the dispatcher work on: books, lanes, stock, paces, and the commands of the present step."""

from __future__ import annotations

import logging
from typing import Any

from awa_pool.events import Note, ToSupervisor
from awa_pool.messages import AttemptCancelled, CancelJob, EndAttempts, Recall
from awa_pool.states import Outcome

from . import notes
from .books import Books, Receipt, bits
from .events import Command, Send, Settings, ToFinalizer
from .lanes import BUFFER_S, Lane, Lanes, Stock, run_jobs
from .pacing import Pacing

END_ITEMS = 500
"""Items per `EndAttempts` message."""
RESEND_S = 5.0
"""After this, endings that were not confirmed are sent again; the guard makes a repeat harmless."""
BLOCKED_S = 0.05
"""A lane whose socket took nothing is left alone for so long."""


class Desk:
    """Shared state of one dispatcher; each method keeps books, lanes and stock in agreement."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.books = Books()
        self.lanes = Lanes()
        self.stock = Stock(self.lanes)
        self.pacing = Pacing()
        self.out: list[Command] = []
        self.now_s = 0.0
        self._seq = 0
        self._unsent: list[tuple[Receipt, int]] = []
        self._resend_s: float | None = None
        self.handed: dict[str, float] = {}
        """When something was handed over last, by lane name."""

    @property
    def handed_s(self) -> float:
        """When something was handed over last."""
        return max(self.handed.values(), default=0.0)

    def note(self, level: int, event: str, **fields: Any) -> None:
        self.out.append(Note(level, event, fields))

    # --- handing over --------------------------------------------------------------------------------------

    def feed(self) -> None:
        """Hand over what is in stock, as far as credit goes."""
        for name in self.stock.shelves:
            while (head := self.stock.head(name)) is not None:
                found = self.lanes.best(name, self.pacing.chunk(head.kind), self.now_s)
                if found is None:
                    break
                lane, room = found
                chunk = self.stock.take(name, self._filling(lane, head.kind, room), self.pacing)
                if chunk is None:
                    break
                receipt, mask, cost_s = chunk
                message, payload = run_jobs(receipt, mask)
                self.books.hand(receipt, mask)
                lane.hand(receipt, mask, cost_s, self.now_s, known=self.pacing.knows(head.kind))
                self.handed[name] = self.now_s
                self.out.append(Send(lane.peer, message, payload))

    def _filling(self, lane: Lane, kind: str, room: int) -> int:
        """Rather one message that fills a lane's buffer than one per chunk, but no more than makes all lanes end
        together: with the last jobs of a queue in one buffer, the others would stand idle beside it."""
        if lane.capacity > 1 or not self.pacing.knows(kind):
            return room
        cost_s = self.pacing.cost_s(kind)
        beside = [other for other in self.lanes.named(lane.name) if not other.retired]
        left_s = sum(other.left_s(self.now_s) for other in beside) + self.books.stocked * cost_s
        fits = int((min(BUFFER_S, left_s / max(1, len(beside))) - lane.left_s(self.now_s)) / cost_s)
        return max(room, min(fits, 63))

    def undeliverable(self, lane: Lane, receipt_id: int, mask: int) -> None:
        """The lane's socket did not take that chunk: it is in stock again."""
        lane.blocked_until_s = self.now_s + BLOCKED_S
        receipt = self.books.get(receipt_id)
        if receipt is not None:
            self.restock(receipt, lane.drop(receipt_id, mask))

    def restock(self, receipt: Receipt, mask: int) -> None:
        """Attempts come back unstarted: to the front of the stock if their bodies are here, else to the database."""
        mask &= receipt.out
        if not mask:
            return
        here = sum(1 << index for index in bits(mask) if receipt.bodies[index]) if receipt.bodies else 0
        if here:
            self.books.take_back(receipt, here)
            self.stock.put(receipt, here, self.now_s, first=True)
        self.end(receipt, mask & ~here, Outcome.RETURN)

    # --- ending and closing --------------------------------------------------------------------------------

    def end(self, receipt: Receipt, mask: int, outcome: Outcome, error: dict[str, Any] | None = None) -> int:
        """Have the finalizer end these attempts; lanes that have them keep them until they say more."""
        mask = self.books.end(receipt, mask, outcome.value, error)
        if mask:
            self._unsent.append((receipt, mask))
        return mask

    def send_endings(self) -> None:
        """Send what `end` collected in this step."""
        if not self._unsent:
            return
        items = [
            receipt.item(index) for receipt, mask in self._unsent for index in bits(mask & receipt.ending)
        ]
        self._unsent.clear()
        for start in range(0, len(items), END_ITEMS):
            self._seq += 1
            self.out.append(ToFinalizer(EndAttempts(self._seq, items[start : start + END_ITEMS])))
        if self._resend_s is None:
            self._resend_s = self.now_s + RESEND_S

    def resend_endings(self) -> None:
        """Ask again for every ending that the finalizer has not confirmed."""
        self._unsent = [(receipt, receipt.ending) for receipt in self.books if receipt.ending]
        self._resend_s = None

    def resend_due_s(self) -> float | None:
        return self._resend_s

    def close(self, receipt: Receipt, mask: int) -> None:
        """These attempts are closed in the database; a lane that still had them has its credit back."""
        out = receipt.out & mask
        if out:
            for lane in self.lanes:
                lane.drop(receipt.receipt_id, out)
        self.books.close(receipt, mask)

    def give_back_stock(self) -> int:
        """Return everything in stock to the database."""
        return sum(self.give_back_shelf(name) for name in self.stock.shelves)

    def give_back_shelf(self, name: str) -> int:
        """Return to the database what is in stock for the lanes of that name."""
        return sum(
            self.end(segment.receipt, segment.mask & segment.receipt.stock, Outcome.RETURN).bit_count()
            for segment in self.stock.shelves[name]
        )

    # --- lanes ---------------------------------------------------------------------------------------------

    def recall(self, lane: Lane) -> None:
        """Ask a lane for everything it has not started."""
        lane.recall_s = self.now_s
        wanted: dict[int, int] = {}
        for piece in lane.pieces:
            if piece.started:
                continue
            wanted[piece.receipt.receipt_id] = wanted.get(piece.receipt.receipt_id, 0) | piece.mask
        self.out.extend(Send(lane.peer, Recall(receipt_id, mask)) for receipt_id, mask in wanted.items())

    def settle_waits(self, lane: Lane, receipt_id: int) -> None:
        """Of what the lane holds of a receipt, let that wait which it says waits, and the rest go on."""
        waits = lane.waits.get(receipt_id, 0)
        begun = lane.wait(receipt_id, waits, self.now_s)
        resumed = lane.go_on(receipt_id, ~waits, self.now_s)
        receipt = self.books.get(receipt_id)
        if receipt is not None:
            self.books.wait(receipt, begun)
            self.books.go_on(receipt, resumed)

    def cancel(self, receipt: Receipt, index: int) -> None:
        """The database closed this attempt: tell the lane that has it, and who ends it if that does not help; forget it if
        nobody has it."""
        mask = 1 << index
        if receipt.stock & mask:
            self.close(receipt, mask)
        elif receipt.out & mask and (lane := self.lanes.holder(receipt.receipt_id, mask)) is not None:
            self.out.append(Send(lane.peer, CancelJob(receipt.job_ids[index], receipt.run_lease(index))))
            news = AttemptCancelled(lane.worker, lane.incarnation, receipt.receipt_id, receipt.nonce, index)
            self.out.append(ToSupervisor(news))

    def malformed(self, where: str, why: str) -> None:
        self.note(logging.WARNING, notes.MALFORMED, source=where, reason=why)
