"""The pool at one moment, for people and for the endpoint: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker. `state` is empty, starting, booting, idle, waiting (all it runs waits for callbacks), busy, stopped or stopping."""

    number: int
    incarnation: str
    pid: int
    state: str
    kind: str = ""  # of the job that runs longest
    running: int = 0
    running_s: float = 0.0
    waiting: int = 0  # handlers that wait for callbacks, beside those that run
    jobs_done: int = 0
    rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue, as sampled every few seconds."""

    queue: str
    available: int
    running: int
    waiting: int = 0  # for a callback
    scheduled: int
    retryable: int
    dead: int
    oldest_available_s: float | None
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The whole pool; rates are over the last seconds, totals since its start."""

    at_s: float  # monotonic
    uptime_s: float
    phase: str  # starting, running, stopping
    database: str  # "up", or why it is not
    app: str
    workers: tuple[WorkerView, ...]
    queues: tuple[QueueView, ...]
    ended: dict[str, int]  # outcome -> attempts
    jobs_per_s: float
    in_flight: int
    restarts: dict[str, int]
    actors: dict[str, str]  # role -> state
    killed: dict[str, int] = field(
        default_factory=dict
    )  # workers killed for one of their attempts, by reason


class Observer(Protocol):
    """Who wants to see the pool live; called from the supervisor's loop, so it must be quick."""

    def show(self, snapshot: PoolSnapshot) -> None:
        """Take the newest picture, about twice a second."""
        ...


class Rate:
    """Events per second over a sliding window, from a count that only grows."""

    def __init__(self, window_s: float = 3.0) -> None:
        self._window_s = window_s
        self._points: list[tuple[float, int]] = []

    def take(self, count: int, now_s: float) -> float:
        """Add a point and return the rate."""
        self._points.append((now_s, count))
        while len(self._points) > 2 and self._points[1][0] < now_s - self._window_s:
            self._points.pop(0)
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else 0.0
