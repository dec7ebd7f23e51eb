"""Failed attempts of which no worker tells: they died with theirs, were lost, or their ends could not be stored as they were."""

from __future__ import annotations

import logging

from awa_pool.failures import FOR_GOOD, Throttle, failure_line, next_try
from awa_pool.outcomes import BACKOFF_CAP_S
from awa_pool.states import State

from .desk import Desk
from .events import Tell
from .flush import Item

MOST_WINDOWS = 64
"""Kinds beyond share what may be said of one: the app's are not known here."""


class Failing:
    """Has a line written for each, once its end is committed, in the words of the workers and as seldom in a storm."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._throttle = Throttle("other kinds", MOST_WINDOWS)

    def say(self, item: Item, state: str | None) -> None:
        """Tell how an attempt has ended, whose job is in that state now: WARNING for good, else INFO."""
        level, fate = logging.INFO, _fate(item)
        if state == State.FAILED:
            level, fate = logging.WARNING, FOR_GOOD
        elif state == State.CANCELLED:
            fate = "failed, and is cancelled, as another job holds its unique key"
        self.flush()
        if self._throttle.may(item.kind, level, self._desk.now_s):
            job_id, error = item.values["job_id"], item.values.get("error") or {}
            text = failure_line(job_id, item.kind, item.attempt, item.max_attempts, fate, error)
            tag = {"job_id": job_id, "job_kind": item.kind, "job_attempt": item.attempt}
            self._desk.out.append(Tell(level, text, tag))

    def due_s(self) -> float | None:
        """When there are failures to be told by their number."""
        return self._throttle.due_s()

    def flush(self, *, all: bool = False) -> None:
        """Tell how many had no line, of windows that are over, or of all."""
        if self._throttle:
            for level, text in self._throttle.over(self._desk.now_s, all=all):
                self._desk.out.append(Tell(level, text, {}))


def _fate(item: Item) -> str:
    delay_s = item.values.get("delay_s")
    if delay_s is not None:
        return next_try(delay_s)
    if item.attempt:  # the database adds up to a quarter
        return next_try(min(2.0 ** min(item.attempt, 20), BACKOFF_CAP_S), roughly=True)
    return "failed, to be tried again"
