"""What the log says of attempts that failed: a line each, and only so many that a storm of failures costs no throughput. Pure."""

from __future__ import annotations

import logging
from typing import Any

from .outcomes import error_line

LINES = 5
WINDOW_S = 10.0
"""So many lines in so long of one kind, those for good apart, from one process; the rest is counted."""
FOR_GOOD = "failed for good"
_TEXT_CHARS = 300

Counted = tuple[int, str]
"""Level and text of a line on failures that had none of their own."""


def failure_line(
    job_id: int, kind: str, attempt: int, max_attempts: int, fate: str, error: dict[str, Any]
) -> str:
    """Return the line of an attempt that failed; `fate`: what becomes of its job. `attempt` 0: nobody knows."""
    which = f"attempt {attempt} of {max_attempts} " if attempt else ""
    text = str(error.get("error") or "").strip().partition("\n")[0][:_TEXT_CHARS]
    said = error_line({"type": error.get("type", "?"), "error": text})
    return f"job {job_id}, kind {kind or '?'}, {which}{fate}: {said}"


def next_try(delay_s: float, *, roughly: bool = False) -> str:
    """Return the fate of a job that is tried again."""
    return f"failed, next try in {'about ' if roughly else ''}{delay_s:.3g} s"


class Throttle:
    """Counts failures by kind and level, in windows of time; kinds without a name are `nameless` together."""

    def __init__(self, nameless: str, most: int = 1 << 20) -> None:
        """`most`: windows at a time; what comes beside them counts as nameless."""
        self._nameless = nameless
        self._most = most
        self._windows: dict[tuple[str, int], list[float]] = {}
        """(kind, level) -> [when it began, how many failed]."""

    def __bool__(self) -> bool:
        return bool(self._windows)

    def may(self, kind: str, level: int, now_s: float) -> bool:
        """Count a failure, and say whether it may have a line of its own; first take what is `over`."""
        if (kind, level) not in self._windows and len(self._windows) >= self._most:
            kind = ""
        window = self._windows.setdefault((kind, level), [now_s, 0])
        window[1] += 1
        return window[1] <= LINES

    def over(self, now_s: float, *, all: bool = False) -> list[Counted]:
        """End the windows whose time is over, or all; returns what is to be told of them."""
        over = [key for key, (since_s, _) in self._windows.items() if all or now_s - since_s >= WINDOW_S]
        told: list[Counted] = []
        for kind, level in over:
            since_s, count = self._windows.pop((kind, level))
            if count > LINES:
                what = f"kind {kind}" if kind else self._nameless
                fate = FOR_GOOD if level == logging.WARNING else "failed, to be tried again"
                text = f"{what}: {int(count) - LINES} more attempts {fate}, in {now_s - since_s:.3g} s"
                told.append((level, text))
        return told

    def due_s(self) -> float | None:
        """Return when there is something to tell of a window; None: of none."""
        return min(
            (since_s + WINDOW_S for since_s, count in self._windows.values() if count > LINES), default=None
        )
