"""Judges what the ledger and the database say of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .ledger import Ledger

CLOCK_S = 0.05
"""A start so little after the job's end may have been stamped in another order than it happened."""
FINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Numbers of jobs; all but `ended` have to be zero."""

    ended: int
    lost: int
    doubled: int
    repeats: int
    """Handlers that were started after their job's end: delivery is at least once, and what they did was not recorded."""
    examples: tuple[tuple[int, str], ...] = ()
    """Jobs and what is wrong with them."""


def judge(ledger: Ledger, rows: list[tuple[Any, ...]]) -> Verdict:
    """Compare; `rows` are of chaos_ends.sql.

    Lost: confirmed and not there, there and never ended, or completed with no handler that returned. Doubled: ended by
    more than one attempt, or in more than one place.
    """
    lost: list[tuple[int, str]] = []
    doubled: list[tuple[int, str]] = []
    seen: set[int] = set()
    ended = repeats = 0
    for job, state, places, ends, completed, ended_at in rows:
        seen.add(job)
        if state not in FINAL:
            lost.append((job, f"is {state}"))
            continue
        ended += 1
        if completed and job not in ledger.returned:
            lost.append((job, "is completed and no handler of it has returned"))
        if places > 1 or ends > 1:
            doubled.append((job, f"ended {ends} times, stands in {places} places"))
        elif ended_at is not None and ledger.began.get(job, 0.0) > ended_at + CLOCK_S:
            repeats += 1
    lost += [(job, "is gone") for job in sorted(ledger.put - seen)]
    return Verdict(ended, len(lost), len(doubled), repeats, (*lost[:20], *doubled[:20]))
