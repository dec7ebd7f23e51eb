"""The statements of unique jobs; `calls` says what a `Call` is."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from awa_pool.requests import Options

from .calls import Call, Rows, one


class Put(NamedTuple):
    """One job asked for: its id, or where it is not new the id of the job that holds its key."""

    job_id: int
    is_new: bool


_PLAIN = Options._fields.index("run_at")
_NOTHING = (None,) * (len(Options._fields) - _PLAIN)


class PutMany(NamedTuple):
    """The jobs of one document: ids in order, and how many of them are holders of a key that was wanted."""

    job_ids: list[int]
    skipped: int


class KeyState(NamedTuple):
    """A job's unique key: the states (a bitmask) in which the job holds it, who holds it now, and until when at most."""

    unique_key: str  # 32 hexadecimal digits
    states: int
    holder: int | None
    release_at: datetime | None


def put(options: Options, args: str, key: bytes | None, on_conflict: str) -> Call[Put]:
    """Put one job in -> its id, or under 'skip' the holder's; `args` is JSON text."""
    params: dict[str, Any] = {
        "kind": options.kind, "args": args, "queue": options.queue, "priority": options.priority,
        "max_attempts": options.max_attempts,
    }  # fmt: skip
    if key is None and options[_PLAIN:] == _NOTHING:  # most jobs: half the parameters, a tenth less time
        return Call("enqueue_plain", params, lambda rows: Put(rows[0][0], True), prepared=True)
    params |= {
        "run_at": options.run_at,
        "metadata": None if options.metadata is None else options.metadata.decode(),
        "tags": options.tags, "ordering_key": options.ordering_key, "deadline_s": options.deadline_s,
    }  # fmt: skip
    if key is None or options.unique is None:
        return Call("enqueue", params, lambda rows: Put(rows[0][0], True), prepared=True)
    params |= {"unique_key": key, "unique_states": options.unique.states, "on_conflict": on_conflict}
    return Call("put_unique", params, lambda rows: Put(*rows[0]))


def enqueue_many(jobs: str, on_conflict: str) -> Call[PutMany]:
    """Put many jobs in of which some are unique, given as a JSON array."""
    return Call(
        "enqueue_many_unique", {"jobs": jobs, "on_conflict": on_conflict}, lambda rows: PutMany(*rows[0])
    )


def cancel_by_key(key: bytes) -> Call[int | None]:
    """Cancel the job that holds a key, unless it has ended -> its id, or None."""
    return Call("cancel_by_key", {"key": key}, one)


def key_state(job_id: int) -> Call[KeyState | None]:
    """The unique key of a job, or None."""
    return Call("key_state", {"job_id": job_id}, _key_state)


def _key_state(rows: Rows) -> KeyState | None:
    return KeyState(*rows[0]) if rows else None
