"""Log lines of attempts that failed: one each, and only so many that a storm of failures costs no throughput."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from time import monotonic

from awa_pool.failures import FOR_GOOD, Throttle, failure_line, next_try
from awa_pool.outcomes import Ending
from awa_pool.states import Outcome

from .output import NOBODY, Tags

_log = logging.getLogger("awa_pool.worker")


class Failures:
    """Tells failed attempts; for any thread. `kinds`: what the app knows, the others share what may be said of one."""

    def __init__(self, tags: Tags, kinds: Collection[str], clock: Callable[[], float] = monotonic) -> None:
        self._tags = tags
        self._kinds = kinds
        self._clock = clock
        self._lock = threading.Lock()
        self._throttle = Throttle("kinds that the app does not know")

    def say(self, job_id: int, kind: str, attempt: int, max_attempts: int, ending: Ending) -> None:
        """Tell how an attempt failed and what becomes of its job; nothing of an ending that is no failure.

        WARNING for good, INFO with another try, DEBUG where its handler asked for that. `attempt` 0: nobody knows.
        """
        if ending.outcome not in (Outcome.FAIL, Outcome.RETRY):
            return
        error = ending.error or {}
        if ending.outcome is Outcome.FAIL or attempt >= max_attempts:
            level, fate = logging.WARNING, FOR_GOOD
        else:
            level = logging.DEBUG if error.get("type") == "RetryAfter" else logging.INFO
            fate = next_try(ending.delay_s or 0.0)
        if not _log.isEnabledFor(level):
            return
        self.flush()
        with self._lock:
            may = self._throttle.may(kind if kind in self._kinds else "", level, self._clock())
        if may:
            tag = {"job_id": job_id, "job_kind": kind, "job_attempt": attempt}
            self._log(level, failure_line(job_id, kind, attempt, max_attempts, fate, error), tag)

    def flush(self, *, all: bool = False) -> None:
        """Tell how many were not told, of windows that are over (or of all); call it now and then."""
        if not self._throttle:
            return
        with self._lock:
            over = self._throttle.over(self._clock(), all=all)
        for level, text in over:
            self._log(level, text, {})

    def _log(self, level: int, text: str, tag: dict[str, object]) -> None:
        """Log as no job's own line: what it is about stands in it, and another may be running here."""
        token = self._tags.task_job.set(NOBODY)
        with contextlib.suppress(Exception):  # handlers and filters of the app's own
            _log.log(level, "%s", text, extra=tag)
        self._tags.task_job.reset(token)
