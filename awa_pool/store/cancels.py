"""The statements of a cancel by a client that knows the app; `calls` says what a `Call` is."""

from __future__ import annotations

from typing import NamedTuple

from .calls import Call


class CancelTold(NamedTuple):
    """Which job was cancelled, None where there was none; whether the caller evaluates its follow-ups."""

    job_id: int | None
    told: bool


def cancel_told(job_id: int, kinds: list[str], owed: list[str]) -> Call[CancelTold]:
    """Cancel a job; of these kinds the caller evaluates the follow-ups, in the same transaction.

    Of those in `owed` a worker is to tell the hooks.
    """
    params = {"job_id": job_id, "kinds": kinds, "owed": owed}
    return Call("cancel_told", params, lambda rows: CancelTold(*rows[0]))


def cancel_by_key_told(key: bytes, kinds: list[str], owed: list[str]) -> Call[CancelTold]:
    """Cancel the job that holds a key, unless it has ended; as `cancel_told`."""
    params = {"key": key, "kinds": kinds, "owed": owed}
    return Call("cancel_by_key_told", params, lambda rows: CancelTold(*rows[0]))


def put_follow_ups(follow_ups: bytes) -> Call[int]:
    """Put the follow-ups of an outcome of this transaction in, a JSON array -> how many were skipped, their keys being held."""
    return Call("put_follow_ups", {"follow_ups": follow_ups.decode()}, lambda rows: len(rows[0][1] or ()))
