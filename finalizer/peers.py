"""Who sends results, what of theirs is committed, and which cumulative number may be acknowledged."""

from __future__ import annotations

import math

ACK_S = 0.4
"""Workers are told so often what is committed, at once when they have nothing else in hand: each word wakes a socket
thread beside a running handler, and nothing but the memory of results waits for it."""
ACK_JOBS = 1000


class Peer:
    """The sequence numbers of one lane of one worker incarnation."""

    __slots__ = (
        "_acked", "_ahead", "_done", "_held", "_stale", "acked_s", "dry", "heard_s", "unacked_jobs",
    )  # fmt: skip

    def __init__(self, now_s: float) -> None:
        self._acked = 0
        self._held: set[int] = set()
        self._done: set[int] = set()
        self._ahead: list[int] = []
        self._stale: dict[int, tuple[int, int]] = {}
        self.heard_s = now_s
        self.acked_s = -math.inf
        self.unacked_jobs = 0
        self.dry = True

    def quiet_until_s(self) -> float:
        """Until when an acknowledgement may wait for others to join it."""
        return -math.inf if self.dry or self.unacked_jobs >= ACK_JOBS else self.acked_s + ACK_S

    @property
    def idle(self) -> bool:
        """Nothing of this peer is held here."""
        return not self._held and not self._done

    def take(self, seq: int, oldest: int, now_s: float) -> bool:
        """Note a result that has come; False for one that is here or was committed: a repeat.

        Before `oldest` the lane keeps nothing: an earlier finalizer has acknowledged it.
        """
        self.heard_s = now_s
        if oldest - 1 > self._acked:
            self._acked = oldest - 1
            self._done = {number for number in self._done if number > self._acked}
        if self._stale:
            self._stale = {number: piece for number, piece in self._stale.items() if number >= oldest}
        if seq in self._done:
            self._ahead.append(seq)  # the word of it has not arrived
        if seq in self._held or seq in self._done or seq <= self._acked:
            return False
        self._held.add(seq)
        return True

    def committed(self, seq: int, receipt_id: int = 0, stale: int = 0) -> None:
        """That result has reached its end; `stale` are the attempts of which it is not true."""
        self._held.discard(seq)
        if stale:
            self._stale[seq] = (receipt_id, stale)
        if seq > self._acked:
            self._done.add(seq)
            self._ahead.append(seq)

    def stale(self) -> list[list[int]]:
        """The pieces of acknowledged results that are not true; named until the worker has forgotten those results."""
        return [list(piece) for seq, piece in self._stale.items() if seq <= self._acked or seq in self._done]

    def due_s(self) -> float:
        """When the next acknowledgement need wait for no other."""
        return self.quiet_until_s()

    def ack(self) -> tuple[int, list[int]] | None:
        """The number up to which everything is committed, and those above it not named before; None while nothing is.

        One result may wait long, for a key that somebody holds: what came after it must not fill up the worker's memory.
        """
        while self._acked + 1 in self._done:
            self._acked += 1
            self._done.discard(self._acked)
        ahead, self._ahead = [seq for seq in self._ahead if seq > self._acked], []
        return (self._acked, ahead) if self._acked or ahead else None
