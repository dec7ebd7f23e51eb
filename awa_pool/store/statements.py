"""Each statement once: which file, which parameters, and how its rows are read; here those that put jobs in, change them, and work them.

A function here makes a `Call`; a `Store` runs it on a synchronous connection, the asynchronous client on its own.
The SQL text lies in `sql/queries/<name>.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from .calls import Call, Rows, each, nothing, one, text


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


class SchemaFacts(NamedTuple):
    """What a new connection compares."""

    version: int
    engine: str
    system_identifier: int
    cluster_identifier: int
    works_from: int  # oldest schema version whose release may work on this one
    backend_pid: int  # of the server process that answered
    server_encoding: str
    client_encoding: str  # in force, as is the next
    isolation: str
    role: str  # who asked, and where, both quoted
    database: str
    owns: bool  # whether that role may act as the owner of the tables
    owner: str


def _claimed(rows: Rows) -> Claimed:
    receipts, notes = [], {}
    for queue, note, *rest in rows:
        if note == "receipt":
            receipts.append(ClaimedReceipt(queue, *rest))
        else:
            notes[queue] = note
    return Claimed(receipts, notes)


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
    return Call("enqueue", params, one)


def enqueue_many(jobs: str) -> Call[list[int]]:
    """Put many jobs in, given as a JSON array -> their ids in order."""
    return Call("enqueue_many", {"jobs": jobs}, one)


def copy_target() -> Call[str]:
    """The table that this transaction's COPY goes to, quoted by the database."""
    return Call("copy_target", {}, text)


def notify_waiters(queues: Sequence[str]) -> Call[None]:
    """Wake dispatchers that wait for these queues."""
    return Call("notify_waiters", {"queues": list(queues)}, nothing)


def cancel(job_id: int) -> Call[str]:
    """Cancel a job -> its new state."""
    return Call("cancel", {"job_id": job_id}, one)


def retry(job_id: int) -> Call[str]:
    """Make a job available now -> its new state."""
    return Call("retry", {"job_id": job_id}, one)


def pause_queue(queue: str, *, known: bool = False) -> Call[None]:
    """Stop claims of a queue; unless `known`, a name without jobs, settings and waiting pools is refused."""
    return Call("pause_queue", {"queue": queue, "known": known}, nothing)


def resume_queue(queue: str, *, known: bool = False) -> Call[None]:
    """Let claims of a queue go on; `known` as for `pause_queue`."""
    return Call("resume_queue", {"queue": queue, "known": known}, nothing)


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
    return Call("claim", params, _claimed)


def complete(
    slots: list[int], receipts: list[int], nonces: list[int], masks: list[int]
) -> Call[list[Closed]]:
    """Complete attempts in bulk."""
    params = {"slots": slots, "receipts": receipts, "nonces": nonces, "masks": masks}
    return Call("complete", params, each(Closed))


def finish(items: bytes | str) -> Call[list[Finished]]:
    """End attempts with any outcome; `items` is a JSON array."""
    text = items if isinstance(items, str) else items.decode()
    return Call("finish", {"items": text}, each(Finished))


def open_attempts(runtime_id: str | UUID) -> Call[list[OpenAttempts]]:
    """What the database believes a runtime holds."""
    return Call("open_attempts", {"runtime_id": runtime_id}, each(OpenAttempts))


def register_runtime(runtime_id: str | UUID, host: str, pid: int, info: str) -> Call[None]:
    """Announce a host's runtime; `info` is a JSON object."""
    params = {"runtime_id": runtime_id, "host": host, "pid": pid, "info": info}
    return Call("register_runtime", params, nothing)


def heartbeat(runtime_id: str | UUID, info: str) -> Call[str]:
    """Keep a runtime alive -> 'alive', or 'gone' when it was rescued or is unknown."""
    return Call("heartbeat", {"runtime_id": runtime_id, "info": info}, one)


def say_goodbye(runtime_id: str | UUID) -> Call[None]:
    """A runtime ends by its own will."""
    return Call("say_goodbye", {"runtime_id": runtime_id}, nothing)


def check_cluster() -> Call[None]:
    """Raise when this schema was made in another cluster."""
    return Call("check_cluster", {}, nothing)


def prove_alive() -> Call[int]:
    """The smallest question a connection can answer."""
    return Call("prove_alive", {}, one)


def schema_facts() -> Call[SchemaFacts | None]:
    """What a new connection compares."""
    return Call("schema_facts", {}, lambda rows: SchemaFacts(*rows[0]) if rows else None)
