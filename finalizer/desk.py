"""What the rooms of the finalizer share: results that are held and for whom, what is said in this step, and the time."""

from __future__ import annotations

from typing import Any

from awa_pool.events import Note
from awa_pool.messages import AttemptsClosed, ResultsCommitted

from .events import Command, Send
from .flush import Result
from .peers import Peer

MAX_PEERS = 2000


class Desk:
    """Results from their coming until their senders know that they are written."""

    def __init__(self) -> None:
        self.out: list[Command] = []
        self.now_s = 0.0
        self.held_jobs = 0
        self.held_bytes = 0
        self.dispatcher: bytes | None = None
        self.dropped = 0
        """Results that could not be read, or that the database would not have at all."""
        self._peers: dict[bytes, Peer] = {}
        self._closed: dict[int, int] = {}
        self._to_ack: set[bytes] = set()

    def note(self, level: int, event: str, **fields: Any) -> None:
        """Say something for the log."""
        self.out.append(Note(level, event, fields))

    # --- senders -------------------------------------------------------------------------------------------

    def peer(self, name: bytes) -> Peer:
        """Return what is known of a lane."""
        peer = self._peers.get(name)
        if peer is None:
            self._forget_peers()
            peer = self._peers[name] = Peer(self.now_s)
        return peer

    def acknowledge_soon(self, name: bytes) -> None:
        """Tell that lane what is committed, as soon as it is worth a message."""
        self._to_ack.add(name)

    def acknowledge_due_s(self) -> list[float]:
        """When lanes are to be told."""
        return [self._peers[name].due_s() for name in self._to_ack]

    def acknowledge(self, *, at_once: bool) -> None:
        """Tell lanes what is committed, and the dispatcher what is off its books."""
        for name in list(self._to_ack):
            peer = self._peers[name]
            if self.now_s < peer.quiet_until_s() and not at_once:
                continue
            committed = peer.ack()
            if committed is not None:
                peer.acked_s, peer.unacked_jobs = self.now_s, 0
                seq, ahead = committed
                self.out.append(Send(name, ResultsCommitted(seq, peer.stale(), ahead)))
            self._to_ack.discard(name)
        if self._closed:
            if self.dispatcher is not None:
                pieces = [[receipt_id, mask] for receipt_id, mask in self._closed.items()]
                self.out.append(Send(self.dispatcher, AttemptsClosed(pieces)))
            self._closed = {}

    def _forget_peers(self) -> None:
        """Lanes come and go for ever: keep the newest that hold nothing here."""
        if len(self._peers) >= MAX_PEERS:
            idle = sorted(
                (p.heard_s, name) for name, p in self._peers.items() if p.idle and name not in self._to_ack
            )
            for _, name in idle[: MAX_PEERS // 2]:
                del self._peers[name]

    # --- results -------------------------------------------------------------------------------------------

    def hold(self, result: Result) -> None:
        """Count a message of results in."""
        self.held_jobs += result.jobs
        self.held_bytes += result.size_bytes

    def close(self, receipt_id: int, mask: int) -> None:
        """These attempts are over in the database: the dispatcher may forget them."""
        self._closed[receipt_id] = self._closed.get(receipt_id, 0) | mask

    def unit_left(self, result: Result | None) -> None:
        """A part of a message has reached its end; with the last one its sender may forget the message."""
        if result is None:
            return
        result.left -= 1
        if result.left == 0:
            self.held_jobs -= result.jobs
            self.held_bytes -= result.size_bytes
            peer = self._peers.get(result.peer)
            if peer is not None:
                peer.committed(result.seq, result.receipt_id, result.stale)
                peer.unacked_jobs += result.jobs
                self._to_ack.add(result.peer)


def not_so(result: Result | None, index: int) -> None:
    """Note that this attempt has not ended as its worker said."""
    if result is not None:
        result.stale |= 1 << index
