"""The live picture of a pool: a line per worker, the queues, the rates."""

from __future__ import annotations

import logging
import threading
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from awa_pool.supervisor.snapshot import PoolSnapshot, QueueView, WorkerView

from . import render
from .terminal import JOIN_S

_log = logging.getLogger("awa_pool.supervisor")

STYLES = {"busy": "green", "idle": "", "waiting": "", "booting": "yellow", "starting": "yellow", "empty": "red", "stopped": "red",
          "stopping": "yellow"}  # fmt: skip
OTHER_LINES = 7  # head, headings, foot, and room for what is printed above
MOST_QUEUES = 8
_BAD = ("fail", "lost", "deadline_exceeded")
_WIDTHS = {"worker": 6, "pid": 7, "state": 8, "job": 22, "for": 6, "jobs done": 10, "memory": 8}


class LiveView:
    """Redraws itself with every snapshot; use as a context manager around the pool's run.

    A thread draws: on a terminal that was stopped (Ctrl-S) it waits, and the pool does not.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: PoolSnapshot | None = None
        self._due = threading.Event()
        self._over = False
        self._painter = threading.Thread(target=self._draw, name="live view", daemon=True)
        self._live = Live(console=console, auto_refresh=False, transient=True,
                          redirect_stdout=False, redirect_stderr=False)  # fmt: skip

    def __enter__(self) -> Self:
        self._live.start()
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._due.set()
        self._painter.join(JOIN_S)
        if self._painter.is_alive():
            return  # nobody looks: it would wait, and hold up the end of the pool
        self._live.stop()
        if self._last is not None:
            self._console.print(last_line(self._last))

    def show(self, snapshot: PoolSnapshot) -> None:
        """Draw the newest picture."""
        self._last = snapshot
        self._due.set()

    def _draw(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            try:
                if self._last is not None:
                    self._live.update(picture(self._last, self._console.size.height), refresh=True)
            except Exception:  # noqa: BLE001 (whatever a view raises, jobs go on)
                _log.exception("the live picture failed; the pool goes on without it")
                return
            if self._over:
                return


def picture(snapshot: PoolSnapshot, height: int) -> RenderableType:
    """Return the whole picture, at most about `height` lines high."""
    queues = snapshot.queues[:MOST_QUEUES]
    room = max(1, height - OTHER_LINES - len(queues))
    workers = snapshot.workers if len(snapshot.workers) <= room else snapshot.workers[: room - 1]
    parts: list[RenderableType] = [_head(snapshot), _workers(workers, snapshot.phase)]
    hidden = len(snapshot.workers) - len(workers)
    if hidden > 0:
        busy = sum(worker.state == "busy" for worker in snapshot.workers[len(workers) :])
        parts.append(Text(f"… and {hidden} more workers, {busy} of them busy", style="dim"))
    if queues:
        parts.append(_queues(queues))
    return Group(*parts)


def last_line(snapshot: PoolSnapshot) -> Text:
    """Return what stays on the terminal when the picture is gone."""
    line = Text.assemble((snapshot.app, "bold"), f"  ended after {render.span(snapshot.uptime_s)}")
    return line.append_text(_outcomes(snapshot))


def _outcomes(snapshot: PoolSnapshot) -> Text:
    told = Text()
    for outcome, count in snapshot.ended.items():
        if count:
            told.append(f"  {count:,} {outcome}", style="red" if outcome in _BAD else "")
    return told


def _head(snapshot: PoolSnapshot) -> Text:
    head = Text.assemble((snapshot.app, "bold"), f"  {snapshot.phase} {render.span(snapshot.uptime_s)}")
    head.append(f"  {snapshot.jobs_per_s:,.0f} jobs/s", style="bold")
    head.append(f"  {snapshot.in_flight:,} in flight")
    for outcome, count in snapshot.ended.items():
        if count:
            head.append(f"  {count:,} {outcome}", style="red" if outcome in _BAD else "")
    if snapshot.database != "up":
        head.append(f"  database: {render.plain(snapshot.database)}", style="red")
    replaced = sum(snapshot.restarts.values())
    if replaced:
        head.append(f"  {replaced} restarts", style="yellow")
    return head


def _workers(workers: tuple[WorkerView, ...], phase: str) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name, width in _WIDTHS.items():  # fixed, so that nothing jumps when a value gets longer
        made.add_column(
            name, justify="left" if name in ("state", "job") else "right", no_wrap=True, min_width=width
        )
    for worker in workers:
        ended = phase == "stopping" and worker.state == "empty"
        kind = render.plain(worker.kind) + (f" +{worker.running - 1}" if worker.running > 1 else "")
        if worker.waiting:
            kind += f"{', ' if kind else ''}{worker.waiting:,} waiting"
        made.add_row(
            str(worker.number),
            str(worker.pid or "–"),
            Text("ended", style="dim") if ended else Text(worker.state, style=STYLES.get(worker.state, "")),
            Text(kind),
            render.span(worker.running_s) if worker.running else "",
            f"{worker.jobs_done:,}",
            render.size(worker.rss_bytes) if worker.rss_bytes else "–",
        )
    return made


def _queues(queues: tuple[QueueView, ...]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("queue", "available", "running", "waiting", "later", "dead", "oldest"):
        left = name == "queue"
        made.add_column(name, justify="left" if left else "right", no_wrap=True, min_width=14 if left else 7)
    for queue in queues:
        made.add_row(
            Text(render.plain(queue.queue) + (" (paused)" if queue.paused else "")),
            f"{queue.available:,}",
            f"{queue.running:,}",
            f"{queue.waiting:,}",
            f"{queue.scheduled + queue.retryable:,}",
            Text(f"{queue.dead:,}", style="red" if queue.dead else ""),
            render.span(queue.oldest_available_s),
        )
    return made
