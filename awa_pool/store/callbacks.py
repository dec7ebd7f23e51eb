"""The statements on callbacks: what attempts ask for, and what the outside world answers; `calls` says what a `Call` is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from awa_pool.states import State

from .calls import Call, Rows, each
from .stored_json import stored_json


class Registered(NamedTuple):
    """What became of one request for a callback: status done, stale, waiting, busy or invalid."""

    item: int
    status: str
    callback_id: UUID | None
    number: int | None


class Waited(NamedTuple):
    """What became of one wait: status waiting, answered (with the payload as JSON text), refused, stale, busy or invalid.

    `why` of a stale one: completed, failed, expired, cancelled, retried, or empty where that cannot be told.
    """

    item: int
    status: str
    number: int | None
    payload: str | None
    why: str | None


class Parked(NamedTuple):
    """What became of one attempt that parks: status done, refused, stale, busy or invalid; the job's state after it."""

    item: int
    status: str
    state: str | None


class Answered(NamedTuple):
    """The job whose callback was answered, which callback of it that was, and the job's state after it."""

    job_id: int
    number: int
    state: State


class Resolution(NamedTuple):
    """What an answer came to mean: completed, failed, resumed or ignored; and the job, as in `Answered`.

    `reason` is the rule that decided so (filter, on_fail, on_complete) or default_action; `payload` is what the job got.
    """

    outcome: str
    job_id: int
    number: int
    state: State
    reason: str = "default_action"
    payload: Any = None


class Ruled(NamedTuple):
    """An open callback, whose row is locked: its job, number and state, and its rules, {} for none."""

    job_id: int
    number: int
    state: State
    rules: dict[str, str]


class AnswerTold(NamedTuple):
    """As `Answered`; whether the caller evaluates the follow-ups."""

    job_id: int
    number: int
    state: State
    told: bool


class Waiting(NamedTuple):
    """The callback that a job waits for: its number, since when, and when it times out."""

    number: int
    since: datetime
    until: datetime


class JobWaiting(NamedTuple):
    """A job that waits for a callback."""

    job_id: int
    kind: str
    callback: Waiting


class Expired(NamedTuple):
    """How many callbacks timed out, and the seconds until the next one does (None: none is waited for); how many jobs failed or
    were cancelled by that, and up to five of the jobs, those that failed first."""

    expired: int
    next_due_s: float | None
    failed: int
    cancelled: int
    jobs: list[int]


OUTCOMES = {"complete": "completed", "fail": "failed", "ignore": "ignored", "resume": "resumed"}
"""What an answer came to mean, by the action that was taken."""


def register_callbacks(items: bytes) -> Call[list[Registered]]:
    """Give running attempts a callback each; `items` is a JSON array."""
    return Call("register_callbacks", {"items": items.decode()}, each(Registered))


def wait_for_callbacks(items: bytes) -> Call[list[Waited]]:
    """Begin to wait, or ask whether to wait on; `items` is a JSON array."""
    return Call("wait_for_callbacks", {"items": items.decode()}, each(Waited))


def park_attempts(items: bytes) -> Call[list[Parked]]:
    """Let jobs wait without a handler; `items` is a JSON array."""
    return Call("park_attempts", {"items": items.decode()}, each(Parked))


def resume_external(callback_id: str, payload: bytes, *, alone: bool = False) -> Call[Answered]:
    """Answer a callback: the job goes on. `alone`: outside any transaction, where many senders do not hold each other up."""
    query = "resume_and_tell" if alone else "resume_external"
    return Call(query, {"callback": callback_id, "payload": payload.decode()}, _answered)


def complete_external(callback_id: str, payload: bytes, resume: bool) -> Call[Answered]:
    """Answer a callback: the job is completed, or with `resume` goes on."""
    params = {"callback": callback_id, "payload": payload.decode(), "resume": resume}
    return Call("complete_external", params, _answered)


def fail_external(callback_id: str, error: str) -> Call[Answered]:
    """Answer a callback: the job has failed for good."""
    return Call("fail_external", {"callback": callback_id, "error": error}, _answered)


def retry_external(callback_id: str) -> Call[Answered]:
    """Answer a callback: the job runs again from the top, with all its attempts."""
    return Call("retry_external", {"callback": callback_id}, _answered)


def rules_of_callback(callback_id: str) -> Call[Ruled]:
    """Lock an open callback until the transaction ends, and return its rules."""
    return Call("rules_of_callback", {"callback": callback_id}, _ruled)


def answer_told(
    callback_id: str, action: str, payload: bytes, error: str, kinds: list[str], owed: list[str]
) -> Call[AnswerTold]:
    """Answer a callback: complete, fail or retry. Of these kinds the caller evaluates the follow-ups, in the same transaction.

    Of those in `owed` a worker is to tell the hooks.
    """
    params = {"callback": callback_id, "action": action, "payload": payload.decode(), "error": error,
              "kinds": kinds, "owed": owed}  # fmt: skip
    return Call("answer_told", params, _answer_told)


def heartbeat_callback(callback_id: str, timeout_s: float) -> Call[datetime]:
    """Move the time-out of a callback -> when that is now."""
    params = {"callback": callback_id, "timeout_s": timeout_s}
    return Call("heartbeat_callback", params, lambda rows: rows[0][2].astimezone(UTC))


def expire_callbacks(limit: int) -> Call[Expired]:
    """End the attempts whose callback was not answered in time."""
    return Call("expire_callbacks", {"limit": limit}, lambda rows: Expired(*rows[0]))


def callback_of(job_id: int) -> Call[Waiting | None]:
    """The callback that a job waits for, None when it waits for none."""
    return Call("callback_of", {"job_id": job_id}, _waiting)


def list_waits(limit: int) -> Call[list[JobWaiting]]:
    """Jobs that wait for a callback, at most `limit`: those whose callback times out first."""
    return Call("list_waits", {"limit": limit}, each(_job_waiting))


def _answered(rows: Rows) -> Answered:
    job_id, number, state = rows[0]
    return Answered(job_id, number, State(state))


def _answer_told(rows: Rows) -> AnswerTold:
    job_id, number, state, told = rows[0]
    return AnswerTold(job_id, number, State(state), told)


def _ruled(rows: Rows) -> Ruled:
    job_id, number, state, rules = rows[0]
    return Ruled(job_id, number, State(state), {} if rules is None else stored_json(rules))


def _waiting(rows: Rows) -> Waiting | None:
    if not rows:
        return None
    return _in_utc(*rows[0])


def _job_waiting(job_id: int, kind: str, *callback: Any) -> JobWaiting:
    return JobWaiting(job_id, kind, _in_utc(*callback))


def _in_utc(number: int, since: datetime, until: datetime) -> Waiting:
    return Waiting(number, since.astimezone(UTC), until.astimezone(UTC))
