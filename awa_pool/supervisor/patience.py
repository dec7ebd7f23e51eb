"""How long a child may be silent, boot, stand still or take to leave. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .events import WORKER
from .places import Child, Life

SILENCE_S = 5.0
FROZEN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The bounds a supervisor keeps."""

    workers: int
    app: str = ""
    """What workers have to import, for the reason of an end."""
    boot_timeout_s: float = 30.0
    drain_timeout_s: float = 25.0
    silence_s: float = SILENCE_S
    frozen_s: float = FROZEN_S
    """A worker held by a stop signal for so long is as good as dead: what it runs would hang with it for ever."""
    max_rss_bytes: int | None = None
    queues: tuple[str, ...] = ()
    """The queues that were asked for by name."""


def overdue(child: Child, rules: Rules, now_s: float) -> str:
    """Say what a child has taken too long for, "" when nothing."""
    if child.killed_for:
        return ""
    if child.leave_by_s is not None and now_s >= child.leave_by_s:
        return "did not end in time"
    if child.life is Life.BOOTING and now_s - child.since_s > rules.boot_timeout_s:
        return f"was not ready after {rules.boot_timeout_s:g} s"
    frozen_s = rules.frozen_s if child.role == WORKER else min(rules.silence_s, rules.frozen_s)
    if child.frozen_since_s is not None and now_s - child.frozen_since_s >= frozen_s:
        return f"was stopped by a signal for {frozen_s:g} s"
    # A worker says nothing while a handler holds its thread; actors always have time for a sign of life.
    if child.role != WORKER and child.life is Life.READY and now_s - child.heard_s > rules.silence_s:
        return f"has been silent for {rules.silence_s:g} s"
    return ""


def forgive(child: Child, pause_s: float, *, stopping: bool) -> None:
    """Move a child's bounds by the time that the supervisor itself stood still: nobody else is to blame for that."""
    child.heard_s += pause_s
    if child.life is not Life.READY:
        child.since_s += pause_s
    if child.frozen_since_s is not None:
        child.frozen_since_s += pause_s
    if child.retiring and child.leave_by_s is not None and not stopping:
        child.leave_by_s += pause_s
