"""What actors that keep a store have in common: events from the database and the supervisor, and commands to the shell.

Values, no I/O. Each actor's own events and commands stand in its `events.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .errors import SchemaMismatch, StoreConflict, StoreError, StoreUnavailable
from .messages import Message

BUSY_STATES = ("55P03", "57014")
"""A lock was not to be had in time, or the whole call: nothing is wrong with what was to be written."""
RIGHTS_GONE = "42501"


class Trouble(Enum):
    """Why the database did not do what it was asked."""

    AWAY = "away"  # it or the connection is gone; whether the call committed is unknown
    CONFLICT = "conflict"  # deadlock or serialization failure
    LOCKED = "locked"  # a lock was not to be had in time
    REFUSED = "refused"  # it does not like this very statement or value


def trouble_of(error: Exception) -> Trouble:
    """What kind of failure this is; a schema that is not ours, or that is closed to us, is as good as no database:
    what is to be written waits."""
    if isinstance(error, StoreUnavailable | SchemaMismatch):
        return Trouble.AWAY
    if isinstance(error, StoreConflict):
        return Trouble.LOCKED if error.sqlstate in BUSY_STATES else Trouble.CONFLICT
    if isinstance(error, StoreError) and error.sqlstate == RIGHTS_GONE:
        return Trouble.AWAY
    return Trouble.REFUSED


def reason_of(error: Exception) -> str:
    """What an actor's log says of a failure: a schema that will not do is told in full by the supervisor, once for all."""
    return (
        "the schema cannot be worked on, as the supervisor says"
        if isinstance(error, SchemaMismatch)
        else str(error)
    )


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """A timer the core asked for may be due."""


@dataclass(frozen=True, slots=True)
class SupervisorSaid:
    """The supervisor says something."""

    message: Message


@dataclass(frozen=True, slots=True)
class StoreSaysNo:
    """A call failed; `what` names it."""

    what: str
    trouble: Trouble
    error: str
    sqlstate: str | None = None


@dataclass(frozen=True, slots=True)
class StoreLost:
    """There is no connection; calls wait for it."""

    error: str


@dataclass(frozen=True, slots=True)
class StoreIsBack:
    """The connection is there, the first or again."""


# --- commands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToSupervisor:
    """Send to the supervisor."""

    message: Message


@dataclass(frozen=True, slots=True)
class Note:
    """Something for the log: level, event name, fields."""

    level: int
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """All is done: leave the loop."""
