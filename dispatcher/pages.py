"""Looks at a worker's shared page for the recall."""

from __future__ import annotations

import os

from awa_pool.errors import AwaError
from awa_pool.page import read_page

from .events import PagePiece, PageRead, ReadPage


def look(run_dir: str, command: ReadPage, now_s: float) -> PageRead:
    """Read what the page shows of a lane; one that is not there or is no page shows nothing."""
    path = os.path.join(run_dir, f"w{command.worker}-{command.incarnation}.page")
    try:
        view = read_page(path)
    except (AwaError, OSError, ValueError):
        view = None
    lane = None if view is None else view.lanes.get(command.peer.rpartition(b"-")[2].decode(errors="replace"))
    if lane is None:
        return PageRead(command.peer, [], None)
    return PageRead(
        command.peer,
        [PagePiece(marks.receipt_id, marks.started, marks.completed) for marks in lane.journal],
        {(running.receipt_id, running.index): now_s - running.started_s for running in lane.running},
    )
