"""The books: every attempt this host has claimed and not yet seen closed.

The bits of a receipt that are still open stand in exactly one place: in stock (here, not handed over), out (with a
lane; some of them waiting for a callback, their slot given away), ran (has run, its result is on the way to the finalizer), ending (the finalizer was asked to end it), or, when
in none of them, adrift (known from the database only; the audit finds out who has it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from awa_pool.body import attempts_of, run_lease_of
from awa_pool.states import Outcome

from .events import ClaimedRow, OpenRow

FULL = [0] + [(1 << n) - 1 for n in range(1, 64)]
INDEXES = [list(range(n)) for n in range(64)]


def bits(mask: int) -> list[int]:
    """Indexes of the set bits, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def lowest(mask: int, count: int) -> int:
    """The `count` lowest set bits of the mask."""
    if mask.bit_count() <= count:
        return mask
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken


def held_pieces(pieces: list[Any]) -> dict[int, int] | None:
    """Read `[[receipt_id, mask], …]` of a message; None if it is not of that form."""
    held: dict[int, int] = {}
    for piece in pieces:
        if not (
            isinstance(piece, list) and len(piece) == 2 and type(piece[0]) is int and type(piece[1]) is int
        ):
            return None
        if not 0 <= piece[1] < 1 << 63:
            return None
        held[piece[0]] = held.get(piece[0], 0) | piece[1]
    return held


class Receipt:
    """One receipt and where each of its open attempts stands."""

    __slots__ = (
        "bodies", "claimed_s", "ending", "job_ids", "kinds", "leases", "nonce", "open", "out", "priority", "queue",
        "ran", "ran_by", "receipt_id", "size_bytes", "slot", "stock", "waiting", "why",
    )  # fmt: skip

    def __init__(self, slot: int, receipt_id: int, nonce: int, queue: str, priority: int) -> None:
        self.slot = slot
        self.receipt_id = receipt_id
        self.nonce = nonce
        self.queue = queue
        self.priority = priority
        self.job_ids: list[int] = []
        self.kinds: list[str] = []
        self.bodies: list[str] = []
        self.leases: list[int] | None = None
        self.open = 0
        self.stock = 0
        self.out = 0
        self.waiting = 0  # of those out
        self.ran = 0
        self.ran_by: dict[bytes, int] = {}
        self.ending = 0
        self.why: dict[int, tuple[str, dict[str, Any] | None]] = {}
        self.claimed_s = 0.0
        self.size_bytes = 0

    def ids_of(self, mask: int) -> list[int]:
        """Return the ids of these attempts' jobs."""
        return [self.job_ids[index] for index in bits(mask)]

    @property
    def adrift(self) -> int:
        """Open bits that nobody is known to hold."""
        return self.open & ~(self.stock | self.out | self.ran | self.ending)

    def light(self, mask: int, most_bytes: int) -> int:
        """The first of these attempts whose bodies are `most_bytes` together, at least one."""
        if self.size_bytes <= most_bytes:
            return mask
        taken = size = 0
        for index in bits(mask):
            size += len(self.bodies[index])
            if taken and size > most_bytes:
                break
            taken |= 1 << index
        return taken

    def run_lease(self, index: int) -> int:
        """The run_lease of an attempt; read out of its body only when one is asked for."""
        if self.leases is not None:
            return self.leases[index]
        if not self.bodies:
            return 1  # learnt from the database, where no leases means that all are 1
        return run_lease_of(self.bodies[index].encode())

    def unload(self, mask: int) -> int:
        """Let go of the bodies of attempts that have started: nobody hands them out again. Returns their size in bytes."""
        if not self.bodies:
            return 0
        if self.leases is None:
            self.leases = [self.run_lease(index) for index in range(len(self.bodies))]
        freed = 0
        for index in bits(mask):
            freed += len(self.bodies[index])
            self.bodies[index] = ""
        self.size_bytes -= freed
        return freed

    def item(self, index: int) -> list[Any]:
        """The `EndAttempts` item of an attempt that is ending."""
        outcome, error = self.why[index]
        job_id = self.job_ids[index]
        item = [
            self.slot, self.receipt_id, self.nonce, index, job_id, self.run_lease(index), outcome, None, error,
            self.kinds[index] if self.kinds else "",  # learnt from the database: nobody knows it here
        ]  # fmt: skip
        if outcome == Outcome.LOST and self.bodies and (body := self.bodies[index]):
            item += attempts_of(body.encode())  # the finalizer tells people of it
        return item


class Books:
    """All receipts with open attempts; counts jobs, bytes and jobs in flight (neither run yet nor waiting) per queue."""

    def __init__(self) -> None:
        self.receipts: dict[int, Receipt] = {}
        self.jobs = 0
        self.bytes = 0
        self.waiting = 0
        """Of the jobs, what waits for a callback and takes nobody's slot: no part of the window."""
        self.stocked = 0
        self.in_flight: dict[str, int] = {}
        self.closed: dict[int, int] | None = None
        """What was closed since the audit asked what the database has open, by receipt; None while it has asked nothing."""

    def get(self, receipt_id: int) -> Receipt | None:
        return self.receipts.get(receipt_id)

    def __iter__(self) -> Iterator[Receipt]:
        return iter(list(self.receipts.values()))

    def enter(self, row: ClaimedRow, now_s: float) -> Receipt | None:
        """Enter a claimed receipt, all its attempts in stock; None for one that is no receipt or stands here."""
        n = len(row.job_ids)
        if not 0 < n <= 63 or len(row.kinds) != n or len(row.bodies) != n or row.receipt_id in self.receipts:
            return None
        receipt = Receipt(row.slot, row.receipt_id, row.nonce, row.queue, row.priority)
        receipt.job_ids, receipt.kinds, receipt.bodies = row.job_ids, row.kinds, row.bodies
        receipt.open = receipt.stock = FULL[n]
        receipt.claimed_s = now_s
        receipt.size_bytes = sum(map(len, row.bodies))
        self._enter(receipt, n)
        self.stocked += n
        self.in_flight[row.queue] = self.in_flight.get(row.queue, 0) + n
        return receipt

    def enter_open(self, row: OpenRow, mask: int, now_s: float) -> Receipt | None:
        """Enter attempts that only the database told of: adrift until somebody is found to hold them."""
        receipt = self.receipts.get(row.receipt_id)
        mask &= FULL[min(len(row.job_ids), 63)]
        if receipt is None:
            if not mask:
                return None
            receipt = Receipt(row.slot, row.receipt_id, row.nonce, "", 0)
            receipt.claimed_s = now_s
            self._enter(receipt, 0)
        fresh = mask & ~receipt.open
        if fresh and not receipt.bodies:
            receipt.job_ids, receipt.leases = row.job_ids, row.leases
        receipt.open |= fresh
        self.jobs += fresh.bit_count()
        if receipt.queue:
            self.in_flight[receipt.queue] += fresh.bit_count()
        return receipt

    def _enter(self, receipt: Receipt, jobs: int) -> None:
        self.receipts[receipt.receipt_id] = receipt
        self.jobs += jobs
        self.bytes += receipt.size_bytes

    def hand(self, receipt: Receipt, mask: int) -> None:
        """Attempts from the stock, or found adrift, are out with a lane."""
        self.stocked -= (receipt.stock & mask).bit_count()
        receipt.stock &= ~mask
        receipt.out |= mask & receipt.open

    def take_back(self, receipt: Receipt, mask: int) -> None:
        """Attempts that were out are in stock again: the lane has not started them and will not."""
        mask &= receipt.out
        receipt.out &= ~mask
        receipt.stock |= mask
        self.stocked += mask.bit_count()

    def wait(self, receipt: Receipt, mask: int) -> int:
        """Attempts that are out wait for a callback; returns those that did not before."""
        mask &= receipt.out & ~receipt.waiting
        if mask:
            self._landed(receipt, mask)
            receipt.waiting |= mask
            self.waiting += mask.bit_count()
            self.bytes -= receipt.unload(mask)
        return mask

    def go_on(self, receipt: Receipt, mask: int) -> int:
        """Attempts that waited go on; returns those."""
        mask &= receipt.waiting
        if mask:
            self._wait_no_more(receipt, mask)
            if receipt.queue:
                self.in_flight[receipt.queue] += mask.bit_count()
        return mask

    def ran(self, receipt: Receipt, peer: bytes, mask: int) -> None:
        """Attempts that were out with this lane have run."""
        if receipt.waiting & mask:
            self.go_on(receipt, mask)
        receipt.out &= ~mask
        receipt.ran |= mask
        receipt.ran_by[peer] = receipt.ran_by.get(peer, 0) | mask
        self._landed(receipt, mask)

    def end(self, receipt: Receipt, mask: int, outcome: str, error: dict[str, Any] | None = None) -> int:
        """Mark open attempts as ending; returns those that were not ending before."""
        mask &= receipt.open & ~receipt.ending
        if mask:
            self._landed(receipt, mask & ~receipt.ran)
            self._leave(receipt, mask)
            receipt.ending |= mask
            for index in bits(mask):
                receipt.why[index] = (outcome, error)
        return mask

    def close(self, receipt: Receipt, mask: int) -> int:
        """Take closed attempts off the books; returns those that were open."""
        self.note_closed(receipt.receipt_id, mask)
        mask &= receipt.open
        if mask:
            self._landed(receipt, mask & ~(receipt.ran | receipt.ending))
            self._leave(receipt, mask)
            receipt.open &= ~mask
            self.jobs -= mask.bit_count()
            if not receipt.open:
                del self.receipts[receipt.receipt_id]
                self.bytes -= receipt.size_bytes
        return mask

    def note_closed(self, receipt_id: int, mask: int) -> None:
        """Keep in mind what is closed while the audit waits for an answer: that may be older, and have it open."""
        if self.closed is not None:
            self.closed[receipt_id] = self.closed.get(receipt_id, 0) | mask

    def _landed(self, receipt: Receipt, mask: int) -> None:
        mask &= ~receipt.waiting
        if receipt.queue and mask:
            self.in_flight[receipt.queue] -= mask.bit_count()

    def _wait_no_more(self, receipt: Receipt, mask: int) -> None:
        receipt.waiting &= ~mask
        self.waiting -= mask.bit_count()

    def _leave(self, receipt: Receipt, mask: int) -> None:
        self.stocked -= (receipt.stock & mask).bit_count()
        receipt.stock &= ~mask
        receipt.out &= ~mask
        if receipt.waiting & mask:
            self._wait_no_more(receipt, receipt.waiting & mask)
        if receipt.ran & mask:
            receipt.ran &= ~mask
            receipt.ran_by = {peer: kept for peer, was in receipt.ran_by.items() if (kept := was & ~mask)}
        receipt.ending &= ~mask
        if receipt.why:
            for index in bits(mask):
                receipt.why.pop(index, None)
