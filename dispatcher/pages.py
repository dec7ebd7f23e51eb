"""Looks at workers' shared pages: at one for the recall, at all for the audit."""

from __future__ import annotations

import os

from awa_pool.errors import AwaError
from awa_pool.page.layout import LANES
from awa_pool.page.reading import PageReader, read_page

from .events import PagePiece, PageRead, PageRun, PagesRead, ReadPage, RunningRead


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


def look_everywhere(run_dir: str) -> PagesRead:
    """Read what all workers have started; what is no page, or is being made, shows nothing."""
    started: dict[int, int] = {}
    try:
        names = [name for name in os.listdir(run_dir) if name.endswith(".page")]
    except OSError:
        names = []
    for name in names:
        try:
            view = read_page(os.path.join(run_dir, name))
        except (AwaError, OSError, ValueError):
            continue
        for lane in view.lanes.values() if view is not None else ():
            for marks in lane.journal:
                begun = marks.started | marks.completed
                started[marks.receipt_id] = started.get(marks.receipt_id, 0) | begun
            for running in lane.running:
                started[running.receipt_id] = started.get(running.receipt_id, 0) | 1 << running.index
    return PagesRead(started)


def look_at_running(run_dir: str) -> RunningRead:
    """Read what all workers run now, without what waits for callbacks: what becomes of that, the finalizer tells it."""
    rows: list[PageRun] = []
    try:
        names = [name for name in os.listdir(run_dir) if name.startswith("w") and name.endswith(".page")]
    except OSError:
        names = []
    for name in names:
        number, _, incarnation = name.removeprefix("w").removesuffix(".page").partition("-")
        try:
            worker, reader = int(number), PageReader(os.path.join(run_dir, name))
        except (AwaError, OSError, ValueError):
            continue
        for lane in LANES:
            for run in reader.running(lane, waiting=False):
                attempt = (run.receipt_id, run.nonce, run.index, run.job_id, run.run_lease)
                rows.append(PageRun(worker, incarnation, lane, *attempt, run.started_s))
        reader.close()
    return RunningRead(rows)
