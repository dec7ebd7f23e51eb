"""Sees that the cancel of a job reaches the attempt that runs, and no other.

The database has decided already when this hears of it, by a notification, or, should that be lost, by the audit: what a
page shows running since before the audit, and the database does not have open, is no longer ours. The worker is told,
for the handler's sake, and the supervisor, which ends what goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from awa_pool.events import ToSupervisor
from awa_pool.messages import AttemptCancelled, CancelJob

from . import notes
from .desk import Desk
from .events import OpenRow, PageRun, ReadRunning, Send

MOST_EARLY = 1000


class Cancels:
    """Notes of the database on their way to handlers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._early: dict[tuple[int, int], None] = {}
        self._open: dict[int, int] = {}
        self._asked_s = 0.0

    def notified(self, words: list[str]) -> None:
        """A job's attempt was cancelled. The note may be here before the answer to the claim that made the attempt."""
        if len(words) != 4 or not all(word.lstrip("-").isdecimal() for word in words[1:]):
            return
        job_id, receipt_id = int(words[1]), int(words[3])
        if self._apply(job_id, receipt_id):
            return
        self._early[job_id, receipt_id] = None
        while len(self._early) > MOST_EARLY:
            del self._early[next(iter(self._early))]

    def claimed(self) -> None:
        """Receipts have come in: some of their jobs may be cancelled already."""
        for job_id, receipt_id in [*self._early]:
            if self._apply(job_id, receipt_id):
                del self._early[job_id, receipt_id]

    def _apply(self, job_id: int, receipt_id: int) -> bool:
        receipt = self._desk.books.get(receipt_id)
        if receipt is None or job_id not in receipt.job_ids:
            return False
        self._desk.cancel(receipt, receipt.job_ids.index(job_id))
        self._desk.note(logging.DEBUG, notes.JOB_CANCELLED, job_id=job_id)
        return True

    def opened(self, rows: Sequence[OpenRow], asked_s: float) -> None:
        """The database has just these attempts open; it was asked at `asked_s`. Compare with what runs."""
        self._open = {}
        for row in rows:
            self._open[row.receipt_id] = self._open.get(row.receipt_id, 0) | row.open_mask
        self._asked_s = asked_s
        self._desk.out.append(ReadRunning())

    def running(self, rows: Sequence[PageRun]) -> None:
        """The pages show just these attempts running: tell those that ran before the question and are closed."""
        for row in rows:
            if row.started_s >= self._asked_s or self._open.get(row.receipt_id, 0) >> row.index & 1:
                continue
            booked = self._desk.books.get(row.receipt_id)
            if booked is not None and booked.waiting >> row.index & 1:
                continue  # the finalizer tells it, and should that fail the audit
            peer = f"w{row.worker}-{row.incarnation}-{row.lane}".encode()
            self._desk.out += [
                Send(peer, CancelJob(row.job_id, row.run_lease)),
                ToSupervisor(
                    AttemptCancelled(row.worker, row.incarnation, row.receipt_id, row.nonce, row.index)
                ),
            ]
            self._desk.note(logging.INFO, notes.ATTEMPT_CLOSED, job_id=row.job_id, by="a cancel or a rescue")
