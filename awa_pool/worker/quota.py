"""How many attempts a worker may still start before another takes its place (`--max-jobs-per-worker`)."""

from __future__ import annotations

SOON_S = 0.5
"""A worker that will have done all it may within this asks for its successor, so that nobody waits for its boot."""


class Quota:
    """Counts the starts of both lanes; each count is written by its lane's thread alone."""

    __slots__ = ("async_started", "began_s", "most", "sync_started")

    def __init__(self, most: int, began_s: float) -> None:
        """`most` 0: no limit. `began_s` is when the worker was ready."""
        self.most = most
        self.began_s = began_s
        self.sync_started = 0
        self.async_started = 0

    @property
    def exhausted(self) -> bool:
        """Nothing more may start."""
        return 0 < self.most <= self.sync_started + self.async_started

    def nearly_exhausted(self, now_s: float) -> bool:
        """At the pace so far the rest lasts less than `SOON_S`."""
        started = self.sync_started + self.async_started
        if not self.most or not started:
            return False
        pace_s = (now_s - self.began_s) / started
        return (self.most - started) * pace_s <= SOON_S
