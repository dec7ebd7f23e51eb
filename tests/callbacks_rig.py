"""Attempts that wait for callbacks, as the functions want them named, for tests on storage and races."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from general_rig import Attempt, Queue

HOUR_S = 3600.0
ANSWERS = {
    "resume_external": ('{"a": 1}',), "complete_external": ("1",), "fail_external": ("no",), "retry_external": (),
    "resolve_callback": ("1", "complete"), "heartbeat_callback": (60.0,),
}  # fmt: skip
"""What each answer says beside the callback's id."""


def told(attempt: Attempt, **more: Any) -> dict[str, Any]:
    """The item that names this attempt."""
    item = attempt.ended("", **more)
    del item["outcome"]
    return item


def register_all(q: Queue, *items: Any) -> list[tuple[str, UUID | None, int | None]]:
    """Register by items -> (status, id, number) of each."""
    rows = q.rows("select * from awa_pool.register_callbacks(%s::json) order by item", json.dumps(items))
    assert [row[0] for row in rows] == list(range(len(items)))
    return [row[1:] for row in rows]


def register(q: Queue, attempt: Attempt, timeout_s: float = HOUR_S) -> tuple[str, int]:
    """Register a callback for a running attempt -> its id and number."""
    ((status, callback, number),) = register_all(q, told(attempt, timeout_s=timeout_s))
    assert status == "done" and callback is not None and number is not None
    return str(callback), number


def wait(q: Queue, attempt: Attempt, callback: str) -> tuple[str, Any]:
    """Begin to wait, or look again -> status and payload."""
    ((status, payload),) = q.rows(
        "select status, payload::text from awa_pool.wait_for_callbacks(%s::json)",
        json.dumps([told(attempt, callback_id=callback)]),
    )
    return status, payload


def give_up(q: Queue, attempt: Attempt, callback: str) -> tuple[str, Any]:
    """Say that the handler waits no more -> status and payload."""
    ((status, payload),) = q.rows(
        "select status, payload::text from awa_pool.wait_for_callbacks(%s::json)",
        json.dumps([told(attempt, callback_id=callback, gone=True)]),
    )
    return status, payload


def park(q: Queue, attempt: Attempt, callback: str) -> tuple[str, str | None]:
    """Let the job wait without a handler -> status and the job's state."""
    ((status, state),) = q.rows(
        "select status, state from awa_pool.park_attempts(%s::json)",
        json.dumps([told(attempt, callback_id=callback)]),
    )
    return status, state


def answer(q: Queue, function: str, callback: str, *values: Any) -> tuple[Any, ...]:
    """Call one of the functions that answer a callback -> its row."""
    casts = {"resume_external": ("json",), "complete_external": ("json", "boolean"), "fail_external": ("text",),
             "resolve_callback": ("json", "text"), "heartbeat_callback": ("float8",)}.get(function, ())  # fmt: skip
    words = "".join(f", %s::{cast}" for cast, _ in zip(casts, values, strict=False))
    (row,) = q.rows(f"select * from awa_pool.{function}(%s::text{words})", callback, *values)
    return row


def waiting(q: Queue, **named: Any) -> tuple[Attempt, str]:
    """A job whose handler waits for its first callback."""
    attempt = q.claimed(**named)
    callback, _ = register(q, attempt)
    assert wait(q, attempt, callback) == ("waiting", None)
    return attempt, callback


def parked(q: Queue, **named: Any) -> tuple[Attempt, str]:
    """A job that waits for its first callback with no handler alive."""
    attempt = q.claimed(**named)
    callback, _ = register(q, attempt)
    assert park(q, attempt, callback) == ("done", "waiting_external")
    return attempt, callback


def make_overdue(q: Queue, job_id: int) -> None:
    """Let the time of a job's callback be over."""
    q.rows("update awa_pool.leases set callback_until = now() - interval '1 s' where job_id = %s", job_id)


def expire(q: Queue) -> int:
    """Run the housekeeping of callbacks once -> how many timed out."""
    return q.one("select expired from awa_pool.expire_callbacks(1000)")


def refused(q: Queue, function: str, callback: str, *values: object) -> None:
    """The answer is refused as one to a callback that is not there."""
    with pytest.raises(psycopg.Error) as problem:
        answer(q, function, callback, *values)
    assert problem.value.sqlstate == "AW008"
