"""How jobs that wait for callbacks look to people."""

from __future__ import annotations

from collections.abc import Iterable

from awa_pool.store.callbacks import JobWaiting, Waiting

from . import render

MOST_TOLD = 5  # of many, those that time out first


def line(waits: Waiting) -> str:
    """Say which callback a job waits for; never its id, which is a secret."""
    since, until = render.moment(waits.since), render.moment(waits.until)
    return f"for callback #{waits.number} since {since}, until {until}"


def told(rows: list[JobWaiting], counted: Iterable[int]) -> list[str]:
    """Return a line for each of these jobs, and how many more wait of those that the queues have counted."""
    lines = [f"job {row.job_id} ({render.plain(row.kind)}): waiting {line(row.callback)}" for row in rows]
    more = sum(counted) - len(rows)
    if len(rows) == MOST_TOLD and more > 0:  # fewer rows: all there are, the count is of another moment
        lines.append(f"… and {more:,} more, which time out later")
    return lines
