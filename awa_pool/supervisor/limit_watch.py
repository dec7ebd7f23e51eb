"""Looks at the workers' pages for attempts whose time is over; the eyes of `limits`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from awa_pool.page.layout import LANES
from awa_pool.page.reading import PageReader, Running

from .events import WORKER, LimitsSeen
from .limits import Attempt, Held, Limits
from .picture import Painter
from .processes import Fleet

OFTEN_S = 0.2
SELDOM_S = 1.0
"""How soon a first attempt with a deadline is noticed, in a pool that had none of late."""
LATELY_S = 10.0
SHARE = 50
"""Looking takes at most one part in so many of the supervisor's time."""


class LimitWatch:
    """Reads a page only where an attempt with a deadline has started, or one was cancelled."""

    def __init__(self, limits: Limits, fleet: Fleet, painter: Painter) -> None:
        self._limits = limits
        self._fleet = fleet
        self._painter = painter
        self._started: dict[str, int] = {}
        self._next_s = 0.0
        self._lately_s = -LATELY_S

    def due_s(self) -> float:
        """Return when to look again."""
        step_s = self._limits.due_s()
        return self._next_s if step_s is None else min(self._next_s, step_s)

    def look(self, now_s: float) -> Iterator[LimitsSeen]:
        """Yield what each page shows that matters; take the time of each event anew, as looking takes a while."""
        began_s = time.process_time()
        handles = [handle for handle in self._fleet.handles() if handle.role == WORKER]
        self._started = {each.incarnation: self._started.get(each.incarnation, 0) for each in handles}
        for handle in handles:
            reader = self._painter.reader(handle)
            if reader is None:
                continue
            started, before = reader.deadlines(), self._started[handle.incarnation]
            if started != before:
                self._started[handle.incarnation] = started
                self._lately_s = now_s
            if started != before or self._limits.concerns(handle.incarnation):
                running = _running(reader)
                held = tuple(map(_held, running))
                yield LimitsSeen(handle.incarnation, held, alone=len(running) < 2)
        pause_s = OFTEN_S if now_s - self._lately_s < LATELY_S else SELDOM_S
        self._next_s = now_s + max(pause_s, SHARE * (time.process_time() - began_s))

    def shows(self, incarnation: str, attempts: tuple[Attempt, ...], *, alone: bool = False) -> bool:
        """Say whether that worker's page still shows one of these attempts (and, if `alone`, no other)."""
        handle = self._fleet.handle(incarnation)
        reader = None if handle is None else self._painter.reader(handle)
        if reader is None:
            return False
        running = [_held(each).attempt for each in _running(reader)]
        return any(attempt in attempts for attempt in running) and not (alone and len(running) > 1)


def _running(reader: PageReader) -> list[Running]:
    return [running for lane in LANES for running in reader.running(lane)]


def _held(running: Running) -> Held:
    attempt = Attempt(running.receipt_id, running.nonce, running.index)
    return Held(
        attempt, running.job_id, running.kind, running.deadline_s, running.grace_s, running.cancel_kill
    )
