"""What a lane's books take in and give out, and the piece of work that executors and books share. Values, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from awa_pool.messages import AttemptsEnded, Message

from .bodies import Body

if TYPE_CHECKING:  # loaded by workers whose app has hooks
    from awa_pool.hooks import JobEvent


@dataclass(slots=True, eq=False)
class Piece:
    """Attempts of one receipt handed over together, and their results since the last flush.

    `todo` has a bit for each attempt not started; an executor clears it at the start. `row` is the row in the page's
    journal, -1 before the first start.
    """

    queue: str
    priority: int
    slot: int
    receipt_id: int
    nonce: int
    indexes: list[int]
    bodies: list[Body]
    todo: int
    at: int = 0
    row: int = -1
    started: int = 0
    completed: int = 0
    running: int = 0
    unacknowledged: int = 0
    done: dict[str, int] = field(default_factory=dict)
    """Kind -> mask completed since the last flush."""
    others: list[list[Any]] = field(default_factory=list)
    """Items of `AttemptsEnded.others` since the last flush."""
    staged: dict[int, bytes] = field(default_factory=dict)
    """Index -> follow-ups, a JSON array, of those of `others` that have any."""
    owned: list[int] = field(default_factory=list)
    """Indexes of those of `others` whose handlers may have completed them themselves."""
    told: list[tuple[int, JobEvent]] | None = None
    """What hooks are to be told once it is committed, since the last flush; the index says of which attempt."""
    timings: dict[str, list[Any]] = field(default_factory=dict)
    """Kind -> [count, total_s, longest_s] since the last flush."""


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message came, with its payload frames."""

    message: Message
    payload: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Flush:
    """An executor has put results into `piece`: send them."""

    piece: Piece


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class FinalizerReplaced:
    """The finalizer is a new process: it knows nothing of what was not committed."""


@dataclass(frozen=True, slots=True)
class SayWaits:
    """Tell the dispatcher which attempts have begun to wait, and which go on, since it was told last."""


@dataclass(frozen=True, slots=True)
class Draining:
    """Start nothing more, give back what has not started."""


Event = Arrived | Flush | Tick | FinalizerReplaced | SayWaits | Draining


# --- commands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToDispatcher:
    message: Message


@dataclass(frozen=True, slots=True)
class ToFinalizer:
    message: AttemptsEnded
    payload: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """That row of the page's journal is needed no more."""

    row: int


@dataclass(frozen=True, slots=True)
class TellHooks:
    """It is committed."""

    events: list[JobEvent]


Command = ToDispatcher | ToFinalizer | ReleaseRow | TellHooks
