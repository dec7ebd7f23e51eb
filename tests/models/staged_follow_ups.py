"""The protocol by which a handler's staged follow-up is stored with its completion, as a model.

Two jobs; a handler ends with a request for a follow-up under one of the keys, whichever it worked out. The result waits
for the finalizer, which carries it through one transaction: the key (taken; or, where it has a holder, locked, so that
the holder cannot give it up before the commit), the guard on the lease, the insert, the commit. A try may be aborted (a
deadlock, a lost connection), and so may the answer to a commit that landed: the same sealed result is tried again. Meanwhile anybody may rescue the job, claim it again under a new lease, complete it from outside,
and a follow-up that has ended gives up its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

KEYS = ("k1", "k2")
MOST_TRIES = 1
LAST_LEASE = 2

Who = tuple[int, int]
"""(job, lease): an attempt, and the follow-up that it made."""
Phase = Literal["runs", "ended", "keyed", "guarded", "second", "over"]


@dataclass(frozen=True)
class Protocol:
    """The protocol as it is built; each switch breaks it in one way."""

    insert_before: bool = False  # the follow-up commits, then the completion is tried
    insert_after: bool = False  # the completion commits, then the follow-up is inserted
    no_guard: bool = False  # whoever comes completes a running job, whatever its lease
    drained: bool = False  # the first try empties the buffer
    batched: bool = False  # the stager's completion goes the road of those that staged nothing
    unlocked: bool = (
        False  # a key found held is not locked, and may be given up before the completion commits
    )


@dataclass(frozen=True)
class Attempt:
    """A claimed attempt on its way: the key is chosen when the handler ends; `took` belongs to the open transaction."""

    job: int
    lease: int
    phase: Phase = "runs"
    key: str | None = None
    tries: int = 0
    took: bool = False
    has_request: bool = True

    @property
    def who(self) -> Who:
        return self.job, self.lease


@dataclass(frozen=True)
class Completion:
    """A completion that has committed: by which attempt, whether its lease was the job's, who held the key."""

    who: Who
    key: str
    current: bool
    holder: Who | None


@dataclass(frozen=True)
class State:
    """What is in the database, and the attempts on their way."""

    jobs: tuple[tuple[str, int], ...] = (("available", 0), ("available", 0))
    attempts: frozenset[Attempt] = frozenset()
    holders: tuple[Who | None, ...] = (None, None)
    follow_ups: frozenset[tuple[Who, str]] = frozenset()
    completions: frozenset[Completion] = frozenset()
    released: frozenset[str] = frozenset()


class Model:
    """The steps of one protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol

    def actions(self, state: State) -> Iterator[tuple[str, State]]:
        """Return everything that may happen next."""
        for job, (status, lease) in enumerate(state.jobs):
            yield from self._job(state, job, status, lease)
        for key, holder in zip(KEYS, state.holders, strict=True):
            if holder is not None and key not in state.released and not self._locked(state, key):
                yield (
                    f"release {key}",
                    replace(
                        state,
                        holders=_set(state.holders, KEYS.index(key), None),
                        released=state.released | {key},
                    ),
                )
        for attempt in state.attempts:
            yield from self._attempt(state, attempt)

    def _locked(self, state: State, key: str) -> bool:
        """Say whether an open transaction that found this key held keeps it so."""
        return not self.protocol.unlocked and any(
            a.key == key and a.phase in ("keyed", "guarded") for a in state.attempts
        )

    def _job(self, state: State, job: int, status: str, lease: int) -> Iterator[tuple[str, State]]:
        if status == "available" and lease < LAST_LEASE:
            yield (
                f"claim {job}",
                replace(
                    state,
                    jobs=_set(state.jobs, job, ("running", lease + 1)),
                    attempts=state.attempts | {Attempt(job, lease + 1)},
                ),
            )
        locked = any(a.job == job and a.phase == "guarded" for a in state.attempts)
        if status == "running" and not locked:
            yield f"rescue {job}", replace(state, jobs=_set(state.jobs, job, ("available", lease)))
            yield f"complete {job} from outside", replace(state, jobs=_set(state.jobs, job, ("ended", lease)))

    def _attempt(self, state: State, a: Attempt) -> Iterator[tuple[str, State]]:
        name = f"{a.job}.{a.lease}"
        match a.phase:
            case "runs":
                for key in KEYS:
                    yield f"{name} ends with {key}", _with(state, a, replace(a, phase="ended", key=key))
            case "ended":
                yield from self._begin(state, a, name)
            case "keyed":
                yield from self._guard(state, a, name)
                yield f"{name} is aborted", self._aborted(state, a)
            case "guarded":
                done = self._commit(state, a)
                yield f"{name} commits", _with(done, a, replace(a, phase=self._after_commit(), took=False))
                if a.tries < MOST_TRIES:
                    yield f"{name} commits, the answer is lost", _with(done, a, self._again(a))
                yield f"{name} is aborted", self._aborted(state, a)
            case "second":
                yield f"{name} inserts late", _with(self._insert(state, a), a, replace(a, phase="over"))
                yield f"{name} dies before its insert", _with(state, a, replace(a, phase="over"))

    def _begin(self, state: State, a: Attempt, name: str) -> Iterator[tuple[str, State]]:
        """Take the key, first of all; one that an open transaction has just taken is waited for."""
        if self.protocol.batched or self.protocol.insert_after or not a.has_request:
            yield f"{name} begins", _with(state, a, replace(a, phase="keyed"))
            return
        if any(other.took and other.key == a.key for other in state.attempts):
            return
        assert a.key is not None
        took = state.holders[KEYS.index(a.key)] is None
        if self.protocol.insert_before:
            early = self._insert(state, a)
            yield f"{name} inserts early", _with(early, a, replace(a, phase="keyed"))
        else:
            yield f"{name} takes {a.key}", _with(state, a, replace(a, phase="keyed", took=took))

    def _guard(self, state: State, a: Attempt, name: str) -> Iterator[tuple[str, State]]:
        if any(other.job == a.job and other.phase == "guarded" for other in state.attempts):
            return  # the receipt is locked
        status, lease = state.jobs[a.job]
        if status == "running" and (lease == a.lease or self.protocol.no_guard):
            yield f"{name} passes the guard", _with(state, a, replace(a, phase="guarded"))
        else:
            yield f"{name} is stale", _with(state, a, replace(a, phase="over", took=False))

    def _commit(self, state: State, a: Attempt) -> State:
        assert a.key is not None
        holder = state.holders[KEYS.index(a.key)]
        lease = state.jobs[a.job][1]
        completion = Completion(a.who, a.key, lease == a.lease, holder)
        done = replace(
            state,
            jobs=_set(state.jobs, a.job, ("ended", lease)),
            completions=state.completions | {completion},
        )
        return self._insert(done, a) if a.took else done

    def _insert(self, state: State, a: Attempt) -> State:
        assert a.key is not None
        at = KEYS.index(a.key)
        if state.holders[at] is not None:
            return state
        return replace(
            state,
            holders=_set(state.holders, at, a.who),
            follow_ups=state.follow_ups | {(a.who, a.key)},
        )

    def _after_commit(self) -> Phase:
        return "second" if self.protocol.insert_after else "over"

    def _aborted(self, state: State, a: Attempt) -> State:
        if a.tries == MOST_TRIES:
            return _with(state, a, replace(a, phase="over", took=False))
        return _with(state, a, self._again(a))

    def _again(self, a: Attempt) -> Attempt:
        has_request = a.has_request and not self.protocol.drained
        return replace(a, phase="ended", tries=a.tries + 1, took=False, has_request=has_request)


LAWS = {
    "a follow-up exists only with the completion of the attempt that staged it": lambda s: all(
        any(c.who == who and c.key == key for c in s.completions) for who, key in s.follow_ups
    ),
    "a completion has its follow-up, or the key had a holder": lambda s: all(
        (c.who, c.key) in s.follow_ups or c.holder is not None for c in s.completions
    ),
    "a key has one holder, which made a follow-up": lambda s: all(
        holder is None or (holder, key) in s.follow_ups for key, holder in zip(KEYS, s.holders, strict=True)
    ),
    "only the current lease completes": lambda s: all(c.current for c in s.completions),
    "a job completes once": lambda s: len({c.who[0] for c in s.completions}) == len(s.completions),
}


def _set(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


def _with(state: State, old: Attempt, new: Attempt) -> State:
    """Return the state with an attempt moved on; one that is over leaves it."""
    kept = {new} if new.phase != "over" else frozenset[Attempt]()
    return replace(state, attempts=state.attempts - {old} | kept)
