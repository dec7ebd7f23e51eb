"""When a worker makes room for a successor: it has done enough, or has grown too large. Pure."""

from __future__ import annotations

from typing import Any

from awa_pool.messages import REPLACED, Retire, Stop

from .events import Command, Log, Tell, WorkerMeasured
from .places import Child, Life

IDLE_GRACE_S = 60.0
"""A retiring worker that runs nothing has so long to leave; one that runs a job has as long as the job takes."""
NO_HURRY_S = 1e9
_MIB = 1 << 20


class Recycling:
    """Keeps the cap on memory; the worker itself counts its jobs."""

    def __init__(self, max_rss_bytes: int | None) -> None:
        self._cap = max_rss_bytes
        self._warned = False

    def refusal(self, facts: dict[str, Any]) -> str:
        """Say what is wrong with a cap that a worker exceeds before its first job; "" when nothing is."""
        size = facts.get("rss_bytes")
        if self._cap is None or not isinstance(size, int) or size < self._cap:
            return ""
        return (
            f"--max-rss {self._cap / _MIB:.1f} MiB is not above the {size / _MIB:.1f} MiB that a worker of this app has "
            "before its first job; write more, or leave it out"
        )

    def too_large(self, event: WorkerMeasured) -> tuple[str, list[Command]]:
        """Say why a worker has to go, "" when it may stay, and what to log."""
        if self._cap is None or event.rss_bytes <= self._cap:
            return "", []
        if event.jobs_done:
            return f"growing to {event.rss_bytes >> 20} MiB", []
        # Whatever made it so large, each worker does at least one job: the pool must go on.
        if self._warned:
            return "", []
        self._warned = True
        cap, size = self._cap / _MIB, event.rss_bytes / _MIB
        text = f"--max-rss {cap:.1f} MiB is below the {size:.1f} MiB of a worker that has run nothing: each is replaced after a job"
        return "", [Log("warning", text)]

    @staticmethod
    def retire(older: list[Child], dispatcher: Child | None, now_s: float) -> list[Command]:
        """Let those go whose successor is ready."""
        out: list[Command] = []
        for child in older:
            if child.life is Life.READY:
                child.life, child.leave_by_s = Life.STOPPING, now_s + IDLE_GRACE_S
                if dispatcher is not None:
                    out.append(Tell(dispatcher.incarnation, Retire(child.number, child.incarnation)))
                out.append(Tell(child.incarnation, Stop(NO_HURRY_S, REPLACED)))
        return out

    @staticmethod
    def give_time(child: Child, event: WorkerMeasured, now_s: float) -> None:
        """Let a retiring worker stay as long as it runs something."""
        if child.life is Life.STOPPING and child.leave_by_s is not None and event.busy:
            child.leave_by_s = now_s + IDLE_GRACE_S
