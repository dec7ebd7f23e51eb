"""Who sends results, what of theirs is committed, and which cumulative number may be acknowledged."""

from __future__ import annotations

import math

ACK_S = 0.2
"""Workers are told so often what is committed, at once when they have nothing else in hand: each word wakes a socket
thread beside a running handler, and nothing but the memory of results waits for it."""
ACK_JOBS = 1000
FIRST_CONTACT_S = 3.0
"""A peer whose first message is not its first result may have older ones on the way: it sends everything that is not
acknowledged again after a second, and no cumulative number may cover what has not come by then."""


class Peer:
    """The sequence numbers of one lane of one worker incarnation."""

    __slots__ = (
        "_acked", "_done", "_held", "_lowest", "_settled_s", "acked_s", "dry", "heard_s", "unacked_jobs",
    )  # fmt: skip

    def __init__(self, seq: int, now_s: float) -> None:
        self._acked = seq - 1 if seq <= 1 else -1
        self._lowest = seq
        self._settled_s = now_s if seq <= 1 else now_s + FIRST_CONTACT_S
        self._held: set[int] = set()
        self._done: set[int] = set()
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

    def take(self, seq: int, now_s: float) -> bool:
        """Note a result that has come; False for one that is here or was committed: a repeat."""
        self.heard_s = now_s
        if seq in self._held or seq in self._done or seq <= self._acked:
            return False
        self._lowest = min(self._lowest, seq)
        self._held.add(seq)
        return True

    def committed(self, seq: int) -> None:
        """That result has reached its end."""
        self._held.discard(seq)
        if seq > self._acked:
            self._done.add(seq)

    @property
    def unsettled(self) -> bool:
        """Something is committed, and it is too early for a first acknowledgement."""
        return self._acked < 0 and bool(self._done)

    def due_s(self) -> float:
        """When the next acknowledgement is possible and need wait for no other."""
        quiet_s = self.quiet_until_s()
        return max(quiet_s, self._settled_s) if self.unsettled else quiet_s

    def ack(self, now_s: float) -> int | None:
        """The number up to which everything is committed; None while that is not known or nothing is."""
        if self._acked < 0:
            if now_s < self._settled_s:
                return None
            self._acked = self._lowest - 1
        while self._acked + 1 in self._done:
            self._acked += 1
            self._done.discard(self._acked)
        return self._acked or None
