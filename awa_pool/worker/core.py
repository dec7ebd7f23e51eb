"""What a lane of a worker holds and owes: pure, fed with events, answering with commands.

An attempt handed to a lane is unstarted (`Piece.todo`), running, ended and unsent (in its piece), or ended and
unacknowledged (`LaneCore` keeps the message until the finalizer says that it is committed). `holding` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from awa_pool.messages import (
    AskHolding,
    AttemptsEnded,
    AttemptsRan,
    CancelJob,
    Holding,
    Message,
    Recall,
    Recalled,
    ResultsCommitted,
    RunJobs,
    WorkerReady,
)

from .bodies import parse_chunk
from .events import (
    Arrived,
    Command,
    Draining,
    Event,
    FinalizerReplaced,
    Flush,
    Piece,
    ReleaseRow,
    SayWaits,
    TellHooks,
    Tick,
    ToDispatcher,
    ToFinalizer,
)
from .greeting import Greeting
from .waits import Waits, masks

if TYPE_CHECKING:  # loaded by workers whose app has hooks
    from awa_pool.hooks import JobEvent

UNACKNOWLEDGED_JOBS = 4096
UNACKNOWLEDGED_BYTES = 16 * 1024 * 1024
RESEND_S = 1.0
RESEND_MAX_S = 10.0
LONG_JOB_S = 0.015
"""After an attempt of this length everything is given back. A dispatcher takes a recall as granted once the page shows
an attempt of 20 ms or more, so whatever it may have granted by itself lies behind one that is long by this bound."""
_BYTES_PER_RESULT = 64  # of a plain completion; errors add their text


@dataclass(slots=True, eq=False)
class _Kept:
    """Results that the finalizer has not acknowledged."""

    message: AttemptsEnded
    payload: Sequence[bytes]
    piece: Piece
    mask: int
    jobs: int
    size_bytes: int
    wait_s: float
    due_s: float
    told: list[tuple[int, JobEvent]] | None = None


class LaneCore:
    """One lane's books. `step` is called by the lane's own thread only."""

    def __init__(self, worker: int, incarnation: str, lane: str, capacity: int, kinds: list[str]) -> None:
        self._worker = worker
        self._incarnation = incarnation
        self._lane = lane
        self._capacity = capacity
        self._kinds = kinds
        self.pieces: deque[Piece] = deque()
        """Pieces with unstarted attempts, in order; executors take from the left."""
        self.active: list[Piece] = []
        """Pieces an executor took that have not ended."""
        self.cancelled: set[tuple[int, int]] = set()
        """(job_id, run_lease) of attempts cancelled in the database."""
        self.draining = False
        self.started_s: float | None = None
        """When the attempt before the next one to start did start, until the lane rests; told by those who run one
        attempt after the other. The page must show by then that nothing runs."""
        self.jobs_done = 0
        self._kept: dict[int, _Kept] = {}
        self._seq = 0
        self._kept_jobs = 0
        self._kept_bytes = 0
        self._held: dict[tuple[int, int], int] = {}
        self._waits = Waits()
        self._greeting = Greeting()

    @property
    def idle(self) -> bool:
        """Nothing is unstarted, running or unsent (results may be unacknowledged)."""
        return not self.pieces and not self.active

    @property
    def settled(self) -> bool:
        """Nothing is left to do or to be acknowledged."""
        return self.idle and not self._kept

    @property
    def congested(self) -> bool:
        """So much is unacknowledged that nothing more may start."""
        return self._kept_jobs >= UNACKNOWLEDGED_JOBS or self._kept_bytes >= UNACKNOWLEDGED_BYTES

    @property
    def anything_waits(self) -> bool:
        """Attempts wait for callbacks, without their slots."""
        return bool(self._waits.now)

    @property
    def unacknowledged_jobs(self) -> int:
        return self._kept_jobs

    def next_due_s(self) -> float | None:
        """Return when `Tick` has something to do; None when it has not."""
        due_s = [kept.due_s for kept in self._kept.values()]
        if (greet_s := self._greeting.due_s()) is not None:
            due_s.append(greet_s)
        return min(due_s, default=None)

    def take(self) -> Piece | None:
        """Hand the oldest piece with unstarted attempts to an executor."""
        while self.pieces:
            piece = self.pieces.popleft()
            if piece.todo:
                self.active.append(piece)
                return piece
        return None

    def waits(self, piece: Piece, mask: int) -> None:
        """Note that an attempt waits and has given its slot away; told by `SayWaits`."""
        self._waits.begin((piece.receipt_id, piece.nonce), mask)

    def goes_on(self, piece: Piece, mask: int) -> None:
        """Note that an attempt goes on that has waited; told by `SayWaits`."""
        self._waits.end((piece.receipt_id, piece.nonce), mask)

    @property
    def waits_unsaid(self) -> bool:
        """`SayWaits` has something to tell."""
        return self._waits.unsaid

    def hello(self) -> WorkerReady:
        """Return what a dispatcher has to know of this lane; one that drains has a capacity of 0."""
        capacity = 0 if self.draining else self._capacity
        return WorkerReady(
            self._worker, self._incarnation, self._lane, capacity, masks(self._held), self._kinds
        )

    def greet(self) -> WorkerReady:
        """Return `hello`, to be said again (by `Tick`) until the dispatcher has said anything; `SayWaits` belongs after it."""
        self._greeting.begin()
        self._waits.forget_what_was_said()
        return self.hello()

    def step(self, event: Event, now_s: float) -> list[Command]:
        """Take in what happened and return what has to be done about it, in order."""
        match event:
            case Arrived(message, payload):
                return self._arrived(message, payload, now_s)
            case Flush(piece):
                return self._flush(piece, now_s)
            case Tick():
                again: list[Command] = []
                if self._greeting.due(now_s):
                    self._waits.forget_what_was_said()
                    again = [ToDispatcher(word) for word in (self.hello(), *self._waits.say())]
                return again + self._resend(now_s, only_due=True)
            case SayWaits():
                return [ToDispatcher(word) for word in self._waits.say()]
            case FinalizerReplaced():
                return self._resend(now_s, only_due=False)
            case Draining():
                self.draining = True
                back = [
                    command for piece in self._unstarted() for command in self._give_back(piece, piece.todo)
                ]
                return [*back, ToDispatcher(self.hello())]

    def _arrived(self, message: Message, payload: Sequence[bytes], now_s: float) -> list[Command]:
        if not isinstance(message, ResultsCommitted):  # that one is the finalizer's
            self._greeting.heard = True
        match message:
            case RunJobs():
                return self._take_in(message, payload[0] if payload else b"")
            case Recall(receipt_id, mask):
                return self._recall(receipt_id, mask, now_s)
            case CancelJob(job_id, run_lease):
                if not self.idle:
                    self.cancelled.add((job_id, run_lease))
            case AskHolding(audit):
                return [ToDispatcher(Holding(audit, masks(self._held), masks(self._waits.now)))]
            case ResultsCommitted(seq, stale, also):
                return self._acknowledged(seq, stale, also)
        return []  # a message for another role: nothing of ours depends on it

    def _take_in(self, message: RunJobs, payload: bytes) -> list[Command]:
        key = (message.receipt_id, message.nonce)
        mask = 0
        for index in message.indexes:
            if 0 <= index < 63:
                mask |= 1 << index
        held = self._held.get(key, 0)
        fresh = mask & ~held  # a hand-over that comes twice must not run twice
        if not fresh:
            return []
        if self.draining:
            # With the news again: if it was lost, more would come as fast as it goes back.
            return [ToDispatcher(self.hello()), ToDispatcher(Recalled(message.receipt_id, fresh))]
        bodies = parse_chunk(payload, len(message.indexes))
        self._held[key] = held | fresh
        self.pieces.append(
            Piece(
                message.queue,
                message.priority,
                message.slot,
                message.receipt_id,
                message.nonce,
                message.indexes,
                bodies,
                fresh,
            )
        )
        return []

    def _unstarted(self) -> list[Piece]:
        return [piece for piece in (*self.active, *self.pieces) if piece.todo]

    def _next_up(self, now_s: float) -> tuple[Piece | None, int]:
        """The attempt that starts next, if none runs now and none has just been long. It is kept when others are
        recalled: lanes that took turns at giving back all they had just been given would never start a thing."""
        if any(piece.running for piece in self.active):
            return None, 0
        if self.started_s is not None and now_s - self.started_s >= LONG_JOB_S:
            return None, 0  # the dispatcher may have granted it to others while the long one ran
        piece = next(iter(self._unstarted()), None)
        return piece, piece.todo & -piece.todo if piece is not None else 0

    def _recall(self, receipt_id: int, mask: int, now_s: float) -> list[Command]:
        granted = 0
        commands: list[Command] = []
        next_up, first = self._next_up(now_s)
        for piece in self._unstarted():
            given = piece.todo & mask & ~(first if piece is next_up else 0)
            if piece.receipt_id == receipt_id and given:
                granted |= given
                commands += self._withdraw(piece, given)
        return [*commands, ToDispatcher(Recalled(receipt_id, granted))]

    def _give_back(self, piece: Piece, mask: int) -> list[Command]:
        return [*self._withdraw(piece, mask), ToDispatcher(Recalled(piece.receipt_id, mask))]

    def _withdraw(self, piece: Piece, mask: int) -> list[Command]:
        piece.todo &= ~mask
        self._forget(piece, mask)
        if piece.todo or piece.running or piece.done or piece.others:
            return []
        if piece in self.active:
            self.active.remove(piece)
        else:
            self.pieces.remove(piece)
        return self._release(piece)

    def _flush(self, piece: Piece, now_s: float) -> list[Command]:
        commands: list[Command] = []
        mask = 0
        for done in piece.done.values():
            mask |= done
        for other in piece.others:
            mask |= 1 << other[0]
        if mask:
            commands += self._results(piece, mask, now_s)
        if not piece.todo and not piece.running and piece in self.active:
            self.active.remove(piece)
            commands += self._release(piece)
        if self.cancelled and self.idle:
            self.cancelled.clear()
        return commands

    def _results(self, piece: Piece, mask: int, now_s: float) -> list[Command]:
        self._seq += 1
        message = AttemptsEnded(
            self._incarnation,
            self._seq,
            piece.slot,
            piece.receipt_id,
            piece.nonce,
            [[kind, done] for kind, done in piece.done.items()],
            piece.others,
            self._has_more_than(piece),
            self._oldest(),
            list(piece.staged),
            piece.owned,
        )
        payload = tuple(piece.staged.values())
        ran = AttemptsRan(
            piece.receipt_id, mask, [[kind, *figures] for kind, figures in piece.timings.items()]
        )
        jobs = mask.bit_count()
        size = jobs * _BYTES_PER_RESULT + sum(_error_bytes(other[6]) for other in piece.others)
        size += sum(map(len, payload))
        self._kept[self._seq] = _Kept(
            message, payload, piece, mask, jobs, size, RESEND_S, now_s + RESEND_S, piece.told
        )
        self._kept_jobs += jobs
        self._kept_bytes += size
        self.jobs_done += jobs
        piece.unacknowledged += 1
        piece.done, piece.others, piece.staged, piece.owned = {}, [], {}, []
        piece.timings, piece.told = {}, None
        return [ToFinalizer(message, payload), ToDispatcher(ran)]

    def _has_more_than(self, piece: Piece) -> bool:
        """Say whether there will soon be other results; those of attempts that wait may take days."""
        active = len(self.active) - len(self._waits.now)
        waits = (piece.receipt_id, piece.nonce) in self._waits.now
        return bool(piece.todo or self.pieces or active > (0 if waits else 1))

    def _acknowledged(self, seq: int, stale: list[Any], also: list[Any]) -> list[Command]:
        commands: list[Command] = []
        events: list[JobEvent] = []
        numbers = [number for number in self._kept if number <= seq]
        for number in [*numbers, *(number for number in also if number > seq and number in self._kept)]:
            kept = self._kept.pop(number)
            if kept.told is not None:
                events += _true_of(kept, stale)
            self._kept_jobs -= kept.jobs
            self._kept_bytes -= kept.size_bytes
            kept.piece.unacknowledged -= 1
            self._forget(kept.piece, kept.mask)
            commands += self._release(kept.piece)
        return [*commands, TellHooks(events)] if events else commands

    def _release(self, piece: Piece) -> list[Command]:
        """Free the journal row once nothing of the piece is unstarted, running, unsent or uncommitted."""
        if piece.row < 0 or piece.unacknowledged or piece.todo or piece.running or piece in self.active:
            return []
        row, piece.row = piece.row, -1
        return [ReleaseRow(row)]

    def _resend(self, now_s: float, *, only_due: bool) -> list[Command]:
        commands: list[Command] = []
        oldest = self._oldest()
        for kept in self._kept.values():
            if only_due and kept.due_s > now_s:
                continue
            if kept.message.oldest != oldest:
                kept.message = replace(kept.message, oldest=oldest)
            kept.wait_s = min(kept.wait_s * 2, RESEND_MAX_S) if only_due else RESEND_S
            kept.due_s = now_s + kept.wait_s
            commands.append(ToFinalizer(kept.message, kept.payload))
        return commands

    def _oldest(self) -> int:
        """The number of the oldest results kept, or of those that are just being made."""
        return next(iter(self._kept), self._seq)

    def _forget(self, piece: Piece, mask: int) -> None:
        key = (piece.receipt_id, piece.nonce)
        left = self._held.get(key, 0) & ~mask
        if left:
            self._held[key] = left
        else:
            self._held.pop(key, None)


def _true_of(kept: _Kept, stale: list[Any]) -> list[JobEvent]:
    """Return what of a message came to be as it said."""
    wrong = 0
    for receipt_id, mask in stale:
        if receipt_id == kept.message.receipt_id:
            wrong |= mask
    return [event for index, event in kept.told or () if not wrong >> index & 1]


def _error_bytes(error: dict[str, Any] | None) -> int:
    return sum(len(text) for text in error.values() if isinstance(text, str)) if error else 0
