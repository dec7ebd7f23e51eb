"""Puts together what is seen of the pool: pages, memory, figures, queue depths. Reads, decides nothing."""

from __future__ import annotations

import time
from typing import Any

from awa_pool.errors import AwaError
from awa_pool.metrics import Figures
from awa_pool.page.layout import LANES
from awa_pool.page.reading import PageReader

from .core import Supervisor
from .events import ACTORS, DISPATCHER, FINALIZER, MAINTENANCE
from .health import PartsSeen
from .heartbeat import Heart
from .places import Child, Life, Place
from .processes import Fleet, Handle
from .run_dir import RunDir
from .snapshot import PoolSnapshot, QueueView, Rate, WorkerView


class Painter:
    """Keeps each worker's page mapped, and paints `PoolSnapshot` and `PartsSeen` on demand."""

    def __init__(
        self, core: Supervisor, fleet: Fleet, run_dir: RunDir, figures: Figures, app: str, began_s: float
    ) -> None:
        self.heart: Heart | None = None
        self.stopped: set[str] = set()
        """Incarnations of workers that a signal has stopped."""
        self.seen: PartsSeen | None = None
        """What the endpoint answers from; replaced as a whole, so that its thread may read it."""
        self.latest: PoolSnapshot | None = None
        """The newest picture, for the endpoint's thread."""
        self._core = core
        self._fleet = fleet
        self._run_dir = run_dir
        self._figures = figures
        self._app = app
        self._began_s = began_s
        self._rate = Rate()
        self._readers: dict[str, PageReader] = {}

    def jobs_done(self, handle: Handle) -> int:
        """Return how many attempts a worker has ended."""
        reader = self.reader(handle)
        return reader.jobs_done() if reader is not None else 0

    def is_busy(self, handle: Handle) -> bool:
        """Say whether a worker's page shows anything running."""
        reader = self.reader(handle)
        return reader is not None and any(True for lane in LANES for _ in reader.running(lane))

    def forget(self, incarnation: str) -> None:
        """Unmap the page of a dead worker."""
        reader = self._readers.pop(incarnation, None)
        if reader is not None:
            reader.close()
        self.stopped.discard(incarnation)

    def note(self, now_s: float) -> None:
        """Renew `seen`."""
        core, heart = self._core, self.heart
        ready = [
            child
            for place in core.workers()
            for child in (place.child, *place.older)
            if child is not None and child.life is Life.READY and child.incarnation not in self.stopped
        ]
        self.seen = PartsSeen(
            at_s=now_s,
            stopping=core.stopping is not None,
            gave_up=core.gave_up,
            dispatcher_silent_s=_silence(core.child_of(DISPATCHER), now_s),
            finalizer_silent_s=_silence(core.child_of(FINALIZER), now_s),
            maintenance_silent_s=_silence(core.child_of(MAINTENANCE), now_s),
            workers_wanted=core.rules.workers,
            workers_ready=len(ready),
            claiming=bool(self._figures.newest(DISPATCHER).get("store_up", True)),
            accepting=bool(self._figures.newest(FINALIZER).get("store_up", True)),
            database_up=None if heart is None else heart.up,
            database_reason="" if heart is None else heart.reason,
            database_silent_s=0.0 if heart is None else heart.silence_s(now_s),
        )

    def paint(self, now_s: float) -> PoolSnapshot:
        """Return the whole pool at this moment."""
        core, heart = self._core, self.heart
        ended = self._figures.ended()
        views = tuple(self._worker(place, now_s) for place in core.workers())
        self.latest = PoolSnapshot(
            at_s=now_s,
            uptime_s=now_s - self._began_s,
            phase=_phase(core),
            database=_database(heart),
            app=self._app,
            workers=views,
            queues=tuple(_queue(depth) for depth in (heart.depths if heart is not None else [])),
            ended=ended,
            jobs_per_s=self._rate.take(sum(ended.values()), now_s),
            in_flight=sum(self._figures.newest(DISPATCHER).get("in_flight", {}).values()),
            restarts=dict(core.restarts),
            killed=dict(core.killed),
            actors={role: _state(core.child_of(role)) for role in ACTORS},
        )
        return self.latest

    def _worker(self, place: Place, now_s: float) -> WorkerView:
        child = place.child or (place.older[-1] if place.older else None)
        handle = self._fleet.handle(child.incarnation) if child is not None else None
        if child is None or handle is None:
            return WorkerView(number=place.number, incarnation="", pid=0, state="empty")
        reader = self.reader(
            handle
        )  # not the whole page: its journal is long, and this is read twice a second
        found = (
            [each for lane in LANES for each in reader.running(lane, waiting=False)]
            if reader is not None
            else []
        )
        running = sorted(found, key=lambda each: each.started_s)
        waiting = reader.waiting() if reader is not None else 0
        state = child.life.value
        if child.incarnation in self.stopped:
            state = "stopped"
        elif child.life is Life.READY:
            state = "busy" if running else "waiting" if waiting else "idle"
        return WorkerView(
            number=place.number,
            incarnation=child.incarnation,
            pid=handle.pid,
            state=state,
            kind=running[0].kind if running else "",
            running=len(running),
            running_s=max(0.0, now_s - running[0].started_s) if running else 0.0,
            waiting=waiting,
            jobs_done=reader.jobs_done() if reader is not None else 0,
            rss_bytes=handle.rss_bytes,
        )

    def reader(self, handle: Handle) -> PageReader | None:
        """Return the page of a worker, mapped; None before it made one."""
        reader = self._readers.get(handle.incarnation)
        if reader is None:
            try:
                reader = PageReader(self._run_dir.page_path(handle.number, handle.incarnation))
            except (AwaError, OSError, ValueError):
                return None
            self._readers[handle.incarnation] = reader
        return reader


def _silence(child: Child | None, now_s: float) -> float | None:
    if child is None or child.life in (Life.UNINSTRUCTED, Life.BOOTING):
        return None
    return now_s - child.heard_s


def _phase(core: Supervisor) -> str:
    if core.stopping is not None:
        return "stopping"
    return "running" if core.was_ready or not core.rules.workers else "starting"


def _state(child: Child | None) -> str:
    return "empty" if child is None else child.life.value


def _database(heart: Heart | None) -> str:
    if heart is None or heart.up is None:
        return "connecting"
    if heart.up and heart.silence_s(time.monotonic()) < 5.0:
        return "up"
    return heart.reason or "does not answer"


def _queue(depth: Any) -> QueueView:
    return QueueView(
        queue=depth.queue,
        available=depth.available,
        running=depth.running,
        waiting=depth.waiting,
        scheduled=depth.scheduled,
        retryable=depth.retryable,
        dead=depth.dead,
        oldest_available_s=depth.oldest_available_s,
        paused=bool(depth.paused),
    )
