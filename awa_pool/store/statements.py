"""Each statement once: which file, which parameters, and how its rows are read.

A function here makes a `Call`; a `Store` runs it on a synchronous connection, the asynchronous client on its own.
The SQL text lies in `sql/queries/<name>.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from awa_pool.job import JobRow

from .stored_json import stored_json

R = TypeVar("R")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One statement with its parameters; `read` makes the typed answer from the rows."""

    query: str
    params: dict[str, Any]
    read: Callable[[Rows], R]
    binary: bool = False  # rows in PostgreSQL's binary form: cheaper for long arrays
    prepared: bool = False  # parsed and planned once a session of ours; only where the columns never change


class ClaimedReceipt(NamedTuple):
    """Jobs claimed together: attempt i is `(slot, receipt_id, nonce, i)`; `bodies` are JSON texts."""

    queue: str
    slot: int
    receipt_id: int
    nonce: int
    priority: int
    job_ids: list[int]
    kinds: list[str]
    bodies: list[str]


class Claimed(NamedTuple):
    """Answer to a claim; `notes` says of each queue that gave nothing why: empty, busy or paused."""

    receipts: list[ClaimedReceipt]
    notes: dict[str, str]


class Closed(NamedTuple):
    """What became of the bits of one receipt: done now, stale, or held elsewhere (try again)."""

    receipt_id: int
    done: int
    stale: int
    busy: int


class Finished(NamedTuple):
    """What became of one finish: status done, stale, busy or invalid; the job's state after it."""

    item: int
    status: str
    state: str | None


class Promoted(NamedTuple):
    """How many due jobs became available, and the seconds until the next is due (None: none)."""

    promoted: int
    next_due_s: float | None


class OpenAttempts(NamedTuple):
    """What the database believes a runtime holds of one receipt; `leases` None means all 1."""

    slot: int
    receipt_id: int
    nonce: int
    open_mask: int
    request_id: int | None
    age_s: float
    job_ids: list[int]
    leases: list[int] | None


class Rescued(NamedTuple):
    """A runtime whose attempts were ended for want of a heartbeat."""

    runtime_id: UUID
    attempts: int


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


class RebasePlan(NamedTuple):
    """What a rebase does (or did): `reason` None says that none is needed; `alive` names pools that beat just now."""

    reason: str | None
    unclaimed: int
    open_attempts: int
    top_job: int
    top_receipt: int
    alive: list[str]


class SchemaFacts(NamedTuple):
    """What a new connection compares."""

    version: int
    engine: str
    system_identifier: int
    cluster_identifier: int
    works_from: int  # oldest schema version whose release may work on this one
    backend_pid: int  # of the server process that answered


# --- readers -------------------------------------------------------------------------------------------------


def _one(rows: Rows) -> Any:
    return rows[0][0]


def _nothing(rows: Rows) -> None:
    return None


def _text(rows: Rows) -> str:
    return str(rows[0][0])


def _claimed(rows: Rows) -> Claimed:
    receipts, notes = [], {}
    for queue, note, *rest in rows:
        if note == "receipt":
            receipts.append(ClaimedReceipt(queue, *rest))
        else:
            notes[queue] = note
    return Claimed(receipts, notes)


def _each(make: Callable[..., R]) -> Callable[[Rows], list[R]]:
    return lambda rows: [make(*row) for row in rows]


def _first(make: Callable[..., R]) -> Callable[[Rows], R]:
    return lambda rows: make(*rows[0])


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


# --- producing and administration ----------------------------------------------------------------------------


def enqueue(
    kind: str,
    args: str,
    queue: str,
    priority: int,
    max_attempts: int,
    run_at: datetime | None,
    metadata: str | None,
    tags: list[str] | None,
    ordering_key: str | None,
    deadline_s: float | None = None,
) -> Call[int]:
    """Put one job in -> its id; `args` and `metadata` are JSON text."""
    params = {
        "kind": kind, "args": args, "queue": queue, "priority": priority, "max_attempts": max_attempts,
        "run_at": run_at, "metadata": metadata, "tags": tags, "ordering_key": ordering_key,
        "deadline_s": deadline_s,
    }  # fmt: skip
    return Call("enqueue", params, _one)


def enqueue_many(jobs: str) -> Call[list[int]]:
    """Put many jobs in, given as a JSON array -> their ids in order."""
    return Call("enqueue_many", {"jobs": jobs}, _one, binary=True)


def copy_target() -> Call[str]:
    """The table that this transaction's COPY goes to, quoted by the database."""
    return Call("copy_target", {}, _text)


def notify_waiters(queues: Sequence[str]) -> Call[None]:
    """Wake dispatchers that wait for these queues."""
    return Call("notify_waiters", {"queues": list(queues)}, _nothing)


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
    return Call("list_jobs" if with_args else "list_job_heads", params, _each(_job_row))


def cancel(job_id: int) -> Call[str]:
    """Cancel a job -> its new state."""
    return Call("cancel", {"job_id": job_id}, _one)


def retry(job_id: int) -> Call[str]:
    """Make a job available now -> its new state."""
    return Call("retry", {"job_id": job_id}, _one)


def queue_stats() -> Call[list[QueueStats]]:
    """Jobs per queue and state."""
    return Call("queue_stats", {}, _each(QueueStats))


def queue_depths() -> Call[list[QueueDepth]]:
    """Depth and lag per queue."""
    return Call("queue_depths", {}, _each(QueueDepth))


def queues() -> Call[list[QueueRow]]:
    """Every queue that has settings or work."""
    return Call("queues", {}, _each(QueueRow))


def runtimes() -> Call[list[RuntimeRow]]:
    """Every runtime seen lately."""
    return Call("runtimes", {}, _each(RuntimeRow))


def pause_queue(queue: str, *, known: bool = False) -> Call[None]:
    """Stop claims of a queue; unless `known`, a name without jobs, settings and waiting pools is refused."""
    return Call("pause_queue", {"queue": queue, "known": known}, _nothing)


def resume_queue(queue: str, *, known: bool = False) -> Call[None]:
    """Let claims of a queue go on; `known` as for `pause_queue`."""
    return Call("resume_queue", {"queue": queue, "known": known}, _nothing)


# --- the pool ------------------------------------------------------------------------------------------------


def claim(
    queues: list[str],
    limits: list[int],
    total: int,
    max_bytes: int,
    chunk: int,
    runtime_id: str | UUID,
    request_id: int,
    waiting: bool,
) -> Call[Claimed]:
    """Claim jobs of several queues."""
    params = {
        "queues": queues, "limits": limits, "total": total, "max_bytes": max_bytes, "chunk": chunk,
        "runtime_id": runtime_id, "request_id": request_id, "waiting": waiting,
    }  # fmt: skip
    return Call("claim", params, _claimed, binary=True)


def complete(
    slots: list[int], receipts: list[int], nonces: list[int], masks: list[int]
) -> Call[list[Closed]]:
    """Complete attempts in bulk."""
    params = {"slots": slots, "receipts": receipts, "nonces": nonces, "masks": masks}
    return Call("complete", params, _each(Closed))


def finish(items: bytes | str) -> Call[list[Finished]]:
    """End attempts with any outcome; `items` is a JSON array."""
    text = items if isinstance(items, str) else items.decode()
    return Call("finish", {"items": text}, _each(Finished))


def open_attempts(runtime_id: str | UUID) -> Call[list[OpenAttempts]]:
    """What the database believes a runtime holds."""
    return Call("open_attempts", {"runtime_id": runtime_id}, _each(OpenAttempts))


def register_runtime(runtime_id: str | UUID, host: str, pid: int, info: str) -> Call[None]:
    """Announce a host's runtime; `info` is a JSON object."""
    params = {"runtime_id": runtime_id, "host": host, "pid": pid, "info": info}
    return Call("register_runtime", params, _nothing)


def heartbeat(runtime_id: str | UUID, info: str) -> Call[str]:
    """Keep a runtime alive -> 'alive', or 'gone' when it was rescued or is unknown."""
    return Call("heartbeat", {"runtime_id": runtime_id, "info": info}, _one)


def say_goodbye(runtime_id: str | UUID) -> Call[None]:
    """A runtime ends by its own will."""
    return Call("say_goodbye", {"runtime_id": runtime_id}, _nothing)


def work_left(queues: Sequence[str]) -> Call[WorkLeft]:
    """What a draining pool has before it."""
    return Call("work_left", {"queues": list(queues)}, _first(WorkLeft))


def known_queues() -> Call[list[str]]:
    """The names of all queues with settings, work or history."""
    return Call("known_queues", {}, lambda rows: [str(row[0]) for row in rows])


def promote(limit: int) -> Call[Promoted]:
    """Make due jobs available."""
    return Call("promote", {"limit": limit}, _first(Promoted))


def rescue_stale(stale_s: float, limit: int) -> Call[list[Rescued]]:
    """End what runtimes without a heartbeat still hold."""
    return Call("rescue_stale", {"stale_s": stale_s, "limit": limit}, _each(Rescued))


def lead(name: str, holder: str | UUID, ttl_s: float) -> Call[bool]:
    """Take or renew the leadership -> whether the holder leads now."""
    return Call("lead", {"name": name, "holder": holder, "ttl_s": ttl_s}, _one)


def step_down(name: str, holder: str | UUID) -> Call[None]:
    """Give the leadership up, if held."""
    return Call("step_down", {"name": name, "holder": holder}, _nothing)


def rotate(min_age_s: float, max_bytes: int) -> Call[str | None]:
    """Seal the current slot and open the next free one -> what was done."""
    return Call("rotate", {"min_age_s": min_age_s, "max_bytes": max_bytes}, _one)


def prune(retention_s: float, history_bytes: int) -> Call[str | None]:
    """Empty exhausted slots whose history is old or large enough -> what was done."""
    return Call("prune", {"retention_s": retention_s, "history_bytes": history_bytes}, _one)


def move_open_attempts(limit: int) -> Call[str | None]:
    """Move what holds up the oldest slots out of the ring -> what was done."""
    return Call("move_open_attempts", {"limit": limit}, _one)


def upkeep(name: str) -> Call[str | None]:
    """One of the steps without parameters: exhaust_slots, sweep, trim_cursors -> what was done."""
    return Call(name, {}, _one)


def ring_status() -> Call[list[SlotStatus]]:
    """The slots of the ring that are not free, oldest first, and what holds them back."""
    return Call("ring_status", {}, _each(SlotStatus))


def rebase_plan() -> Call[RebasePlan]:
    """What a rebase would do; reads the whole ring."""
    return Call("rebase_plan", {}, _first(RebasePlan))


def rebase(force: bool) -> Call[RebasePlan]:
    """Make a restored or copied database this cluster's own -> what was done."""
    return Call("rebase", {"force": force}, _first(RebasePlan))


def check_cluster() -> Call[None]:
    """Raise when this schema was made in another cluster."""
    return Call("check_cluster", {}, _nothing)


def prove_alive() -> Call[int]:
    """The smallest question a connection can answer."""
    return Call("prove_alive", {}, _one)


def schema_facts() -> Call[SchemaFacts | None]:
    """What a new connection compares."""
    return Call("schema_facts", {}, lambda rows: SchemaFacts(*rows[0]) if rows else None)
