"""Tells hooks what has happened to jobs, on a thread of its own: a slow hook holds up other hooks, no handler and no result.

The thread starts with the first event, so a worker whose app has no hooks never has it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from awa_pool.registry import Registry

from .output import Tags
from .process import leave_if_forked

if TYPE_CHECKING:  # loaded by workers whose app has hooks
    from awa_pool.hooks import JobEvent

MOST_WAITING = 10_000
"""Events that wait for slow hooks; what comes on top is dropped."""
QUIET_S = 10.0
"""Drops are told so often at most."""
_log = logging.getLogger("awa_pool.hooks")


class Teller:
    """Takes events from any thread; `close` gives what waits a moment to be told."""

    def __init__(self, registry: Registry, tags: Tags) -> None:
        self._registry = registry
        self._tags = tags
        self._events: queue.SimpleQueue[JobEvent | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closing = False
        self._dropped = 0
        self._quiet_until_s = 0.0

    def tell(self, events: Iterable[JobEvent]) -> None:
        """Have the hooks of these events called soon, in this order. Never blocks."""
        self._start()
        for event in events:
            if self._events.qsize() >= MOST_WAITING:
                self._drop()
            else:
                self._events.put(event)

    def close(self, timeout_s: float) -> None:
        """Wait until all that was taken has been told, `timeout_s` at most."""
        if self._thread is None:
            return
        self._start()
        self._closing = True
        self._events.put(None)
        self._thread.join(timeout_s)
        if left := self._events.qsize():
            _log.warning("hooks are slow: %s events of this worker are told to nobody", left)

    def _start(self) -> None:
        """Start the thread, also where one has died: user code can do that to any thread."""
        if (self._thread is not None and self._thread.is_alive()) or self._closing:
            return
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="awa-pool-hooks", daemon=True)
                self._thread.start()

    def _drop(self) -> None:
        self._dropped += 1
        now_s = monotonic()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + QUIET_S
            _log.warning("hooks are slow: %s events so far are told to nobody", self._dropped)

    def _run(self) -> None:
        while True:
            try:
                if not self._tell_next():
                    return
            except BaseException as problem:  # noqa: BLE001 (raised beside hooks by user code: its text may quote args)
                _log.error("an event was told to nobody: %s", type(problem).__name__)

    def _tell_next(self) -> bool:
        """Wait for an event and call its hooks; False at the end."""
        from awa_pool.hooks import call_hooks

        event = self._events.get()
        if event is None:
            self._tags.task_job.set(None)
            return False
        task = self._registry.tasks.get(event.job.kind)
        self._tags.task_job.set(event.job)
        try:
            call_hooks(self._registry.triggers, dict if task is None else task.args_type, event)
        finally:
            leave_if_forked()
        return True
