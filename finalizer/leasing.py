"""Requests to move attempts to leases before their handlers complete them: one call under way, what comes meanwhile joins the next.

Who asks says it again until it is answered, and a move that was made and not answered is answered the second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from awa_pool.events import Trouble
from awa_pool.messages import AttemptLeased, LeaseAttempt

from .events import LeaseAttempts, LeasedRow, Send
from .reading import named_attempt
from .retry import REQUEUE_S

AGAIN_S = 0.2
AWAKE_S = 0.5
"""So long after a request nothing gathers unread. With naps of 50 ms two workers completed 45 jobs/s this way, without them 100, beside 200 of
handlers that commit and return (2026-11-29, a busy machine of 2 cores)."""
MOST_ITEMS = 500
MOST_HELD = 8192


@dataclass(slots=True, eq=False)
class _Request:
    peer: bytes
    number: int
    item: dict[str, Any]


class LeaseRoad:
    """The requests that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, int], _Request] = {}
        self._flying: list[_Request] = []
        self._not_before_s = 0.0
        self._heard_s = -AWAKE_S
        self.leased = 0

    def is_busy(self, now_s: float) -> bool:
        """Say whether handlers ask now: each stands still meanwhile, so what comes is to be read at once."""
        return now_s < self._heard_s + AWAKE_S

    def put(self, peer: bytes, message: LeaseAttempt, now_s: float) -> bool:
        """Take a request, unless it waits here already; False when it cannot be read."""
        item = named_attempt(message)
        if item is None:
            return False
        self._heard_s = now_s
        if len(self._waiting) < MOST_HELD:
            request = _Request(peer, message.request, item)
            self._waiting.setdefault((peer, message.request), request)
        return True

    def due_s(self) -> float | None:
        """Return when `flush` has something to do; None: not before an answer or a message."""
        return self._not_before_s if self._waiting and not self._flying else None

    def flush(self, now_s: float) -> list[LeaseAttempts]:
        """Start the call that is due."""
        if not self._waiting or self._flying or now_s < self._not_before_s:
            return []
        for key in list(self._waiting)[:MOST_ITEMS]:
            self._flying.append(self._waiting.pop(key))
        return [LeaseAttempts([request.item for request in self._flying])]

    def answered(self, rows: Sequence[LeasedRow], now_s: float) -> Iterator[Send]:
        """Yield what those who asked are told; what another session holds comes again in a moment."""
        answers = {row.item: row.status for row in rows}
        flown, self._flying = self._flying, []
        for number, request in enumerate(flown):
            status = answers.get(number, "busy")
            if status == "busy":
                self._comes_again(request)
                self._not_before_s = now_s + REQUEUE_S / 4
            elif status == "invalid":
                yield _answer(request, "refused", "it cannot read this request")
            else:
                self.leased += status == "done"
                yield _answer(request, status)

    def failed(self, trouble: Trouble, error: str, now_s: float) -> Iterator[Send]:
        """The call failed: it comes again, unless the database refuses it; then yield what those who asked are told."""
        flown, self._flying = self._flying, []
        self._not_before_s = now_s + (0.0 if trouble is Trouble.REFUSED else AGAIN_S)
        for request in flown:
            if trouble is Trouble.REFUSED:
                yield _answer(request, "refused", error)
            else:
                self._comes_again(request)

    def _comes_again(self, request: _Request) -> None:
        self._waiting.setdefault((request.peer, request.number), request)


def _answer(request: _Request, status: str, error: str = "") -> Send:
    return Send(request.peer, AttemptLeased(request.number, status, error))
