"""What becomes of the attempts of a worker that died, as its page told: exact, and no message is needed for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from awa_pool.messages import WorkerGone
from awa_pool.outcomes import DEADLINE_EXCEEDED
from awa_pool.states import Outcome

from . import notes
from .books import Receipt, held_pieces
from .desk import Desk

GRACE_S = 0.25
"""Results that were on the way when the worker died get so long to arrive first."""


@dataclass(frozen=True, slots=True)
class _Gone:
    due_s: float
    message: WorkerGone
    marks: dict[int, tuple[int, int]]
    charged: dict[int, dict[str, int]]
    """Receipt -> reason -> mask, where it was killed for certain attempts."""
    waiting: dict[int, int]
    """Receipt -> mask of what waited for callbacks."""


class Departures:
    """Workers that died, until their attempts are accounted for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: list[_Gone] = []
        self.lost = 0

    def due_s(self) -> float | None:
        return min((gone.due_s for gone in self._waiting), default=None)

    def worker_gone(self, message: WorkerGone) -> None:
        """Hand nothing more to that worker, and settle its attempts a moment later."""
        for lane in self._desk.lanes.of_worker(message.worker, message.incarnation):
            lane.retired = True
        marks: dict[int, tuple[int, int]] = {}
        for row in message.started:
            if not _well_formed(row):
                self._desk.malformed("supervisor", "WorkerGone.started")
                continue
            before = marks.get(row[0], (0, 0))
            marks[row[0]] = (before[0] | row[1] | row[2], before[1] | row[2])
        charged: dict[int, dict[str, int]] = {}
        for row in message.charged:
            if not (
                isinstance(row, list)
                and len(row) == 3
                and isinstance(row[2], str)
                and _well_formed([*row[:2], 0])
            ):
                self._desk.malformed("supervisor", "WorkerGone.charged")
                continue
            reasons = charged.setdefault(row[0], {})
            reasons[row[2]] = reasons.get(row[2], 0) | row[1]
        waiting = held_pieces(message.waiting)
        if waiting is None:
            self._desk.malformed("supervisor", "WorkerGone.waiting")
        self._waiting.append(_Gone(self._desk.now_s + GRACE_S, message, marks, charged, waiting or {}))

    def check(self, *, at_once: bool = False) -> list[bytes]:
        """Settle what is due; returns the peers that exist no more."""
        gone_peers: list[bytes] = []
        for gone in list(self._waiting):
            if at_once or gone.due_s <= self._desk.now_s:
                self._waiting.remove(gone)
                gone_peers += self._settle(gone)
        return gone_peers

    def _settle(self, gone: _Gone) -> list[bytes]:
        desk, message = self._desk, gone.message
        held: dict[int, int] = {}
        ran: dict[int, int] = {}
        peers = []
        for lane in desk.lanes.of_worker(message.worker, message.incarnation):
            for piece in lane.held():
                receipt_id = piece.receipt.receipt_id
                held[receipt_id] = held.get(receipt_id, 0) | piece.mask
                if piece.started:  # its page may have forgotten so old a start
                    started, completed = gone.marks.get(receipt_id, (0, 0))
                    gone.marks[receipt_id] = (started | piece.mask, completed)
            for booked in desk.books:
                if lane.peer in booked.ran_by:
                    ran[booked.receipt_id] = ran.get(booked.receipt_id, 0) | booked.ran_by[lane.peer]
            desk.lanes.remove(lane)
            peers.append(lane.peer)
        lost = returned = waited = 0
        ids: list[int] = []
        for receipt_id in held.keys() | ran.keys() | gone.marks.keys():
            receipt = desk.books.get(receipt_id)
            if receipt is not None:
                mine = held.get(receipt_id, 0) | receipt.adrift & gone.marks.get(receipt_id, (0, 0))[0]
                some = self._end(receipt, mine, ran.get(receipt_id, 0), gone)
                lost, returned, waited = (
                    lost + some[0].bit_count(),
                    returned + some[1].bit_count(),
                    waited + some[2],
                )
                ids += receipt.ids_of(some[0] | some[1])
        if not gone.charged:
            self.lost += lost
        if peers or lost or returned:  # a new dispatcher is told of those who died before its time, too
            desk.note(
                logging.WARNING if lost or returned else logging.INFO,
                notes.LANE_GONE,
                worker=message.worker,
                cause=message.cause,
                jobs_lost=lost,
                jobs_returned=returned,
                of_them_waited=waited,
                **({"job_ids": notes.some_of(ids)} if ids else {}),
            )
        return peers

    def _end(self, receipt: Receipt, held: int, ran: int, gone: _Gone) -> tuple[int, int, int]:
        """Completed bits completed, started ones are lost, the rest goes back; returns lost, returned, and of these how
        many waited for callbacks.

        What waited ran no code of its own, so the worker did not die of it: it goes back, and no attempt is used. A worker that was killed for certain attempts loses just these: what ran beside them goes back unharmed.

        What had run before, and did not complete, is not what the worker died of. Its result went down with the
        worker, unless the finalizer has it: then this comes too late and changes nothing. So it goes back too.
        """
        started, completed = gone.marks.get(receipt.receipt_id, (0, 0))
        desk, message = self._desk, gone.message
        mine = (held & ~receipt.ending) | ran
        desk.end(receipt, mine & completed, Outcome.COMPLETED)
        cut = mine & started & ~(completed | ran)
        waited = cut & gone.waiting.get(receipt.receipt_id, 0)
        lost = 0
        if not gone.charged:
            error = {"error": message.cause, "type": "WorkerDied", "phase": message.phase}
            lost = desk.end(receipt, cut & ~waited, Outcome.LOST, error)
        for reason, mask in gone.charged.get(receipt.receipt_id, {}).items():
            lost |= desk.end(receipt, cut & mask, Outcome.LOST, _charge(message, reason))
        returned = desk.end(receipt, mine & ~(completed | lost), Outcome.RETURN)
        return lost, returned, (returned & waited).bit_count()


def _charge(message: WorkerGone, reason: str) -> dict[str, Any]:
    """The error of an attempt for which its worker was killed."""
    kind = "DeadlineExceeded" if reason == DEADLINE_EXCEEDED else "JobCancelled"
    return {"error": message.cause, "type": kind, "phase": message.phase, "reason": reason}


def _well_formed(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 3
        and all(type(value) is int for value in row)
        and all(0 <= value < 1 << 63 for value in row[1:])
    )
