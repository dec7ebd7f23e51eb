"""What happens to a supervisor, and what it wants done about it: values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from awa_pool.messages import Message, WorkerGone

from .limits import Attempt, Held

DISPATCHER = "dispatcher"
FINALIZER = "finalizer"
MAINTENANCE = "maintenance"
WORKER = "worker"
ACTORS = (DISPATCHER, FINALIZER, MAINTENANCE)


class ExitStatus(IntEnum):
    """How a pool ends; documented in docs/configuration.md. A second signal gives 128 + its number."""

    CLEAN = 0
    FAILED = 1  # gave up, or could not store everything before the end
    REFUSED = 2  # a flag, app, DSN, schema or limit is wrong


# --- events ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """The pool starts now."""

    facts_known: bool  # database and queues are known without asking a worker


@dataclass(frozen=True, slots=True)
class FactsSettled:
    """The shell has settled what the actors need to know (`Settle`)."""


@dataclass(frozen=True, slots=True)
class QueuesKnown:
    """The database has told which queues it knows (`AskKnownQueues`)."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Something is wrong that no restart mends: schema, address, limits."""

    reason: str


@dataclass(frozen=True, slots=True)
class ChildSaid:
    """A child's message came over its control pipe."""

    incarnation: str
    message: Message


@dataclass(frozen=True, slots=True)
class ChildExited:
    """A child is gone (or could not be started at all)."""

    incarnation: str
    cause: str
    signal: int | None = None  # the signal that ended it
    status: int | None = None  # else its exit status
    worked: bool = False  # it had started at least one attempt
    running: str = ""  # kinds that were running, for the log
    account: WorkerGone | None = None  # a worker's page, for the dispatcher


@dataclass(frozen=True, slots=True)
class WorkerMeasured:
    """A regular sample of a worker, for recycling."""

    incarnation: str
    jobs_done: int
    rss_bytes: int
    busy: bool = False  # its page shows something running


@dataclass(frozen=True, slots=True)
class ChildrenStopped:
    """A regular look: just these children are held by a stop signal (not by a debugger)."""

    incarnations: frozenset[str]


@dataclass(frozen=True, slots=True)
class LimitsSeen:
    """A look at a worker's page, for deadlines and cancels: all that it runs."""

    incarnation: str
    held: tuple[Held, ...]
    alone: bool  # it runs one attempt at most


@dataclass(frozen=True, slots=True)
class Spared:
    """A worker was not killed for an attempt: its page no longer showed it."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class SignalCame:
    """The supervisor was sent a stop signal."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class RuntimeLost:
    """The database says that this runtime was rescued: what its workers run is no longer theirs."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by."""


Event = (
    Began
    | FactsSettled
    | QueuesKnown
    | Refused
    | ChildSaid
    | ChildExited
    | WorkerMeasured
    | ChildrenStopped
    | LimitsSeen
    | Spared
    | SignalCame
    | RuntimeLost
    | Tick
)


# --- commands --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process; it waits for its configuration."""

    role: str
    number: int  # workers: 1…; actors: 0
    incarnation: str


@dataclass(frozen=True, slots=True)
class Instruct:
    """Send a child its settings."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a child a message."""

    incarnation: str
    message: Message


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL a child, a worker with all that it has started."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM a worker's process group, if its page shows that attempt still and no other."""

    incarnation: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class KillFor:
    """SIGKILL a worker with all that it has started, if its page shows one of these attempts still; else `Spared`."""

    incarnation: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """A first worker has told the app's facts: settle database and queues, then answer `FactsSettled`."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AskKnownQueues:
    """Ask the database which queues it knows, then answer `QueuesKnown`."""


@dataclass(frozen=True, slots=True)
class TakeNewRuntime:
    """Take a new runtime id before anything is started again."""


@dataclass(frozen=True, slots=True)
class Log:
    """A line for people."""

    level: str  # "debug" | "info" | "warning" | "error"
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left: end with this status."""

    status: int
    reason: str


Command = (
    Start
    | Instruct
    | Tell
    | Kill
    | Terminate
    | KillFor
    | Settle
    | AskKnownQueues
    | TakeNewRuntime
    | Log
    | Finish
)
