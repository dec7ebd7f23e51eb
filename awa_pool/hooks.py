"""What hooks are told of a job: one value a kind of event, each with the job. docs/hooks.md has the rules.

A hook hears of what has been committed, once at most, in a worker or in the client that cancelled the job. What must
not be lost belongs into a follow-up.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .job import Job
from .specs import Event
from .states import Trigger
from .triggers import Callback, Triggers

_log = logging.getLogger("awa_pool.hooks")


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something has happened to `job`."""

    job: Job[Any]

    @property
    def args(self) -> Any:
        """The job's args, of the task's type."""
        return self.job.args


@dataclass(frozen=True, slots=True)
class Started(JobEvent):
    """An attempt begins: its handler is called now."""


@dataclass(frozen=True, slots=True)
class Completed(JobEvent):
    """The job has completed; its handler took `duration_s`."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class Retried(JobEvent):
    """Attempt number `attempt` failed with `error`; the next is due at `next_run_at`."""

    error: str
    attempt: int
    next_run_at: datetime


@dataclass(frozen=True, slots=True)
class Exhausted(JobEvent):
    """The job has failed for good, with `error`."""

    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Cancelled(JobEvent):
    """The job is cancelled."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitingForCallback(JobEvent):
    """The job is parked until a callback."""


@dataclass(frozen=True, slots=True)
class Rescued(JobEvent):
    """An attempt was ended from outside: stale_heartbeat, deadline_exceeded or expired_callback."""

    reason: str


def job_event(event: Event, job: Job[Any], duration_s: float = 0.0) -> JobEvent | None:
    """Return what hooks are told where specs were told `event`; None where something in it is missing."""
    match event:
        case Event(Trigger.COMPLETED):
            return Completed(job, duration_s)
        case Event(Trigger.RETRIED, error, int(attempt), datetime() as at):
            return Retried(job, error or "", attempt, at)
        case Event(Trigger.EXHAUSTED, error, int(attempt)):
            return Exhausted(job, error or "", attempt)
        case Event(Trigger.CANCELLED, reason=reason):
            return Cancelled(job, reason or "")
        case Event(Trigger.RESCUED, reason=reason):
            return Rescued(job, reason or "")
        case Event(Trigger.WAITING_FOR_CALLBACK):
            return WaitingForCallback(job)
    return None


def call_hooks(triggers: Triggers, args_type: Any, event: JobEvent) -> None:
    """Call the hooks of a job's kind in order of registration; what one raises is logged and troubles nobody else.

    Errors: KeyboardInterrupt on the main thread, which is how a user ends a program: the hooks that are left are not called.
    """
    hooks = triggers.hooks(event.job.kind, args_type)
    for number, hook in enumerate(hooks, 1):
        try:
            hook(event)
        except BaseException as problem:
            log_failure(hook, event, problem)
            if issubclass(type(problem), KeyboardInterrupt) and _on_main_thread():
                if left := len(hooks) - number:
                    _log.error("interrupted: %s more hooks of job %s are not called", left, event.job.id)
                raise


def log_failure(hook: Callback, event: JobEvent, problem: BaseException) -> None:
    """Log what a hook raised: type and place, never its text, which may quote args."""
    with contextlib.suppress(
        Exception
    ):  # names and tracebacks may be user code, and so are the app's log handlers
        frames = traceback.extract_tb(problem.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        _log.error(
            "hook %s failed on %s of job %s, kind %s: %s%s",
            getattr(hook, "__qualname__", type(hook).__name__), type(event).__name__, event.job.id, event.job.kind,
            type(problem).__name__, place,
        )  # fmt: skip


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
