"""Carries what handlers say of their progress to the finalizer: a thread and a socket of its own, made by the first word.

So a handler may speak from any thread and never waits; while one computes, its last word is sent all the same. An attempt
is reported a moment after its first word and then once a second at most: a short one that has ended by then is not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from awa_pool.messages import AttemptProgress
from awa_pool.wire import Dealer

if TYPE_CHECKING:
    from .attempt import Attempt

FIRST_S = 0.2
EVERY_S = 1.0
_CLOSE_S = 1.0


class _Word:
    """What one running attempt has said, and when it is reported (None: nothing new)."""

    __slots__ = ("due_s", "earliest_s", "identity", "job")

    def __init__(self, job: Attempt, identity: list[int], earliest_s: float) -> None:
        self.job = job
        self.identity = identity
        self.earliest_s = earliest_s
        self.due_s: float | None = None


class Reporter:
    """`words` holds the attempts that have said anything, until they are settled; its truth costs the hot loop nothing."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.words: dict[tuple[int, int], _Word] = {}
        self._path = str(settings["finalizer_path"])
        self._identity = f"w{settings['worker']}-{settings['incarnation']}-progress"
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_s = 0.0
        self._closing = False

    def say(self, job: Attempt, *, at_once: bool) -> None:
        """Report a job's progress when it is due, `at_once` now. From any thread."""
        now_s = monotonic()
        with self._changed:
            if self._closing:
                return
            word = self.words.get((job.id, job.run_lease))
            if word is None:
                if (identity := identity_of(job)) is None:
                    return  # its attempt has ended
                word = self.words[job.id, job.run_lease] = _Word(job, identity, now_s + FIRST_S)
            word.due_s = now_s if at_once else max(now_s, word.earliest_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="awa-pool-progress", daemon=True)
                self._thread.start()
            elif word.due_s < self._wakes_s:
                self._changed.notify()

    def settle(self, job: Attempt) -> dict[str, Any] | None:
        """Forget an attempt that ends; returns its last word, None if it has said nothing."""
        with self._changed:
            return None if self.words.pop((job.id, job.run_lease), None) is None else job.progress

    def close(self) -> None:
        """Stop the thread and close its socket."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        socket = Dealer(self._path, self._identity)
        try:
            while (items := self._next_items()) is not None:
                socket.send(AttemptProgress(items))
        finally:
            socket.close()

    def _next_items(self) -> list[Any] | None:
        """Wait until words are due, and return them; None at the end."""
        with self._changed:
            while not self._closing:
                now_s = monotonic()
                items: list[Any] = []
                next_s = now_s + 3600.0
                for word in self.words.values():
                    if word.due_s is None:
                        continue
                    if word.due_s <= now_s:
                        items.append([*word.identity, word.job.progress])
                        word.due_s, word.earliest_s = None, now_s + EVERY_S
                    else:
                        next_s = min(next_s, word.due_s)
                if items:
                    return items
                self._wakes_s = next_s
                self._changed.wait(next_s - now_s)
                self._wakes_s = 0.0
        return None


def identity_of(job: Attempt) -> list[int] | None:
    """Return `[slot, receipt_id, nonce, index, job_id, run_lease]`; None once the attempt has ended."""
    piece = job._piece
    if piece is None:
        return None
    for index, body in zip(piece.indexes, piece.bodies, strict=True):
        if body[0] == job.id and isinstance(body, list) and body[4] == job.run_lease:
            if piece.completed >> index & 1:
                return None
            return [piece.slot, piece.receipt_id, piece.nonce, index, job.id, job.run_lease]
    return None
