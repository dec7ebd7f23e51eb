"""The statements that look at jobs, queues, hosts and the ring, and change nothing; `calls` says what a `Call` is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from awa_pool.job import JobRow

from .calls import Call, Rows, each, first
from .stored_json import stored_json


class WorkLeft(NamedTuple):
    """What a draining pool has before it; counts are capped."""

    available: int
    running: int
    later: int
    parked: int  # wait for an answer, with no handler alive


class QueueStats(NamedTuple):
    """Jobs of one queue per state, `failed` without the `dead` ones; exact unless `counts_are_capped`, then estimates or counts at their cap."""

    queue: str
    available: int
    running: int
    waiting: int  # for a callback
    scheduled: int
    retryable: int
    failed: int
    cancelled: int
    completed: int
    dead: int
    oldest_available_s: float | None
    paused: bool
    counts_are_capped: bool


class QueueDepth(NamedTuple):
    """Depth and lag of one queue, without its history."""

    queue: str
    available: int
    running: int
    waiting: int  # for a callback
    scheduled: int
    retryable: int
    dead: int
    oldest_available_s: float | None
    paused: bool
    counts_are_capped: bool


class QueueRow(NamedTuple):
    """A queue that has settings or work; `deadline_s` and `dlq_retention_s` are None where it has none of its own."""

    queue: str
    paused: bool
    paused_at: datetime | None
    waiting: bool
    deadline_s: float | None
    dlq: bool
    dlq_retention_s: float | None


class RuntimeRow(NamedTuple):
    """A host's runtime as it was last heard of."""

    runtime_id: UUID
    host: str
    pid: int
    state: str
    started_at: datetime
    heartbeat_at: datetime
    heartbeat_age_s: float
    info: dict[str, Any]


class SlotStatus(NamedTuple):
    """A slot of the ring that is not free; `held_by` None: nothing keeps it but its turn."""

    slot: int
    state: str
    state_s: float
    bytes: int
    held_by: str | None
    told: str | None
    held_s: float | None


def _job_row(*columns: Any) -> JobRow:
    row = JobRow(*columns)
    errors = stored_json(row.errors)
    instants = ("run_at", "created_at", "attempted_at", "finalized_at")
    in_utc = {name: at.astimezone(UTC) for name in instants if (at := getattr(row, name)) is not None}
    return row._replace(
        **in_utc,
        args=stored_json(row.args),
        metadata=metadata if isinstance(metadata := stored_json(row.metadata), dict) else {},
        tags=row.tags or [],
        errors=[each for each in errors if isinstance(each, dict)] if isinstance(errors, list) else [],
        runtime_id=str(row.runtime_id) if row.runtime_id is not None else None,
        progress=progress if isinstance(progress := stored_json(row.progress), dict) else None,
    )


def _maybe_job(rows: Rows) -> JobRow | None:
    return _job_row(*rows[0]) if rows else None


def job(job_id: int) -> Call[JobRow | None]:
    """One job by its id."""
    return Call("job", {"job_id": job_id}, _maybe_job)


def list_jobs(
    state: str | None,
    queue: str | None,
    kind: str | None,
    limit: int,
    before_id: int | None,
    *,
    with_args: bool = True,
) -> Call[list[JobRow]]:
    """Newest jobs first; None filters nothing. `with_args=False` leaves args and metadata in the database."""
    params = {"state": state, "queue": queue, "kind": kind, "limit": limit, "before_id": before_id}
    return Call("list_jobs" if with_args else "list_job_heads", params, each(_job_row))


def queue_stats() -> Call[list[QueueStats]]:
    """Jobs per queue and state."""
    return Call("queue_stats", {}, each(QueueStats))


def queue_depths() -> Call[list[QueueDepth]]:
    """Depth and lag per queue."""
    return Call("queue_depths", {}, each(QueueDepth))


def queues() -> Call[list[QueueRow]]:
    """Every queue that has settings or work."""
    return Call("queues", {}, each(QueueRow))


def runtimes() -> Call[list[RuntimeRow]]:
    """Every runtime seen lately."""
    return Call("runtimes", {}, each(RuntimeRow))


def work_left(queues: Sequence[str]) -> Call[WorkLeft]:
    """What a draining pool has before it."""
    return Call("work_left", {"queues": list(queues)}, first(WorkLeft))


def known_queues() -> Call[list[str]]:
    """The names of all queues with settings, work or history."""
    return Call("known_queues", {}, lambda rows: [str(row[0]) for row in rows])


def ring_status() -> Call[list[SlotStatus]]:
    """The slots of the ring that are not free, oldest first, and what holds them back."""
    return Call("ring_status", {}, each(SlotStatus))
