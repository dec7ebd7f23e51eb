"""What the finalizer's core takes in and gives out: values, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from awa_pool.events import (
    Exit,
    Note,
    StoreIsBack,
    StoreLost,
    StoreSaysNo,
    SupervisorSaid,
    Tick,
    ToSupervisor,
    Trouble,
)
from awa_pool.messages import Message


@dataclass(frozen=True, slots=True)
class Settings:
    """What the finalizer needs to know of the pool."""

    incarnation: str
    window_jobs: int = 4096
    window_bytes: int = 64 << 20

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Settings:
        """Pick the finalizer's settings out of the `Configure` dictionary."""
        return cls(
            incarnation=str(settings["incarnation"]),
            window_jobs=int(settings.get("window_jobs") or 4096),
            window_bytes=int(settings.get("window_bytes") or 64 << 20),
        )


# --- for people --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """A line for the log; `tag`: the job that it is about."""

    level: int
    text: str
    tag: dict[str, Any]


# --- rows --------------------------------------------------------------------------------------------------


class ClosedRow(Protocol):
    """Of one receipt: bits set now, bits that had been set, bits of a receipt that another session holds."""

    @property
    def receipt_id(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def stale(self) -> int: ...
    @property
    def busy(self) -> int: ...


class FinishedRow(Protocol):
    """Of one item: 'done', 'stale', 'busy' or 'invalid', and the job's state after it."""

    @property
    def item(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def state(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class StagedRow:
    """Of one end with follow-ups: 'done', 'stale', 'busy' or (parking) 'refused', the job's state, how many follow-ups are new; of those that were
    skipped, as another job holds their key, kind and that job's id."""

    status: str
    state: str | None
    inserted: int
    skipped: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True, slots=True)
class StagedNo:
    """One end with follow-ups was not written, nor any of them."""

    trouble: Trouble
    error: str
    sqlstate: str | None = None
    whole_trip: bool = False
    """The database says so of all that travelled with it; which of them it was is not known."""


class CallbackRow(Protocol):
    """Of one request for a callback: 'done' with its number, 'stale', 'waiting', 'busy' or 'invalid'."""

    @property
    def item(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def number(self) -> int | None: ...


class LeasedRow(Protocol):
    """Of one attempt to be moved to leases: 'done', 'stale', 'busy' or 'invalid'."""

    @property
    def item(self) -> int: ...
    @property
    def status(self) -> str: ...


class WaitRow(Protocol):
    """Of one wait: 'waiting', 'answered' with the payload as JSON text, 'refused', 'stale' with the reason, 'left', 'busy' or 'invalid'."""

    @property
    def item(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def number(self) -> int | None: ...
    @property
    def payload(self) -> str | None: ...
    @property
    def why(self) -> str | None: ...


class OpenRow(Protocol):
    """Attempts of this runtime that the database holds open; leases None means all 1."""

    @property
    def receipt_id(self) -> int: ...
    @property
    def open_mask(self) -> int: ...
    @property
    def job_ids(self) -> list[int]: ...
    @property
    def leases(self) -> list[int] | None: ...


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker's lane or the dispatcher, the peer, says something."""

    peer: bytes
    message: Message
    payload: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """Answer to `Complete`."""

    rows: Sequence[ClosedRow]
    took_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """Answer to `Finish`."""

    rows: Sequence[FinishedRow]
    took_s: float


@dataclass(frozen=True, slots=True)
class StagedAnswered:
    """Answer to `FinishStaged`, in the order of its ends."""

    lane: int
    answers: Sequence[StagedRow | StagedNo]
    took_s: float


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Answer to `LookUp`; None when it failed."""

    rows: Sequence[OpenRow] | None


@dataclass(frozen=True, slots=True)
class _Failed:
    """A call failed: what kind of trouble that is, and what the database says."""

    trouble: Trouble
    error: str


@dataclass(frozen=True, slots=True)
class CallbacksRegistered:
    """Answer to `RegisterCallbacks`."""

    rows: Sequence[CallbackRow]


@dataclass(frozen=True, slots=True)
class CallbacksNotRegistered(_Failed):
    """`RegisterCallbacks` failed."""


@dataclass(frozen=True, slots=True)
class AttemptsLeased:
    """Answer to `LeaseAttempts`."""

    rows: Sequence[LeasedRow]


@dataclass(frozen=True, slots=True)
class AttemptsNotLeased(_Failed):
    """`LeaseAttempts` failed."""


@dataclass(frozen=True, slots=True)
class WaitsRead:
    """Answer to `WaitForCallbacks`."""

    rows: Sequence[WaitRow]


@dataclass(frozen=True, slots=True)
class WaitsNotRead(_Failed):
    """`WaitForCallbacks` failed."""


@dataclass(frozen=True, slots=True)
class ProgressKept:
    """Answer to `KeepProgress`."""

    written: int


@dataclass(frozen=True, slots=True)
class ProgressNotKept(_Failed):
    """`KeepProgress` failed."""


Event = (
    Tick
    | Heard
    | SupervisorSaid
    | Completed
    | Finished
    | StagedAnswered
    | LookedUp
    | CallbacksRegistered
    | CallbacksNotRegistered
    | WaitsRead
    | WaitsNotRead
    | AttemptsLeased
    | AttemptsNotLeased
    | ProgressKept
    | ProgressNotKept
    | StoreSaysNo
    | StoreLost
    | StoreIsBack
)


# --- commands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send to a peer; what cannot be delivered is lost, and asked for again by who needs it."""

    peer: bytes
    message: Message
    payload: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete attempts of many receipts in one call; answered by `Completed` or `StoreSaysNo`."""

    slots: list[int]
    receipts: list[int]
    nonces: list[int]
    masks: list[int]


@dataclass(frozen=True, slots=True)
class Finish:
    """End attempts with any outcome in one call; answered by `Finished` or `StoreSaysNo`."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FinishStaged:
    """End attempts with their follow-ups on one of the lanes, a transaction each; answered by `StagedAnswered`.

    An end is the item that `Finish` would take and its sealed follow-ups. `patient`: wait a while for keys that others hold.
    """

    lane: int
    ends: list[tuple[dict[str, Any], bytes]]
    patient: bool = False


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask which attempts of this runtime are open, for the ids of their jobs; answered by `LookedUp`."""


@dataclass(frozen=True, slots=True)
class RegisterCallbacks:
    """Register callbacks for running attempts; answered by `CallbacksRegistered` or `CallbacksNotRegistered`."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LeaseAttempts:
    """Move running attempts to leases; answered by `AttemptsLeased` or `AttemptsNotLeased`."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WaitForCallbacks:
    """Let handlers begin to wait, or ask whether they may go on; answered by `WaitsRead` or `WaitsNotRead`."""

    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeepProgress:
    """Keep what running attempts say of their progress; answered by `ProgressKept` or `ProgressNotKept`."""

    items: list[dict[str, Any]]


Command = (
    Send
    | ToSupervisor
    | Complete
    | Finish
    | FinishStaged
    | LookUp
    | RegisterCallbacks
    | WaitForCallbacks
    | LeaseAttempts
    | KeepProgress
    | Note
    | Tell
    | Exit
)
