"""Requests of handlers for callbacks, on their way into the database: one call under way, what comes meanwhile joins the next.

Who asks says it again until it is answered, so nothing here has to outlive this process; and as the request names the id
that the callback is to have, one that was carried out and not answered is answered the second time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from awa_pool.events import Trouble
from awa_pool.messages import CallbackRegistered, RegisterCallback
from awa_pool.rules import NAMES as RULES

from .events import CallbackRow, RegisterCallbacks, Send
from .reading import named_attempt
from .retry import GATHER_S, REQUEUE_S, gathers_until_s

AGAIN_S = 0.2
MOST_ITEMS = 500
MOST_HELD = 8192
Key = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class _Request:
    peer: bytes
    number: int
    item: dict[str, Any]

    @property
    def key(self) -> Key:
        return self.item["receipt_id"], self.item["nonce"], self.item["index"]


class CallbackRoad:
    """The requests that wait, those of an attempt in the order in which they came: a newer callback replaces an older one."""

    def __init__(self) -> None:
        self._waiting: dict[Key, deque[_Request]] = {}
        self._flying: list[_Request] = []
        self._held: set[tuple[bytes, int]] = set()
        self._not_before_s = 0.0  # after a failure
        self._gathers_until_s = 0.0
        self._asked_s = 0.0
        self.registered = 0

    def put(self, peer: bytes, message: RegisterCallback) -> bool:
        """Take a request, unless it is here already; False when it cannot be read."""
        item = _read(message)
        if item is None:
            return False
        if (peer, message.request) not in self._held and len(self._held) < MOST_HELD:
            request = _Request(peer, message.request, item)
            self._held.add((peer, message.request))
            self._waiting.setdefault(request.key, deque()).append(request)
        return True

    def due_s(self) -> float | None:
        """Return when `flush` has something to do; None: not before an answer or a message."""
        return self.gathers_until_s if self._waiting and not self._flying else None

    @property
    def gathers_until_s(self) -> float:
        """Until then nothing is asked: what comes need not be read."""
        full = len(self._waiting) >= MOST_ITEMS
        return self._not_before_s if full else max(self._not_before_s, self._gathers_until_s)

    def flush(self, now_s: float) -> list[RegisterCallbacks]:
        """Start the call that is due, with one request an attempt."""
        if not self._waiting or self._flying or now_s < self.gathers_until_s:
            return []
        for key in list(self._waiting)[:MOST_ITEMS]:
            waiting = self._waiting[key]
            self._flying.append(waiting.popleft())
            if not waiting:
                del self._waiting[key]
        self._asked_s, self._gathers_until_s = now_s, now_s + GATHER_S
        return [RegisterCallbacks([request.item for request in self._flying])]

    def answered(self, rows: Sequence[CallbackRow], now_s: float) -> Iterator[Send]:
        """Yield what those who asked are told; what another session holds comes again in a moment."""
        answers = {row.item: row for row in rows}
        flown, self._flying = self._flying, []
        self._gathers_until_s = gathers_until_s(self._asked_s, now_s)
        for number, request in reversed(list(enumerate(flown))):
            row = answers.get(number)
            if row is None or row.status == "busy":
                self._comes_again(request)
                self._not_before_s = now_s + REQUEUE_S
                continue
            if row.status == "done":
                self.registered += 1
            status = "refused" if row.status == "invalid" else row.status
            error = "it cannot read this request" if row.status == "invalid" else ""
            yield self._answer(request, CallbackRegistered(request.number, status, row.number or 0, error))

    def failed(self, trouble: Trouble, error: str, now_s: float) -> Iterator[Send]:
        """The call failed: it comes again, unless the database refuses it; then yield what those who asked are told."""
        flown, self._flying = self._flying, []
        self._not_before_s = now_s + (0.0 if trouble is Trouble.REFUSED else AGAIN_S)
        for request in reversed(flown):
            if trouble is Trouble.REFUSED:
                yield self._answer(request, CallbackRegistered(request.number, "refused", 0, error))
            else:
                self._comes_again(request)

    def _comes_again(self, request: _Request) -> None:
        self._waiting.setdefault(request.key, deque()).appendleft(request)

    def _answer(self, request: _Request, message: CallbackRegistered) -> Send:
        self._held.discard((request.peer, request.number))
        return Send(request.peer, message)


def _read(message: RegisterCallback) -> dict[str, Any] | None:
    item = named_attempt(message)
    timeout_s = message.timeout_s
    if item is None or type(timeout_s) not in (int, float) or not math.isfinite(timeout_s):
        return None
    if not 1 <= message.nth < 1 << 31:
        return None
    if not all(
        name in RULES and type(text) is str and "\0" not in text for name, text in message.rules.items()
    ):
        return None
    return {
        **item, "timeout_s": timeout_s,
        "wanted_id": message.callback_id, "rules": message.rules or None, "over": message.over or None,
        "nth": message.nth,
    }  # fmt: skip
