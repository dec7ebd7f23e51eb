"""The life of a job as one table; docs/state_machine.md draws it, the SQL functions carry it out."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job stands, as every reader sees it."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    RUNNING = "running"
    COMPLETED = "completed"
    RETRYABLE = "retryable"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING_EXTERNAL = "waiting_external"


class Outcome(StrEnum):
    """How an attempt ends; `finish` in SQL takes these words."""

    COMPLETED = "completed"
    RETRY = "retry"  # counted; fails the job on its last attempt
    SNOOZE = "snooze"  # not counted
    FAIL = "fail"  # terminal at once
    CANCEL = "cancel"
    RETURN = "return"  # never started, or cut by shutdown: not counted, claimable at once
    LOST = "lost"  # the process died: as RETRY, with the database's own back-off
    PARK = "park"  # wait for a callback with no handler alive; `park_attempts` takes it


class Trigger(StrEnum):
    """What specs and hooks are registered for: how an attempt ended, as the app sees it."""

    COMPLETED = "completed"
    RETRIED = "retried"
    EXHAUSTED = (
        "exhausted"  # failed for good: the last attempt, a terminal error, a rescue at the last attempt
    )
    CANCELLED = "cancelled"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    RESCUED = "rescued"


class Cause(StrEnum):
    """What moves a job that no attempt holds."""

    INSERTED = "inserted"
    INSERTED_FOR_LATER = "inserted_for_later"
    CLAIMED = "claimed"
    DUE = "due"
    CANCELLED = "cancelled"
    RETRIED_BY_HAND = "retried_by_hand"
    RETRIED_FOR_LATER = "retried_for_later"  # out of the dead letter queue, with a time that lies ahead
    MOVED_TO_DEAD = "moved_to_dead"
    EXHAUSTED = "exhausted"
    WAITED = "waited"  # a handler began to wait for its callback
    PARKED = "parked"  # a handler returned to wait with none alive
    GIVEN_UP = "given_up"  # by a handler that has waited
    ANSWERED = "answered"  # to a handler that waits
    RESUMED = "resumed"  # an answer to a parked job
    COMPLETED_OUTSIDE = "completed_outside"
    FAILED_OUTSIDE = "failed_outside"
    RETRIED_OUTSIDE = "retried_outside"
    TIMED_OUT = "timed_out"  # nobody answered; fails the job on its last attempt


ARROWS: dict[tuple[State | None, Cause | Outcome], State] = {
    (None, Cause.INSERTED): State.AVAILABLE,
    (None, Cause.INSERTED_FOR_LATER): State.SCHEDULED,
    (State.AVAILABLE, Cause.CLAIMED): State.RUNNING,
    (State.SCHEDULED, Cause.DUE): State.AVAILABLE,
    (State.RETRYABLE, Cause.DUE): State.AVAILABLE,
    (State.RUNNING, Outcome.COMPLETED): State.COMPLETED,
    (State.RUNNING, Outcome.RETRY): State.RETRYABLE,
    (State.RUNNING, Outcome.LOST): State.RETRYABLE,
    (State.RUNNING, Cause.EXHAUSTED): State.FAILED,
    (State.RUNNING, Outcome.SNOOZE): State.SCHEDULED,
    (State.RUNNING, Outcome.FAIL): State.FAILED,
    (State.RUNNING, Outcome.CANCEL): State.CANCELLED,
    (State.RUNNING, Outcome.RETURN): State.AVAILABLE,
    (State.RUNNING, Cause.CANCELLED): State.CANCELLED,
    (State.AVAILABLE, Cause.CANCELLED): State.CANCELLED,
    (State.SCHEDULED, Cause.CANCELLED): State.CANCELLED,
    (State.RETRYABLE, Cause.CANCELLED): State.CANCELLED,
    (State.RETRYABLE, Cause.RETRIED_BY_HAND): State.AVAILABLE,
    (State.SCHEDULED, Cause.RETRIED_BY_HAND): State.AVAILABLE,
    (State.FAILED, Cause.RETRIED_BY_HAND): State.AVAILABLE,
    (State.CANCELLED, Cause.RETRIED_BY_HAND): State.AVAILABLE,
    (State.FAILED, Cause.RETRIED_FOR_LATER): State.SCHEDULED,
    (State.AVAILABLE, Cause.MOVED_TO_DEAD): State.FAILED,
    (State.SCHEDULED, Cause.MOVED_TO_DEAD): State.FAILED,
    (State.RETRYABLE, Cause.MOVED_TO_DEAD): State.FAILED,
    (State.CANCELLED, Cause.MOVED_TO_DEAD): State.FAILED,
    (State.FAILED, Cause.MOVED_TO_DEAD): State.FAILED,
    (State.RUNNING, Cause.WAITED): State.WAITING_EXTERNAL,
    (State.RUNNING, Cause.PARKED): State.WAITING_EXTERNAL,
    (State.RUNNING, Cause.RESUMED): State.AVAILABLE,  # answered before it parked
    (State.RUNNING, Cause.COMPLETED_OUTSIDE): State.COMPLETED,
    (State.RUNNING, Cause.FAILED_OUTSIDE): State.FAILED,
    (State.WAITING_EXTERNAL, Cause.GIVEN_UP): State.RUNNING,
    (State.WAITING_EXTERNAL, Cause.ANSWERED): State.RUNNING,
    (State.WAITING_EXTERNAL, Cause.RESUMED): State.AVAILABLE,
    (State.WAITING_EXTERNAL, Cause.COMPLETED_OUTSIDE): State.COMPLETED,
    (State.WAITING_EXTERNAL, Cause.FAILED_OUTSIDE): State.FAILED,
    (State.WAITING_EXTERNAL, Cause.RETRIED_OUTSIDE): State.AVAILABLE,
    (State.WAITING_EXTERNAL, Cause.TIMED_OUT): State.RETRYABLE,
    (State.WAITING_EXTERNAL, Cause.EXHAUSTED): State.FAILED,
    (State.WAITING_EXTERNAL, Cause.CANCELLED): State.CANCELLED,
    (State.WAITING_EXTERNAL, Outcome.COMPLETED): State.COMPLETED,
    (State.WAITING_EXTERNAL, Outcome.RETRY): State.RETRYABLE,
    (State.WAITING_EXTERNAL, Outcome.LOST): State.RETRYABLE,
    (State.WAITING_EXTERNAL, Outcome.SNOOZE): State.SCHEDULED,
    (State.WAITING_EXTERNAL, Outcome.FAIL): State.FAILED,
    (State.WAITING_EXTERNAL, Outcome.CANCEL): State.CANCELLED,
    (State.WAITING_EXTERNAL, Outcome.RETURN): State.AVAILABLE,
}
