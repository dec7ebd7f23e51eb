"""Attempts that wait for a callback and have given their slots away: with their lane, and yet no part of what it has to do.

The lane says when an attempt begins to wait and when it goes on; its answer to the audit says it once more, so that a lost
word heals. What it says is kept with the lane, for a dispatcher that has still to learn what the lane holds.
"""

from __future__ import annotations

from typing import Any

from awa_pool.messages import AttemptsWait, CallbackNews

from .books import held_pieces
from .desk import Desk
from .events import ToFinalizer
from .lanes import Lane

WORDS = frozenset(("resumed", "completed", "failed", "retried", "expired"))
ID_CHARS = 36


class Waiting:
    """Who waits, as the lanes say."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def said(self, lane: Lane, message: AttemptsWait) -> None:
        """Attempts of a lane begin to wait, or go on."""
        pieces = held_pieces(message.pieces)
        if pieces is None:
            self._desk.malformed(lane.name, "AttemptsWait.pieces")
            return
        lane.heard_s = self._desk.now_s
        for receipt_id, mask in pieces.items():
            before = lane.waits.get(receipt_id, 0)
            self._settle(lane, receipt_id, before | mask if message.waiting else before & ~mask)

    def holding(self, lane: Lane, pieces: list[Any]) -> None:
        """The lane says all that waits."""
        held = held_pieces(pieces)
        if held is None:
            self._desk.malformed(lane.name, "Holding.waiting")
            return
        for receipt_id in held.keys() | lane.waits.keys():
            self._settle(lane, receipt_id, held.get(receipt_id, 0))

    def _settle(self, lane: Lane, receipt_id: int, waits: int) -> None:
        if waits:
            lane.waits[receipt_id] = waits
        else:
            lane.waits.pop(receipt_id, None)
        self._desk.settle_waits(lane, receipt_id)

    def news(self, words: list[str]) -> None:
        """The database notified of a callback: the finalizer knows whether anybody here waits for it."""
        if len(words) == 3 and len(words[1]) == ID_CHARS and words[2] in WORDS:
            self._desk.out.append(ToFinalizer(CallbackNews(words[1], words[2])))
