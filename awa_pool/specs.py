"""Registered follow-ups: from how an attempt ends to the jobs that come of it, and what it is when one of them fails.

Runs in the process that knows the app, once the outcome is known and before it is stored. Nothing here talks to anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from .errors import ValidationError
from .follow_ups import Sealed, request_of, seal
from .job import Job
from .outcomes import Backoff, Ending, describe_error, retry_delay_s
from .registry import Registry
from .states import Outcome, Trigger
from .tracing import TRACEPARENT

FOLLOW_UP_FAILED = "follow_up_failed"


@dataclass(frozen=True, slots=True)
class Event:
    """What has become of an attempt, as specs and hooks are told; what does not belong to the outcome is None."""

    trigger: Trigger
    error: str | None = None
    attempt: int | None = None
    next_run_at: datetime | None = None
    reason: str | None = None

    def arguments(self, args: Any, job: Any) -> tuple[Any, ...]:
        """Return what a spec is called with."""
        match self.trigger:
            case Trigger.RETRIED:
                return args, job, self.error, self.attempt, self.next_run_at
            case Trigger.EXHAUSTED:
                return args, job, self.error, self.attempt
            case Trigger.CANCELLED | Trigger.RESCUED:
                return args, job, self.reason
            case _:
                return args, job


class SpecFailed(Exception):
    """A spec raised, or what it made is no valid job; `cause` is what was raised."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(name)
        self.name = name
        self.cause = cause


def event_of(ending: Ending, attempt: int, max_attempts: int, now: datetime) -> Event | None:
    """Return what an ending means to specs; None for what tells nobody anything."""
    text = ending.error["error"] if ending.error else ""
    match ending.outcome:
        case Outcome.COMPLETED:
            return Event(Trigger.COMPLETED, attempt=attempt)
        case Outcome.PARK:
            return Event(Trigger.WAITING_FOR_CALLBACK, attempt=attempt)
        case Outcome.CANCEL:
            return Event(Trigger.CANCELLED, attempt=attempt, reason=text)
        case Outcome.RETRY if attempt < max_attempts:
            at = now + timedelta(seconds=ending.delay_s or 0.0)
            return Event(Trigger.RETRIED, error=text, attempt=attempt, next_run_at=at)
        case Outcome.RETRY | Outcome.FAIL:
            return Event(Trigger.EXHAUSTED, error=text, attempt=attempt)
    return None


def evaluate(registry: Registry, event: Event, job: Job[Any], args_type: Any) -> list[Sealed]:
    """Return what the specs of this outcome put in, in order of registration.

    Errors: SpecFailed, whatever user code raises.
    """
    return list(_evaluated(registry, event, job, args_type))


def _evaluated(registry: Registry, event: Event, job: Job[Any], args_type: Any) -> Iterator[Sealed]:
    for spec in registry.triggers.specs(job.kind, args_type, event.trigger):
        try:
            made = spec(*event.arguments(job.args, job))
            if made is not None:
                yield seal(registry, request_of(made), job.id, job.metadata.get(TRACEPARENT))
        except ValidationError as problem:
            raise SpecFailed(_name(spec), problem) from problem
        except BaseException as problem:
            raise SpecFailed(_name(spec), problem) from problem


def without_specs(
    ending: Ending, failed: SpecFailed, attempt: int, max_attempts: int, backoff: Backoff, rng: Random
) -> Ending:
    """Return how an attempt ends whose spec failed.

    A completion, a cancel or a parking is undone: a failure that tries again, naming the spec. A retry stays the retry it was. An
    end, and what this failure brings to one, says that it lacks its follow-ups.
    """
    problem = describe_error(failed.cause)
    problem["error"] = f"{failed.name}: {problem['error']}"
    if ending.outcome in (Outcome.COMPLETED, Outcome.CANCEL, Outcome.PARK):
        if attempt >= max_attempts:
            return Ending(Outcome.FAIL, error={**problem, "reason": FOLLOW_UP_FAILED})
        return Ending(Outcome.RETRY, retry_delay_s(backoff, attempt, rng), problem)
    if ending.outcome is Outcome.FAIL or attempt >= max_attempts:
        return Ending(Outcome.FAIL, error={**(ending.error or problem), "reason": FOLLOW_UP_FAILED})
    return ending


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
