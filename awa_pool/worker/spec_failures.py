"""Registered functions (specs) that failed: each is logged and counted, whatever becomes of the outcome that it was called for."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from awa_pool.states import Trigger

if TYPE_CHECKING:  # 1 MiB that a worker without specs can do without
    from awa_pool.specs import SpecFailed

_log = logging.getLogger(__name__)


class SpecFailures:
    """Tells them and counts them; for any thread: both lanes of a worker call specs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: dict[str, int] = {}
        self._given_up = 0

    def note(self, kind: str, trigger: Trigger, failed: SpecFailed) -> None:
        """A function that was called for this outcome of a job raised, or what it made is no valid job."""
        with self._lock:
            self._failed[str(trigger)] = self._failed.get(str(trigger), 0) + 1
        _log.error("a spec of kind %s failed: %s: %s", kind, failed.name, type(failed.cause).__name__)

    def note_given_up(self, job_id: Any, tries: int, cause: BaseException) -> None:
        """An owed outcome of that job has been tried for the last time; its follow-ups will never be."""
        with self._lock:
            self._given_up += 1
        _log.error(
            "follow-ups of job %s are given up after %s tries: %s", job_id, tries, type(cause).__name__
        )

    def figures(self) -> dict[str, Any]:
        """Return the counts, for `Stats`."""
        with self._lock:
            return {"specs_failed": dict(self._failed), "owed_given_up": self._given_up}
