"""The protocol by which a handler waits for the answer to its callback, as a model.

One job. Its handler registers callbacks, waits for them, gives waits up, or parks the job with one, and returns; its worker may die, and a
job that was taken for lost runs again under the next lease while the old handler goes on. The worker says a wait again and
again until it is answered. The finalizer keeps a table of waits and asks the database; when it dies, table and replies are
lost. What is under way may come late and more than once. Outside, senders answer callbacks, each in a transaction that holds
the lease row until it commits or is aborted; maintenance lets callbacks time out; anybody cancels.

What the laws need to know and the protocol does not stands beside it: what was accepted, what was delivered to whom, which
attempts have ended, and which answers an attempt took with it that ended for another reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

LAST_LEASE = 2
MOST_CALLBACKS = 2
MOST_WAITS = 2
MOST_ANSWERS = 2
KINDS = ("resume", "complete", "retry")

JobState = Literal["available", "running", "waiting", "parked", "ended"]


@dataclass(frozen=True)
class Waits:
    """The protocol as it is built; each switch breaks it in one way."""

    spends_early: bool = False  # asking the database takes the answer out of it, before anybody has it
    expires_answered: bool = False  # a time-out does not look whether an answer has come, or the wait begun
    wakes_early: bool = False  # the handler is woken before the answer has committed
    unlocked: bool = False  # senders look first and write later, and hold nothing meanwhile
    any_token: bool = False  # an older id answers the newest callback
    unnumbered: bool = False  # a worker takes an answer for whichever wait its attempt is in
    said_once: bool = False  # a worker says a wait once, and then only listens
    unspent: bool = False  # a worker forgets that its token has been answered
    unguarded: bool = False  # an end counts whatever the lease
    forgets_answers: bool = False  # a wait that is given up takes the answer with it that has come meanwhile


class Wait(NamedTuple):
    """What a worker says of a wait: whose it is, which of the attempt's waits, for which callback."""

    lease: int
    request: int
    callback: int


class Reply(NamedTuple):
    """What the finalizer answers."""

    wait: Wait
    status: str


class Attempt(NamedTuple):
    """A handler that is alive: its tokens from the first to the last, those that were answered, and the waits so far."""

    phase: Literal["runs", "waits", "parks", "returned"] = "runs"
    token: int = 0
    tokens: frozenset[int] = frozenset()
    spent: frozenset[int] = frozenset()
    waits: int = 0


class Won(NamedTuple):
    """A decision on a callback that was accepted, and which callback was then the attempt's newest."""

    callback: int
    kind: str
    newest: int


class State(NamedTuple):
    """Database, handlers by lease, finalizer, replies under way, open transactions of senders; then what the laws ask for."""

    job: JobState = "available"
    lease: int = 0
    newest: int = 0
    answered: bool = False
    carried: int = 0
    numbers: int = 0
    attempts: tuple[Attempt | None, ...] = (None,) * LAST_LEASE
    table: frozenset[Wait] = frozenset()
    replies: frozenset[Reply] = frozenset()
    open: tuple[tuple[str, int, int], ...] = ()
    answers_left: int = MOST_ANSWERS
    won: tuple[Won, ...] = ()
    delivered: tuple[tuple[int, str, int], ...] = ()
    dropped: frozenset[int] = frozenset()
    ended: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether there is a lease row."""
        return self.job in ("running", "waiting", "parked")

    def runs(self, lease: int) -> bool:
        """Whether that attempt is the job's, with a handler."""
        return self.lease == lease and self.job in ("running", "waiting")


class Model:
    """The steps of one protocol."""

    def __init__(self, protocol: Waits) -> None:
        self.protocol = protocol

    def actions(self, state: State) -> Iterator[tuple[str, State]]:
        """Return everything that may happen next."""
        locked = not self.protocol.unlocked and any(state.open)
        yield from self._finalizer(state, locked)
        yield from self._senders(state, locked)
        for lease, attempt in enumerate(state.attempts, 1):
            if attempt is not None:
                yield from self._worker(state, lease, attempt)
                if not locked:
                    yield from self._written(state, lease, attempt)
        if not locked:
            yield from self._anybody(state)

    def _anybody(self, s: State) -> Iterator[tuple[str, State]]:
        """A claim, and how others end the attempt. The second run only returns: the first has all there is to race with."""
        if s.job == "available" and s.lease < LAST_LEASE:
            got = (s.carried, "run", s.carried)
            yield (
                "claim",
                s._replace(
                    job="running",
                    lease=s.lease + 1,
                    attempts=_set(s.attempts, s.lease, Attempt("returned" if s.lease else "runs")),
                    delivered=(*s.delivered, got) if s.carried and got not in s.delivered else s.delivered,
                ),
            )
        if s.job in ("running", "waiting"):
            yield "fault: taken for lost", _ended(s, "available", drops=True)
        if s.is_open:
            yield "fault: cancelled", _ended(s, "ended", drops=True)
        waited_for = s.job in ("waiting", "parked") and not s.answered
        if s.newest and (waited_for or (self.protocol.expires_answered and s.is_open)):
            over = _ended(s, "available" if s.lease < LAST_LEASE else "ended", drops=False)
            yield "fault: timed out", over._replace(won=(*s.won, Won(s.newest, "expire", s.newest)))

    def _senders(self, s: State, locked: bool) -> Iterator[tuple[str, State]]:
        """Transactions end, and others begin; an answer to what is not open is refused, and nothing changes."""
        for sender, doing in enumerate(s.open):
            kind, callback, newest = doing
            closed = s._replace(open=s.open[:sender] + s.open[sender + 1 :])
            yield f"{kind} of {callback} commits", self._answered(closed, kind, Won(callback, kind, newest))
            yield f"fault: {kind} of {callback} is aborted", closed
        if not locked and s.answers_left:
            for callback in range(1, s.numbers + 1):
                found = callback == s.newest or (self.protocol.any_token and s.newest)
                if not (found and s.is_open and not s.answered):
                    continue
                for kind in KINDS:
                    if kind != "retry" or s.job != "running":
                        began = s._replace(
                            open=tuple(sorted((*s.open, (kind, callback, s.newest)))),
                            answers_left=s.answers_left - 1,
                        )
                        yield f"{callback} is answered: {kind}", began

    def _answered(self, s: State, kind: str, won: Won) -> State:
        s = s._replace(won=(*s.won, won))
        if not s.is_open:
            return s
        if kind != "resume":
            return _ended(s, "ended" if kind == "complete" else "available", drops=False)
        if s.job == "parked":
            return s._replace(job="available", newest=0, carried=s.newest)
        return s._replace(job="running", answered=True)

    def _finalizer(self, s: State, locked: bool) -> Iterator[tuple[str, State]]:
        if s.table:
            yield "fault: the finalizer dies", s._replace(table=frozenset())
        for wait in s.table:
            if self.protocol.wakes_early and ("resume", wait.callback, wait.callback) in s.open:
                yield f"{wait} is woken", _replied(s, Reply(wait, "answered"))
            if not locked:
                asked, status = self._asked(s, wait)
                yield f"{wait} is asked", _replied(asked, Reply(wait, status)) if status else asked
                yield f"fault: {wait} is asked, and the finalizer dies", asked._replace(table=frozenset())

    def _asked(self, s: State, wait: Wait) -> tuple[State, str]:
        """What `wait_for_callbacks` does and says: one statement."""
        if not s.runs(wait.lease):
            return s, "stale"
        if s.newest != wait.callback:
            return s, "refused"
        if not s.answered:
            return s._replace(job="waiting"), ""
        return s._replace(newest=0, answered=False) if self.protocol.spends_early else s, "answered"

    def _worker(self, s: State, lease: int, a: Attempt) -> Iterator[tuple[str, State]]:
        yield f"fault: the worker of {lease} dies", _with(s, lease, None)
        if a.phase == "runs":
            yield f"{lease} returns", _with(s, lease, a._replace(phase="returned"))
            for token in a.tokens - a.spent if not self.protocol.unspent else a.tokens:
                yield f"{lease} parks with {token}", _with(s, lease, a._replace(phase="parks", token=token))
                if a.waits < MOST_WAITS:
                    wait = Wait(lease, a.waits + 1, token)
                    begun = a._replace(phase="waits", token=token, waits=a.waits + 1)
                    table = s.table | {wait} if self.protocol.said_once else s.table
                    yield f"{lease} waits for {token}", _with(s._replace(table=table), lease, begun)
        if a.phase == "waits":
            yield from self._waiting(s, lease, a)

    def _waiting(self, s: State, lease: int, a: Attempt) -> Iterator[tuple[str, State]]:
        """The wait is said; a reply comes; or an exception that the finalizer knows nothing of ends it."""
        mine = Wait(lease, a.waits, a.token)
        on = a._replace(phase="runs", token=0)
        yield f"fault: {lease} waits no longer", _with(s, lease, on)
        if mine not in s.table and not self.protocol.said_once:
            yield f"{mine} is said", s._replace(table=s.table | {mine})
        for reply in s.replies:
            if reply.wait != mine and not (self.protocol.unnumbered and reply.wait.lease == lease):
                continue
            read = s._replace(replies=s.replies - {reply})
            if reply.status == "stale":
                yield f"{lease} is told that it has ended", _with(read, lease, None)
            elif reply.status == "refused":
                yield f"{lease} is refused", _with(read, lease, on)
            else:
                got = (reply.wait.callback, "handler", a.token)
                yield (
                    f"{lease} goes on",
                    _with(
                        read._replace(delivered=(*s.delivered, got)),
                        lease,
                        on._replace(spent=a.spent | {a.token}),
                    ),
                )

    def _written(self, s: State, lease: int, a: Attempt) -> Iterator[tuple[str, State]]:
        """What the finalizer writes for an attempt: a callback, a parking, an end; the last two may come twice."""
        if (
            a.phase == "runs"
            and lease == 1
            and s.runs(lease)
            and (s.job == "running" or a.waits)
            and s.numbers < MOST_CALLBACKS
        ):
            token = s.numbers + 1
            dropped = s.dropped | ({s.newest} if s.answered else set())
            yield (
                f"{lease} registers {token}",
                _with(
                    s._replace(job="running", newest=token, answered=False, numbers=token, dropped=dropped),
                    lease,
                    a._replace(tokens=a.tokens | {token}),
                ),
            )
        gives_up = a.waits > (a.phase == "waits")  # that word may come when it waits again
        if gives_up and s.runs(lease) and (s.job == "waiting" or self.protocol.forgets_answers):
            yield f"a wait of {lease} is given up", s._replace(job="running", answered=False)
        if a.phase == "parks":
            done = self._parked(s, lease, a.token)
            yield f"{lease} is parked", _with(done, lease, None)
            yield f"fault: {lease} is parked, the answer is lost", done
        if a.phase == "returned":
            done = s
            if s.runs(lease) or (self.protocol.unguarded and s.is_open):
                done = _ended(s._replace(lease=lease), "ended", drops=True)
            yield f"{lease} is completed", _with(done, lease, None)
            yield f"fault: {lease} is completed, the answer is lost", done

    def _parked(self, s: State, lease: int, token: int) -> State:
        if not s.runs(lease):
            return s
        if s.newest != token:  # the attempt fails
            return _ended(s, "available", drops=True)
        if s.answered:
            return s._replace(
                job="available", newest=0, answered=False, carried=token, ended=(*s.ended, lease)
            )
        return s._replace(job="parked", ended=(*s.ended, lease))


def _replied(s: State, reply: Reply) -> State:
    return s._replace(table=s.table - {reply.wait}, replies=s.replies | {reply})


def _ended(s: State, job: JobState, *, drops: bool) -> State:
    """The attempt ends; `drops`: in a way that may take an answer with it, for whoever ended it did not want it."""
    ended = s.ended if s.job == "parked" else (*s.ended, s.lease)
    dropped = s.dropped | {s.newest} if drops and s.answered else s.dropped
    return s._replace(job=job, newest=0, answered=False, ended=ended, dropped=dropped)


def told_or_undecided(s: State) -> bool:
    """Say whether every handler that waits waits for something that is still open."""
    return all(
        a is None or a.phase != "waits" or (s.runs(lease) and s.newest == a.token and not s.answered)
        for lease, a in enumerate(s.attempts, 1)
    )


def is_fault(step: str) -> bool:
    """Say whether a step is one that nobody may count on."""
    return step.startswith("fault: ")


LAWS = {
    "a callback is decided once": lambda s: len({w.callback for w in s.won}) == len(s.won),
    "an accepted answer is kept until it is delivered, or its attempt has ended otherwise": lambda s: all(
        w.kind != "resume"
        or (s.answered and s.newest == w.newest)
        or s.carried == w.newest
        or w.newest in s.dropped
        or any(d[0] == w.newest for d in s.delivered)
        for w in s.won
    ),
    "an answer is delivered once": lambda s: len({d[0] for d in s.delivered}) == len(s.delivered),
    "what is delivered has been accepted": lambda s: all(
        any(w.kind == "resume" and w.newest == d[0] for w in s.won) for d in s.delivered
    ),
    "a token brings its own answer": lambda s: all(d[0] == d[2] for d in s.delivered),
    "an older callback is not answered": lambda s: all(w.callback == w.newest for w in s.won),
    "an attempt ends once, and neither runs nor waits after it": lambda s: (
        len(set(s.ended)) == len(s.ended) and not (s.job in ("running", "waiting") and s.lease in s.ended)
    ),
}


def _set(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


def _with(state: State, lease: int, attempt: Attempt | None) -> State:
    attempts = _set(state.attempts, lease - 1, attempt)
    if attempt is None and lease == 1:  # only the first waits: what is said of it is for nobody from now on
        return state._replace(attempts=attempts, table=frozenset(), replies=frozenset())
    return state._replace(attempts=attempts)
