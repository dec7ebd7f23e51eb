"""Log lines of attempts that failed: one each, and only so many that a storm of failures costs no throughput."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from time import monotonic

from awa_pool.outcomes import Ending, error_line
from awa_pool.states import Outcome

from .output import NOBODY, Tags

LINES = 5
WINDOW_S = 10.0
"""So many lines in so long of one kind, those for good apart, from one worker; the rest is counted."""
_TEXT_CHARS = 300

_log = logging.getLogger("awa_pool.worker")


class Failures:
    """Tells failed attempts; for any thread. `kinds`: what the app knows, the others share what may be said of one."""

    def __init__(self, tags: Tags, kinds: Collection[str], clock: Callable[[], float] = monotonic) -> None:
        self._tags = tags
        self._kinds = kinds
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, int], list[float]] = {}
        """(kind, level) -> [when it began, how many failed]."""

    def say(self, job_id: int, kind: str, attempt: int, max_attempts: int, ending: Ending) -> None:
        """Tell how an attempt failed and what becomes of its job; nothing of an ending that is no failure.

        WARNING for good, INFO with another try, DEBUG where its handler asked for that. `attempt` 0: nobody knows.
        """
        if ending.outcome not in (Outcome.FAIL, Outcome.RETRY):
            return
        error = ending.error or {}
        name = error.get("type", "?")
        if ending.outcome is Outcome.FAIL or attempt >= max_attempts:
            level, fate = logging.WARNING, "failed for good"
        else:
            level = logging.DEBUG if name == "RetryAfter" else logging.INFO
            fate = f"failed, next try in {ending.delay_s or 0.0:.3g} s"
        if not _log.isEnabledFor(level) or not self._may(kind if kind in self._kinds else "", level):
            return
        which = f"attempt {attempt} of {max_attempts} " if attempt else ""
        text = error.get("error", "").strip().partition("\n")[0][:_TEXT_CHARS]
        tag = {"job_id": job_id, "job_kind": kind, "job_attempt": attempt}
        said = error_line({"type": name, "error": text})
        self._log(level, f"job {job_id}, kind {kind or '?'}, {which}{fate}: {said}", tag)

    def flush(self, *, all: bool = False) -> None:
        """Tell how many were not told, of windows that are over (or of all); call it now and then."""
        if not self._windows:
            return
        now_s = self._clock()
        with self._lock:
            over = [key for key, (since_s, _) in self._windows.items() if all or now_s - since_s >= WINDOW_S]
            ended = [(key, self._windows.pop(key)) for key in over]
        for (kind, level), (since_s, count) in ended:
            if more := int(count) - LINES if count > LINES else 0:
                what = f"kind {kind}" if kind else "kinds that the app does not know"
                fate = "failed for good" if level == logging.WARNING else "failed, to be tried again"
                self._log(level, f"{what}: {more} more attempts {fate}, in {now_s - since_s:.3g} s", {})

    def _may(self, kind: str, level: int) -> bool:
        now_s = self._clock()
        with self._lock:
            window = self._windows.setdefault((kind, level), [now_s, 0])
            fresh = now_s - window[0] < WINDOW_S
            if fresh:
                window[1] += 1
                return window[1] <= LINES
        self.flush()
        return self._may(kind, level)

    def _log(self, level: int, text: str, tag: dict[str, object]) -> None:
        """Log as no job's own line: what it is about stands in it, and another may be running here."""
        token = self._tags.task_job.set(NOBODY)
        with contextlib.suppress(Exception):  # handlers and filters of the app's own
            _log.log(level, "%s", text, extra=tag)
        self._tags.task_job.reset(token)
