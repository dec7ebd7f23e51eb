"""What the dispatcher's core takes in and gives out: values, no I/O.

Messages of other processes come wrapped with where they came from; answers of the database as plain rows. Commands
are carried out by the shell in order.
"""

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
)
from awa_pool.messages import Message


@dataclass(frozen=True, slots=True)
class Settings:
    """What the dispatcher needs to know of the pool; see `Settings.from_dict` for the names on the wire."""

    incarnation: str
    queues: tuple[tuple[str, int | None], ...]
    workers: int = 1
    window_jobs: int = 4096
    window_bytes: int = 64 << 20
    poll_interval_s: float = 1.0
    drain: bool = False
    stopping: bool = False
    """The pool is on its way out: claim nothing, only see to what a predecessor held."""
    first: bool = False
    """No dispatcher was here before: nothing can be held that the books do not know."""
    audit_s: float = 10.0
    """So often what this host has open is audited: as often as a leader looks for the stale."""

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Settings:
        """Pick the dispatcher's settings out of the `Configure` dictionary."""
        return cls(
            incarnation=str(settings["incarnation"]),
            queues=tuple(
                (str(name), None if limit is None else int(limit)) for name, limit in settings["queues"]
            ),
            workers=int(settings.get("workers") or 1),
            window_jobs=int(settings.get("window_jobs") or 4096),
            window_bytes=int(settings.get("window_bytes") or 64 << 20),
            poll_interval_s=float(settings.get("poll_interval_s") or 1.0),
            drain=bool(settings.get("drain")),
            stopping=bool(settings.get("stopping")),
            first=bool(settings.get("first")),
            audit_s=min(10.0, float(settings.get("stale_s") or 30.0) / 3),
        )


# --- rows --------------------------------------------------------------------------------------------------


class ClaimedRow(Protocol):
    """One receipt as claimed; kinds and bodies in index order."""

    @property
    def queue(self) -> str: ...
    @property
    def slot(self) -> int: ...
    @property
    def receipt_id(self) -> int: ...
    @property
    def nonce(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def job_ids(self) -> list[int]: ...
    @property
    def kinds(self) -> list[str]: ...
    @property
    def bodies(self) -> list[str]: ...


class OpenRow(Protocol):
    """Attempts of this runtime that the database holds open; leases None means all 1."""

    @property
    def slot(self) -> int: ...
    @property
    def receipt_id(self) -> int: ...
    @property
    def nonce(self) -> int: ...
    @property
    def open_mask(self) -> int: ...
    @property
    def job_ids(self) -> list[int]: ...
    @property
    def leases(self) -> list[int] | None: ...


@dataclass(frozen=True, slots=True)
class PagePiece:
    """What a worker's page shows of one receipt."""

    receipt_id: int
    started: int
    completed: int


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """A worker's lane, the peer, says something."""

    peer: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class FinalizerSaid:
    """The finalizer says something."""

    message: Message


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """That message could not be handed to the lane's socket."""

    peer: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to `Claim`: receipts, and for each queue that gave nothing why: empty, busy or paused."""

    request: int
    receipts: Sequence[ClaimedRow]
    notes: dict[str, str]
    took_s: float


@dataclass(frozen=True, slots=True)
class ClaimWithdrawn:
    """Answer to `Withdraw`: that claim has not begun and never will."""


@dataclass(frozen=True, slots=True)
class OpenAttemptsRead:
    """Answer to `ReadOpenAttempts`."""

    rows: Sequence[OpenRow]


@dataclass(frozen=True, slots=True)
class WorkLeftRead:
    """Answer to `ReadWorkLeft`."""

    available: int
    running: int
    later: int
    unknown: Sequence[str] = ()
    """Queues that no job and no setting has named; looked for when nothing is available or running."""
    parked: int = 0


@dataclass(frozen=True, slots=True)
class Notified:
    """PostgreSQL notified; an empty payload means: look again."""

    payload: str


@dataclass(frozen=True, slots=True)
class Hearing:
    """The listener hears from now on, or does not any more: what was missed, or will be, is looked for."""

    works: bool


@dataclass(frozen=True, slots=True)
class PageRead:
    """Answer to `ReadPage`; `running_s` is the age of each running attempt, None if the page is not there."""

    peer: bytes
    pieces: Sequence[PagePiece]
    running: dict[tuple[int, int], float] | None


@dataclass(frozen=True, slots=True)
class PagesRead:
    """What the workers of this host have started: receipt -> mask. The supervisor removes the pages of the dead."""

    started: dict[int, int]


@dataclass(frozen=True, slots=True)
class PageRun:
    """An attempt that a page shows running, since `started_s` of the host's monotonic clock."""

    worker: int
    incarnation: str
    lane: str
    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int
    started_s: float


@dataclass(frozen=True, slots=True)
class RunningRead:
    """All that the pages of this host's workers show running."""

    rows: list[PageRun]


Event = (
    Tick
    | Heard
    | FinalizerSaid
    | SupervisorSaid
    | Undeliverable
    | Claimed
    | ClaimWithdrawn
    | StoreSaysNo
    | StoreLost
    | StoreIsBack
    | OpenAttemptsRead
    | WorkLeftRead
    | Notified
    | Hearing
    | PageRead
    | PagesRead
    | RunningRead
)


# --- commands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send to a worker's lane; what cannot be delivered comes back as `Undeliverable`."""

    peer: bytes
    message: Message
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class ToFinalizer:
    """Send to the finalizer."""

    message: Message


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim jobs; answered by `Claimed` or `StoreSaysNo`."""

    request: int
    queues: list[str]
    limits: list[int]
    total: int
    max_bytes: int
    chunk: int
    waiting: bool


@dataclass(frozen=True, slots=True)
class ReadOpenAttempts:
    """Ask the database what this runtime has open."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take a claim back that waits for the connection; answered by `ClaimWithdrawn`, or by the claim's own answer."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ReadWorkLeft:
    """Ask the database what is left to do in these queues."""

    queues: list[str]


@dataclass(frozen=True, slots=True)
class ReadPages:
    """Read the pages of all workers, known here or not."""


@dataclass(frozen=True, slots=True)
class ReadRunning:
    """Read what the pages of all workers show running now."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Read that worker's page for this lane."""

    peer: bytes
    worker: int
    incarnation: str


Command = (
    Send
    | ToFinalizer
    | ToSupervisor
    | Claim
    | Withdraw
    | ReadOpenAttempts
    | ReadWorkLeft
    | ReadPage
    | ReadPages
    | ReadRunning
    | Note
    | Exit
)
