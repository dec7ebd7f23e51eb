"""What is due next. Pure: answers of the database in, questions out, time passed in.

Leadership is a row with an expiry (15 s, or the stale threshold where that is less), renewed three times as often: when a
leader vanishes, another host has taken over after four thirds of it at the latest, and rescues when it would itself have done so. Branches are independent: one that fails waits, the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .ring import Ring

LEASE_S = 15.0
FAILED_S = (1.0, 60.0)  # first and longest pause after a failure
PROMOTE_LIMIT = 1000
RESCUE_LIMIT = 1000
EXPIRE_LIMIT = 1000
MOVE_LIMIT = 1000
DEAD_LIMIT = 1000
DEAD = "dead"
MORE_S = 0.05  # pause before the next step of a sweep that was not through
RING_SHARE = 16  # parts in which retention and history are spread over the ring's 24 slots
MIN_SLOT_AGE_S = 60.0
MIN_SLOT_BYTES = 16 << 20

LEAD, PROMOTE, RESCUE, ROTATE, LOOK = "lead", "promote", "rescue", "rotate", "look"
EXPIRE = "expire"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the pool was told."""

    holder: str  # uuid; a successor with the same one goes on leading at once
    stale_s: float = 30.0
    retention_s: float = 86_400.0
    history_bytes: int = 1 << 30
    dlq_retention_s: float = 2_592_000.0

    @property
    def lease_s(self) -> float:
        """How long a leader leads without a word."""
        return min(LEASE_S, self.stale_s)

    @property
    def renew_s(self) -> float:
        """How often it says that it still does."""
        return self.lease_s / 3


@dataclass(frozen=True, slots=True)
class Ask:
    """Call that method of the store with these arguments."""

    branch: str
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Say:
    """A line for people."""

    level: str
    text: str


Command = Ask | Say


@dataclass(slots=True)
class Branch:
    """One kind of housekeeping; pauses grow from `busy_s` to `idle_s` while there is nothing to do."""

    name: str
    method: str
    busy_s: float
    idle_s: float
    arguments: tuple[Any, ...] = ()
    due_s: float = 0.0
    pause_s: float = 0.0
    failures: int = 0
    under_way: bool = False
    runs: int = 0
    error: str = field(default="")

    def done(self, now_s: float, *, useful: bool) -> None:
        """Plan the next run."""
        self.under_way, self.failures, self.error = False, 0, ""
        self.runs += 1
        self.pause_s = self.busy_s if useful else min(self.idle_s, max(self.busy_s, self.pause_s * 2))
        self.due_s = now_s + self.pause_s

    def failed(self, now_s: float) -> None:
        """Plan the next try, later each time."""
        self.under_way = False
        self.failures += 1
        first_s, most_s = FAILED_S
        self.due_s = now_s + min(most_s, first_s * (1 << min(self.failures - 1, 10)))


class Maintenance:
    """Decides what to ask the database, one question at a time.

    `unbroken`: since when the host's heartbeat had been answered without a gap when this process began, and when last: a
    successor of one that was killed need not prove anew that it was not its own host that was cut off.
    """

    def __init__(self, rules: Rules, now_s: float, unbroken: Sequence[float] | None = None) -> None:
        self.rules = rules
        self.leads = False
        self.promoted = 0
        self.rescued = 0
        self.expired = 0
        self.errors = 0
        self.ring = Ring()
        self._unbroken_since_s: float | None
        self._led_at_s: float | None
        self._unbroken_since_s, self._led_at_s = unbroken or (None, None)
        slot_age_s = max(MIN_SLOT_AGE_S, rules.retention_s / RING_SHARE)
        slot_bytes = max(MIN_SLOT_BYTES, rules.history_bytes // RING_SHARE)
        self.branches = {
            branch.name: branch
            for branch in (
                Branch(
                    LEAD, "lead", rules.renew_s, rules.renew_s, ("maintenance", rules.holder, rules.lease_s)
                ),
                Branch(PROMOTE, "promote", MORE_S, 1.0, (PROMOTE_LIMIT,)),
                Branch(EXPIRE, "expire_callbacks", MORE_S, 5.0, (EXPIRE_LIMIT,)),
                Branch(RESCUE, "rescue_stale", MORE_S, min(10.0, rules.stale_s / 3)),
                Branch(ROTATE, "rotate", 1.0, 5.0, (slot_age_s, slot_bytes)),
                Branch("exhaust", "exhaust_slots", 1.0, 15.0),
                Branch("sweep", "sweep", 5.0, 5.0),
                Branch("prune", "prune", 1.0, 30.0, (rules.retention_s, rules.history_bytes)),
                Branch(DEAD, "prune_dead", 1.0, 60.0, (rules.dlq_retention_s, DEAD_LIMIT)),
                Branch("move", "move_open_attempts", 1.0, 20.0, (MOVE_LIMIT,)),
                Branch("trim", "trim_cursors", 2.0, 15.0),
                Branch(LOOK, "ring_status", 30.0, 30.0),
            )
        }
        for branch in self.branches.values():
            branch.due_s = now_s

    def next_due_s(self, now_s: float) -> float:
        """Return how long there is nothing to ask; infinite while an answer is awaited."""
        if any(branch.under_way for branch in self.branches.values()):
            return float("inf")
        return max(0.0, min(branch.due_s for branch in self._open()) - now_s)

    def due(self, now_s: float) -> list[Command]:
        """Return the most overdue question, if any. Leadership comes first."""
        if self.next_due_s(now_s) > 0:
            return []
        lead = self.branches[LEAD]
        branch = lead if lead.due_s <= now_s else min(self._open(), key=lambda each: each.due_s)
        branch.under_way = True
        arguments = branch.arguments
        if branch.name == RESCUE:
            arguments = (self.rules.stale_s, RESCUE_LIMIT, self._connected_s(now_s))
        return [Ask(branch.name, branch.method, arguments)]

    def answered(self, name: str, value: Any, now_s: float) -> list[Command]:
        """Take the answer of a branch."""
        branch = self.branches[name]
        was_failing = branch.failures
        out: list[Command] = [Say("info", f"{name} works again")] if was_failing > 1 else []
        if name == LEAD:
            return out + self._led(branch, bool(value), now_s)
        if name == PROMOTE:
            self.promoted += value.promoted
            # What was due may be due again in a moment: a job that postpones itself is not to wait a second each time.
            branch.done(now_s, useful=value.promoted > 0)
            if value.next_due_s is not None:
                branch.due_s = min(branch.due_s, now_s + max(MORE_S, value.next_due_s))
            return out
        if name == EXPIRE:
            return out + self._expired(branch, value, now_s)
        if name == RESCUE:
            return out + self._rescued(branch, value, now_s)
        if name == LOOK:
            branch.done(now_s, useful=False)
            return out + [Say("warning", text) for text in self.ring.seen(value)]
        # The ring's functions answer in words; whatever was done is counted or numbered in them.
        useful = any(digit in str(value) for digit in "123456789")
        branch.done(now_s, useful=useful)
        if useful:
            out.append(Say("info" if name == DEAD else "debug", f"{name}: {value}"))  # gone for good is news
            if name == ROTATE:
                self._stir(now_s)
        return out

    def failed(self, name: str, error: str, now_s: float, *, passing: bool) -> list[Command]:
        """Take the failure of a branch; a `passing` one (lock, deadlock) is no news."""
        branch = self.branches[name]
        branch.failed(now_s)
        if passing:
            return []
        self.errors += 1
        repeated, branch.error = branch.error == error, error
        return [] if repeated else [Say("error", f"{name} failed, the other branches go on: {error}")]

    def lost(self) -> list[Command]:
        """The connection is gone: whoever looks dead after it may only have been cut off as we were."""
        self._unbroken_since_s = None
        return []

    def _open(self) -> list[Branch]:
        return list(self.branches.values()) if self.leads else [self.branches[LEAD]]

    def _stir(self, now_s: float) -> None:
        """A slot was sealed: what has rested may have something to do soon."""
        for branch in self.branches.values():
            branch.pause_s = min(branch.pause_s, branch.busy_s)
            branch.due_s = min(branch.due_s, now_s + branch.busy_s)

    def _connected_s(self, now_s: float) -> float:
        """Return for how long the database has answered without a break."""
        return 0.0 if self._unbroken_since_s is None else now_s - self._unbroken_since_s

    def _led(self, branch: Branch, leads: bool, now_s: float) -> list[Command]:
        branch.done(now_s, useful=True)
        # A gap in the answers (stopped process, slow database) breaks the proof of having been connected all along.
        broken = self._led_at_s is None or now_s - self._led_at_s > 3 * self.rules.renew_s
        if self._unbroken_since_s is None or broken:
            self._unbroken_since_s = now_s
        self._led_at_s = now_s
        was, self.leads = self.leads, leads
        if not leads:
            self.ring.forget()
        if was == leads:
            return []
        return [
            Say(
                "info",
                "leads the housekeeping of this database" if leads else "no longer leads the housekeeping",
            )
        ]

    def _expired(self, branch: Branch, value: Any, now_s: float) -> list[Command]:
        self.expired += value.expired
        branch.done(now_s, useful=value.expired > 0)
        if value.next_due_s is not None:
            branch.due_s = min(branch.due_s, now_s + max(MORE_S, value.next_due_s))
        if not value.expired:
            return []
        return [Say("warning", f"{value.expired} callbacks timed out: {_fates(value.expired, value)}")]

    def _rescued(self, branch: Branch, rows: list[Any], now_s: float) -> list[Command]:
        attempts = sum(row.attempts for row in rows)
        self.rescued += attempts
        branch.done(now_s, useful=attempts >= RESCUE_LIMIT)
        return [
            Say(
                "warning",
                f"rescued {row.attempts} attempts of runtime {row.runtime_id}, which is gone: {_fates(row.attempts, row)}",
            )
            if row.attempts
            else Say("info", f"runtime {row.runtime_id} is gone, and held nothing")
            for row in rows
        ]


def _fates(attempts: int, row: Any) -> str:
    """Say what became of the jobs whose attempts were ended, in the words of the lines on other failures."""
    counts = (
        (row.failed, "failed for good"),
        (attempts - row.failed - row.cancelled, "to be tried again"),
        (row.cancelled, "cancelled, as another job holds their key"),
    )
    fates = ", ".join(f"{count} {fate}" for count, fate in counts if count)
    jobs = ", ".join(map(str, row.jobs)) + (", …" if attempts > len(row.jobs) else "")
    return f"{fates} ({'jobs' if attempts > 1 else 'job'} {jobs})"
