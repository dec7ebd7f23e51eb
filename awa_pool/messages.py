"""What the processes of one pool say to each other: values, no I/O.

Over ZeroMQ a message travels as frames `[type name, orjson list of the fields, payload frames …]` (see `wire`);
over the control pipe between the supervisor and a child as one JSON document `[type name, [fields]]`. An attempt
is named by its receipt `(slot, receipt_id, nonce)` and its index in it; a set of attempts of one receipt is a bit
mask (bit i = index i, 0 ≤ i < 63). Durations are seconds, instants the host's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .errors import UnknownMessage, WireError

Piece = tuple[int, int]
"""(receipt_id, mask): some attempts of one receipt."""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of every message: `to_list` and `decode` are the one codec, which checks form and types."""

    _types: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message._types[cls.__name__] = cls

    def to_list(self) -> list[Any]:
        return [getattr(self, name) for name in FIELDS[type(self).__name__]]


def decode(name: str, values: Any) -> Message:
    """Build the message `name` from its field list.

    Errors: UnknownMessage for a type nobody declared, WireError for a wrong number or type of fields.
    """
    cls = Message._types.get(name)
    if cls is None:
        raise UnknownMessage(f"no message is called {name[:80]!r}")
    names = FIELDS[name]
    if not isinstance(values, list) or len(values) != len(names):
        raise WireError(f"{name}: expected {len(names)} fields")
    for name_, value, wanted in zip(names, values, WANTED[name], strict=True):
        if wanted is not None and not (isinstance(value, wanted) and not (wanted is int and value is True)):
            raise WireError(f"{name}.{name_}: expected {wanted.__name__}, got {type(value).__name__}")
    return cls(*values)


# --- dispatcher → worker (ROUTER to the worker's DEALER) ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunJobs(Message):
    """Run these attempts in order. Payload: one frame, the jobs' JSON bodies joined by NUL (which PostgreSQL's
    text cannot hold), each `[job_id, kind, args, attempt, run_lease, max_attempts, extra | null]`."""

    queue: str
    priority: int
    slot: int
    receipt_id: int
    nonce: int
    indexes: list[int]


@dataclass(frozen=True, slots=True)
class Recall(Message):
    """Give back what of these attempts you have not started; answered by `Recalled`."""

    receipt_id: int
    mask: int


@dataclass(frozen=True, slots=True)
class CancelJob(Message):
    """The database cancelled this attempt: let the handler know."""

    job_id: int
    run_lease: int


@dataclass(frozen=True, slots=True)
class AskHolding(Message):
    """Say what you hold; answered by `Holding` with the same number."""

    audit: int


# --- worker → dispatcher -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerReady(Message):
    """A lane of a worker can take work. Sent on every (re)connect, so `holding` may be non-empty."""

    worker: int
    incarnation: str
    lane: str  # "sync" | "async"
    capacity: int  # attempts it runs at once; 0: it leaves, and takes nothing more
    holding: list[Any]  # list[Piece]: unstarted, running, or not yet acknowledged by the finalizer
    kinds: list[str]  # the kinds this lane runs


@dataclass(frozen=True, slots=True)
class AttemptsRan(Message):
    """These attempts have run; their results are on the way to the finalizer."""

    receipt_id: int
    mask: int
    timings: list[Any]  # [[kind, count, total_s, longest_s], …]


@dataclass(frozen=True, slots=True)
class Recalled(Message):
    """Answer to `Recall`: exactly these were not started and will not be."""

    receipt_id: int
    mask: int


@dataclass(frozen=True, slots=True)
class Holding(Message):
    """Answer to `AskHolding`."""

    audit: int
    pieces: list[Any]  # list[Piece]
    waiting: list[Any] = field(
        default_factory=list
    )  # list[Piece]: of these, what waits and has given its slot away


@dataclass(frozen=True, slots=True)
class AttemptsWait(Message):
    """Attempts wait for a callback and have given their slots away, or (`waiting` false) go on."""

    pieces: list[Any]  # list[Piece]
    waiting: bool


# --- worker → finalizer (DEALER to its ROUTER) -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptsEnded(Message):
    """Results of attempts of one receipt; kept by the worker until `ResultsCommitted` covers `seq`."""

    incarnation: str
    seq: int
    slot: int
    receipt_id: int
    nonce: int
    completed: list[Any]  # [[kind, mask], …]: ended with nothing to record
    others: list[
        Any
    ]  # [[index, job_id, run_lease, kind, outcome, delay_s | None, error | None, progress if it changed], …]
    more: bool = False  # the lane has more in hand: its next results may be waited for
    oldest: int = 1  # everything before this `seq` has been acknowledged
    staged: list[Any] = field(default_factory=list)
    """Indexes of attempts that end with follow-ups: payload frame i holds those of `staged[i]`, a JSON array of items as
    `enqueue_many` takes them. Such an attempt stands in `others`, whatever its outcome."""
    owned: list[Any] = field(default_factory=list)
    """Indexes of those of `others` whose handlers may have completed them in transactions of their own: if they have, that is
    the outcome, else what stands there."""


@dataclass(frozen=True, slots=True)
class AttemptProgress(Message):
    """What running attempts say of their progress; the newest counts, nobody answers."""

    items: list[Any]  # [[slot, receipt_id, nonce, index, job_id, run_lease, progress], …]


@dataclass(frozen=True, slots=True)
class RegisterCallback(Message):
    """Register a callback for a running attempt; said again until `CallbackRegistered` comes with the same `request`."""

    request: int  # counts the requests of this sender
    slot: int
    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int
    callback_id: str  # the id that it is to have: asking twice registers once
    timeout_s: float
    rules: dict[str, Any] = field(default_factory=dict)  # expressions by the name of their argument
    over: str = ""  # the callback that its handler has waited for last, and waits for no more
    nth: int = 1  # counts the callbacks that this attempt has asked for: a late one replaces no newer one


@dataclass(frozen=True, slots=True)
class AwaitCallback(Message):
    """The handler of an attempt begins to wait for its callback, or waits still; said again until `CallbackAnswered`."""

    request: int  # counts the requests of this sender, with those of `RegisterCallback`
    slot: int
    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int
    callback_id: str


@dataclass(frozen=True, slots=True)
class ForgetCallback(Message):
    """Nobody waits for the answer to that `AwaitCallback` any more: its attempt runs."""

    request: int


@dataclass(frozen=True, slots=True)
class LeaseAttempt(Message):
    """Move a running attempt to leases, as its handler completes it itself; said again until `AttemptLeased` comes."""

    request: int  # counts the requests of this sender, with those of `RegisterCallback`
    slot: int
    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int


# --- finalizer → worker ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultsCommitted(Message):
    """Everything up to and including `seq` is committed (or stale): forget it."""

    seq: int
    stale: list[Any] = field(default_factory=list)
    """list[Piece]: of these it is not so that what the worker said came to be: they had ended before, or the database
    refused it. May name what an earlier message has named."""
    also: list[Any] = field(default_factory=list)
    """Numbers above `seq` that are committed too, while one between waits, as for a key that a producer holds. Each is
    named once, and again when the result comes again."""


@dataclass(frozen=True, slots=True)
class CallbackRegistered(Message):
    """Answer to `RegisterCallback`: done, and committed; stale (the attempt has ended); waiting (it waits for one); refused,
    with what the database says."""

    request: int
    status: str
    number: int = 0  # which callback of its job, from 1
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallbackAnswered(Message):
    """Answer to `AwaitCallback`, with one payload frame of JSON if the status is answered.

    status: answered; refused (not the attempt's newest callback); stale (the attempt has ended); failed.
    why: of a stale one completed, failed, retried, expired, cancelled or nothing; of a failed one what the database says.
    """

    request: int
    status: str
    number: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class AttemptLeased(Message):
    """Answer to `LeaseAttempt`: done, and committed; stale (the attempt has ended); refused, with what the database says."""

    request: int
    status: str
    error: str = ""


# --- dispatcher ↔ finalizer (the dispatcher is a DEALER at the finalizer's ROUTER) --------------------------


@dataclass(frozen=True, slots=True)
class DispatcherHello(Message):
    """The dispatcher is here: answer with `FinalizerLoad` now and at every change."""

    incarnation: str
    hears: bool = False  # it hears what the database notifies, and passes news of callbacks on


@dataclass(frozen=True, slots=True)
class CallbackNews(Message):
    """Something has become of a callback, as the database's notice says: resumed, completed, failed, retried, expired."""

    callback_id: str
    word: str


@dataclass(frozen=True, slots=True)
class EndAttempts(Message):
    """End attempts that no worker will report: given back, or lost with their process."""

    seq: int
    items: list[Any]
    """[[slot, receipt_id, nonce, index, job_id, run_lease, outcome, delay_s | None, error | None, kind], …]; of a lost one its
    attempt and the most of its job follow, where they are known."""


@dataclass(frozen=True, slots=True)
class AttemptsClosed(Message):
    """These attempts are closed in the database: take them off the books."""

    pieces: list[Any]  # list[Piece]


@dataclass(frozen=True, slots=True)
class FinalizerLoad(Message):
    """What the finalizer holds; `accepting` false means: claim nothing more for now."""

    incarnation: str
    held_jobs: int
    held_bytes: int
    accepting: bool


# --- supervisor → child (control pipe) ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configure(Message):
    """First message to a child: everything it needs, the DSN included (never on a command line)."""

    settings: dict[str, Any]


REPLACED = "replaced"
"""Reason of a `Stop` to a worker whose successor is there: what it runs has all the time it takes."""


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """Drain: dispatcher stops claiming and gives back, workers end after their jobs, and so on."""

    drain_s: float
    reason: str
    away_s: float = 0.0
    """To actors: after so long, and their own time, they wait no more for a database that is away."""


@dataclass(frozen=True, slots=True)
class StopNow(Message):
    """Give up what is running and end."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerGone(Message):
    """To the dispatcher: a worker process has died; what its page showed."""

    worker: int
    incarnation: str
    cause: str  # "killed by signal 9 (SIGKILL)" | "exited with status 3", with peak RSS and an OOM hint
    started: list[Any]  # [[receipt_id, started_mask, completed_mask], …] from the page's journal
    phase: str
    charged: list[Any] = field(default_factory=list)
    """`[[receipt_id, mask, reason], …]`: it was killed for just these attempts; what ran beside them goes back. Empty:
    it died of what it ran."""
    waiting: list[Any] = field(default_factory=list)
    """`[[receipt_id, mask], …]`: of those started, what the page showed waiting for callbacks; it did not die of them."""


@dataclass(frozen=True, slots=True)
class ActorReplaced(Message):
    """To workers and actors: that role has a new process; say hello and send again what is not acknowledged."""

    role: str  # "dispatcher" | "finalizer"


@dataclass(frozen=True, slots=True)
class Retire(Message):
    """To the dispatcher: give no more work to that worker incarnation."""

    worker: int
    incarnation: str


# --- child → supervisor (control pipe) ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready(Message):
    """The child has booted. Workers put the registry's facts here: kinds, queues."""

    role: str
    incarnation: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stats(Message):
    """Cumulative figures of this incarnation, about once a second: also the sign of life."""

    role: str
    incarnation: str
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Worn(Message):
    """A worker has started, or soon will have, as many attempts as it may: it wants a successor."""

    incarnation: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Idle(Message):
    """Dispatcher, under --drain: nothing available or running is left; `later` wait for their time or are paused.

    `unknown`: of its queues, those that no job and no setting has named. `parked`: jobs that wait for an answer.
    """

    later: int
    unknown: list[Any] = field(default_factory=list)
    parked: int = 0


@dataclass(frozen=True, slots=True)
class AttemptCancelled(Message):
    """Dispatcher: the database has cancelled an attempt that this worker may be running: see that it ends."""

    worker: int
    incarnation: str
    receipt_id: int
    nonce: int
    index: int


@dataclass(frozen=True, slots=True)
class Drained(Message):
    """A stopping child has done all it had to do, or could, and is about to exit.

    `jobs_left`: dispatcher: attempts that it could not give back."""

    role: str
    incarnation: str
    jobs_left: int = 0


@dataclass(frozen=True, slots=True)
class Fatal(Message):
    """A child cannot go on: the reason, for people. Exit status follows."""

    role: str
    reason: str


FIELDS: dict[str, tuple[str, ...]] = {
    name: tuple(f.name for f in fields(cls)) for name, cls in Message._types.items()
}
_PLAIN = {"int": int, "str": str, "bool": bool, "dict[str, Any]": dict, "list[Any]": list, "list[int]": list}
WANTED: dict[str, tuple[type | None, ...]] = {
    name: tuple(_PLAIN.get(str(f.type)) for f in fields(cls)) for name, cls in Message._types.items()
}
