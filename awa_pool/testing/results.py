"""What tests look at: what was staged, and what became of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from awa_pool.follow_ups import Sealed
from awa_pool.job import Job
from awa_pool.outcomes import error_line
from awa_pool.states import Outcome, State

NO_JOB = "no_job"
STALE = "stale"
_REPR_CHARS = 200
_TOLD = ("reason", "delay_s", "staged", "skipped")


class StagedJob(NamedTuple):
    """A follow-up as it goes into the database: `args` and `metadata` are plain JSON values, `unique_key` is hex."""

    kind: str
    args: dict[str, Any]
    queue: str = "default"
    priority: int = 2
    max_attempts: int = 25
    run_at: datetime | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    tags: tuple[str, ...] = ()
    ordering_key: str | None = None
    deadline_s: float | None = None
    unique_key: str | None = None
    unique_states: int | None = None


def staged_jobs(sealed: Iterable[Sealed]) -> list[StagedJob]:
    """Return sealed requests as readable values."""
    return [_staged_job(orjson.loads(each.text)) for each in sealed]


def jobs_of(follow_ups: bytes) -> list[StagedJob]:
    """Return the follow-ups of an attempt, a JSON array, as readable values."""
    return [_staged_job(item) for item in orjson.loads(follow_ups)] if follow_ups else []


def _staged_job(item: dict[str, Any]) -> StagedJob:
    if (run_at := item.get("run_at")) is not None:
        item["run_at"] = datetime.fromisoformat(run_at)
    item["tags"] = tuple(item.get("tags", ()))
    return StagedJob(**item)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkResult:
    """What became of an attempt. False (as a truth value) when there was no job to work.

    `outcome`: completed, retryable, failed, cancelled, snoozed, waiting_external (parked), returned (interrupted), stale (the attempt was not ours any more: nothing was
    written), or no_job. `state`: the job's state after it, None without a database. `error`: the message as it is
    stored, for no_job why there was none; `error_type` its class. `exception`: what the handler raised. `staged`: the
    follow-ups that came with the outcome, those of specs first; `skipped`: kind, and id of the holder, of those among
    them whose unique key another job holds.
    """

    outcome: str
    job: Job[Any] | None = None
    state: State | None = None
    error: str | None = None
    error_type: str | None = None
    reason: str | None = None
    delay_s: float | None = None
    exception: BaseException | None = None
    staged: tuple[StagedJob, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return self.outcome != NO_JOB

    def __repr__(self) -> str:
        """Say first what went wrong: failed assertions show the beginning."""
        told = (
            []
            if not self.error
            else [error_line({"type": self.error_type, "error": self.error})[:_REPR_CHARS]]
        )
        told += [f"{name}={value!r}" for name in _TOLD if (value := getattr(self, name)) not in (None, ())]
        told += [] if self.job is None else [f"job {self.job.id}, kind {self.job.kind}"]
        return f"<WorkResult {self.outcome}{': ' if told else ''}{'; '.join(told)}>"

    @property
    def is_completed(self) -> bool:
        """It completed, and what it staged is there."""
        return self.outcome == "completed"

    @property
    def is_retryable(self) -> bool:
        """The attempt failed, and there will be another."""
        return self.outcome == "retryable"

    @property
    def is_failed(self) -> bool:
        """The job has failed for good."""
        return self.outcome == "failed"

    @property
    def is_cancelled(self) -> bool:
        """The handler cancelled it."""
        return self.outcome == "cancelled"

    @property
    def is_snoozed(self) -> bool:
        """It comes again later, and the attempt does not count."""
        return self.outcome == "snoozed"

    @property
    def is_waiting(self) -> bool:
        """It returned to wait for a callback; where the answer was there already, `state` is available."""
        return self.outcome == "waiting_external"

    @property
    def is_stale(self) -> bool:
        """The job was cancelled, or taken over, while its handler ran: the result counts for nothing."""
        return self.outcome == STALE

    @property
    def no_job(self) -> bool:
        """There was no job to work."""
        return self.outcome == NO_JOB


def outcome_of(ending: str, attempt: int, max_attempts: int) -> str:
    """Return what an ending means for the job, in the words of `WorkResult.outcome`."""
    match Outcome(ending):
        case Outcome.COMPLETED:
            return "completed"
        case Outcome.SNOOZE:
            return "snoozed"
        case Outcome.CANCEL:
            return "cancelled"
        case Outcome.RETRY | Outcome.LOST if attempt < max_attempts:
            return "retryable"
        case Outcome.RETURN:
            return "returned"
        case Outcome.PARK:
            return "waiting_external"
    return "failed"


def told_of(error: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a result that an error record fills."""
    told = error or {}
    return {"error": told.get("error"), "error_type": told.get("type"), "reason": told.get("reason")}
