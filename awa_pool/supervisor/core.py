"""Who should live, and what happens when somebody does not. Pure: events in, commands out, time passed in."""

from __future__ import annotations

import signal
from collections import Counter

from awa_pool.messages import (
    AttemptCancelled,
    Drained,
    Fatal,
    Idle,
    Ready,
    Stats,
    Worn,
)

from .events import (
    ACTORS,
    DISPATCHER,
    FINALIZER,
    MAINTENANCE,
    WORKER,
    Began,
    ChildExited,
    ChildrenStopped,
    ChildSaid,
    Command,
    Event,
    ExitStatus,
    FactsSettled,
    Instruct,
    Kill,
    KillFor,
    LimitsSeen,
    Log,
    QueuesKnown,
    Refused,
    RuntimeLost,
    Settle,
    SignalCame,
    Spared,
    Start,
    TakeNewRuntime,
    Terminate,
    WorkerMeasured,
)
from .limits import Attempt, Limits
from .news import News
from .patience import Rules, forgive, overdue
from .places import SHORT_LIFE_S, Child, Life, Place
from .queue_names import QueueNames
from .recycling import Recycling
from .stopping import Stopping

OWN_PAUSE_S = 2.0
SAME_SIGNAL_S = 0.5  # `timeout` and some init systems signal the process and then its group: that is one stop


class Supervisor:
    """Decides who starts, who is replaced, and how the pool ends.

    `token` makes incarnations unique among all pools that ever ran.
    """

    def __init__(self, rules: Rules, token: str) -> None:
        self.rules = rules
        roles = ACTORS if rules.workers else (MAINTENANCE,)  # without workers there is only the housekeeping
        self.places = [Place(role, 0) for role in roles] + [
            Place(WORKER, n + 1) for n in range(rules.workers)
        ]
        self.stopping: Stopping | None = None
        self.gave_up = ""
        self.restarts = dict.fromkeys((*ACTORS, WORKER), 0)
        self._by_role = {place.role: place for place in self.places if place.role != WORKER}
        self._children: dict[str, tuple[Place, Child]] = {}
        self._token = token
        self._started = 0
        self._facts_known = False
        self._settling = False
        self._results_held = 0  # as the finalizer last said
        self.was_ready = False  # some worker has been ready once
        self._news = News()
        self._recycling = Recycling(rules.max_rss_bytes)
        self._queue_names = QueueNames(rules.queues)
        self._last_s: float | None = None
        self.limits = Limits()
        self.killed: Counter[str] = Counter()
        """Workers killed for one of their attempts, by reason."""

    # --- questions --------------------------------------------------------------------------------------------

    def child_of(self, role: str) -> Child | None:
        """Return the living child of an actor's place."""
        place = self._by_role.get(role)
        return None if place is None else place.child

    def child(self, incarnation: str) -> Child | None:
        """Return one who lives."""
        found = self._children.get(incarnation)
        return None if found is None else found[1]

    def children(self) -> list[Child]:
        """Return everybody who lives, retiring ones included."""
        return [child for _, child in self._children.values()]

    def workers(self) -> list[Place]:
        """Return the workers' places in order."""
        return [place for place in self.places if place.role == WORKER]

    def next_due_s(self, now_s: float) -> float:
        """Return how long nothing needs a `Tick`."""
        due = [now_s + 1.0]
        due += [
            place.start_at_s for place in self.places if place.child is None and place.start_at_s is not None
        ]
        due += [child.leave_by_s for child in self.children() if child.leave_by_s is not None]
        return max(0.0, min(due) - now_s)

    # --- the one entry ------------------------------------------------------------------------------------------

    def step(self, event: Event, now_s: float) -> list[Command]:
        """Take one event and say what to do."""
        self._forgive_own_pause(now_s)
        match event:
            case Began():
                self._facts_known = event.facts_known
                for place in self.places:
                    place.start_at_s = now_s
                out: list[Command] = []
            case FactsSettled():
                out = self._instruct_actors(now_s)
            case QueuesKnown(names=names):
                out = self._queue_names.known(names)
            case Refused():
                out = self._give_up(event.reason, ExitStatus.REFUSED, now_s)
            case ChildSaid():
                out = self._said(event, now_s)
            case ChildExited():
                out = self._exited(event, now_s)
            case WorkerMeasured():
                out = self._measured(event, now_s)
            case ChildrenStopped():
                out = self._frozen(event.incarnations, now_s)
            case LimitsSeen():
                out = self._limits_seen(event, now_s)
            case Spared(incarnation=incarnation):
                if (child := self.child(incarnation)) is not None:
                    child.killed_for, child.charged = "", []
                out = []
            case SignalCame():
                out = self._signalled(event, now_s)
            case RuntimeLost():
                out = self._start_over(now_s)
            case _:
                out = []
        return out + self._tick(now_s)

    # --- time -------------------------------------------------------------------------------------------------

    def _forgive_own_pause(self, now_s: float) -> None:
        """When this very process stood still (stopped, machine asleep), nobody else is to blame for the silence."""
        pause_s = now_s - self._last_s if self._last_s is not None else 0.0
        if pause_s > OWN_PAUSE_S:
            for child in self.children():
                forgive(child, pause_s, stopping=self.stopping is not None)
        self._last_s = now_s

    def _tick(self, now_s: float) -> list[Command]:
        out: list[Command] = []
        for child in self.children():
            if why := overdue(child, self.rules, now_s):
                if child.role == DISPATCHER and self.stopping is not None:
                    child.cut = child.leave_by_s is not None and now_s >= child.leave_by_s
                child.killed_for, child.leave_by_s = why, None
                out += [Log("error", f"{child.name} {why}: killed"), Kill(child.incarnation)]
        for place in self.places:
            due = place.child is None and place.start_at_s is not None and place.start_at_s <= now_s
            if due and self._wants(place):
                out += self._start(place, now_s)
        if self.stopping is not None:
            out += self.stopping.step(self, now_s)
        self._news.age(now_s)
        return out

    def _limits_seen(self, event: LimitsSeen, now_s: float) -> list[Command]:
        child = self.child(event.incarnation)
        verdict = self.limits.seen(event.incarnation, event.held, alone=event.alone, now_s=now_s)
        if child is None or child.killed_for:
            return []
        if not verdict.kill_for:
            return [Terminate(event.incarnation, attempt) for attempt in verdict.terminate_for]
        child.killed_for = "; ".join(map(str, verdict.kill_for[:3]))
        attempts = tuple(overdue.held.attempt for overdue in verdict.kill_for)
        child.charged = [
            [each.held.attempt.receipt_id, 1 << each.held.attempt.index, each.reason]
            for each in verdict.kill_for
        ]
        return [KillFor(event.incarnation, attempts)]

    def _wants(self, place: Place) -> bool:
        """While the pool stops a finalizer is worth a new one, as results may come, and a dispatcher that has died."""
        if self.stopping is None or place.role == DISPATCHER:
            return True
        return place.role == FINALIZER and self.stopping.needs_finalizer

    def _frozen(self, stopped: frozenset[str], now_s: float) -> list[Command]:
        out: list[Command] = []
        for child in self.children():
            was_s, held = child.frozen_since_s, child.incarnation in stopped
            child.frozen_since_s = (was_s if was_s is not None else now_s) if held else None
            if held and was_s is None:
                out.append(Log("warning", f"{child.name} was stopped by a signal: it runs nothing"))
        return out

    # --- starting -----------------------------------------------------------------------------------------------

    def _start(self, place: Place, now_s: float) -> list[Command]:
        self._started += 1
        place.starts += 1
        incarnation = f"{self._token}{self._started:x}"
        child = Child(place.role, place.number, incarnation, Life.UNINSTRUCTED, now_s, now_s)
        child.successor = place.starts > 1
        place.child, place.start_at_s = child, None
        self._children[incarnation] = (place, child)
        out: list[Command] = [Start(place.role, place.number, incarnation)]
        if place.role == WORKER or self._facts_known:
            out += self._instruct(child, now_s)
        return out

    def _instruct(self, child: Child, now_s: float) -> list[Command]:
        child.life, child.since_s = Life.BOOTING, now_s
        return [Instruct(child.incarnation)]

    def _instruct_actors(self, now_s: float) -> list[Command]:
        self._facts_known = True
        waiting = [child for child in self.children() if child.life is Life.UNINSTRUCTED]
        return [command for child in waiting for command in self._instruct(child, now_s)]

    # --- what children say --------------------------------------------------------------------------------------

    def _said(self, event: ChildSaid, now_s: float) -> list[Command]:
        if event.incarnation not in self._children:
            return []
        place, child = self._children[event.incarnation]
        child.heard_s = now_s
        match event.message:
            case Ready(facts=facts):
                return self._ready(place, child, facts, now_s)
            case Fatal(reason=reason):
                child.fatal = reason
            case Drained(jobs_left=jobs_left):
                child.drained = True
                if jobs_left and self.stopping is not None:
                    return self.stopping.left_behind(jobs_left)
            case Idle(later=later, unknown=unknown, parked=parked) if self.stopping is None:
                wait = f"; {later} wait for their time or in paused queues" if later else ""
                wait += f"; {parked} wait for the answer to a callback" if parked else ""
                drained = Log("info", f"drained: nothing is available or running{wait}")
                return [*self._queue_names.idle(unknown), drained, *self.stop("drained", now_s)]
            case Worn(jobs=jobs) if child.role == WORKER:
                child.worn = True
                return self._recycle(place, child, f"{jobs} job{'s' * (jobs != 1)}", now_s)
            case AttemptCancelled(_, incarnation, receipt_id, nonce, index) if incarnation in self._children:
                self.limits.cancelled(incarnation, Attempt(receipt_id, nonce, index), now_s)
            case Stats(figures=figures):
                if child.role == FINALIZER:
                    self._results_held = int(figures.get("held_jobs") or 0)
                if child.life is Life.READY and now_s - child.since_s > SHORT_LIFE_S:
                    place.failures = 0
        return []

    def _ready(self, place: Place, child: Child, facts: dict[str, object], now_s: float) -> list[Command]:
        if child.life is not Life.BOOTING:
            return []
        child.life, child.since_s = Life.READY, now_s
        out: list[Command] = [Log("debug", f"{child.name} is ready")]
        if child.role == WORKER:
            if not self.was_ready and (refusal := self._recycling.refusal(facts)):
                return [*out, *self._give_up(refusal, ExitStatus.REFUSED, now_s)]
            self.was_ready, place.failures = True, 0
            out += self._queue_names.declared(facts)
            out += self._recycling.retire(place.older, self.child_of(DISPATCHER), now_s)
            if not self._facts_known and not self._settling:
                self._settling = True
                out.append(Settle(dict(facts)))
        elif place.starts > 1:
            out += self._news.introduce(child, self.children())
            if self.stopping is not None and child.role == DISPATCHER:
                out += self.stopping.welcome(child, now_s)
        return out

    # --- deaths -------------------------------------------------------------------------------------------------

    def _exited(self, event: ChildExited, now_s: float) -> list[Command]:
        found = self._children.pop(event.incarnation, None)
        if found is None:
            return []
        place, child = found
        if not child.charged and event.signal == signal.SIGTERM:
            child.charged = self.limits.warned(event.incarnation)
        self.limits.forget(event.incarnation)
        self.killed.update({reason for _, _, reason in child.charged})
        out = self._news.died(child, event, self.child_of(DISPATCHER), now_s)
        if child in place.older:
            place.older.remove(child)
            return out
        place.child = None
        if self.stopping is not None:
            return out + self.stopping.died(place, child, event.cause, self._results_held, now_s)
        return out + self._replace(place, child, event, now_s)

    def _replace(self, place: Place, child: Child, event: ChildExited, now_s: float) -> list[Command]:
        self.restarts[child.role] += 1
        why = child.fatal or child.killed_for or event.cause
        if child.fatal and not self.was_ready and child.role == WORKER:
            return self._give_up(child.fatal, ExitStatus.REFUSED, now_s)
        if not child.failed_to_start(event, now_s):
            place.lost(now_s)
            running = f" while running {event.running}" if event.running else ""
            return [Log("warning", f"{child.name} {event.cause}{running}: replacing it")]
        pause_s = place.failed(now_s, why)
        out: list[Command] = [Log("error", f"{child.name} failed to start: {why}; next try in {pause_s:g} s")]
        if place.hopeless and not (place.role == WORKER and self._some_worker_is_ready()):
            of = f" of {self.rules.app}" if self.rules.app and place.role == WORKER else ""
            reason = f"{child.name}{of} failed {place.failures} times in a row: {why}"
            out += self._give_up(reason, ExitStatus.FAILED, now_s)
        return out

    def _some_worker_is_ready(self) -> bool:
        return any(
            child.role == WORKER and child.life is Life.READY and not child.worn for child in self.children()
        )

    def _start_over(self, now_s: float) -> list[Command]:
        """This runtime was rescued: its attempts belong to others now, so handlers end and all begin anew."""
        if self.stopping is not None:
            return []
        out: list[Command] = [
            Log(
                "error",
                "this runtime was taken for dead and rescued: its jobs are stopped, it goes on under a new id",
            ),
            TakeNewRuntime(),
        ]
        self._news.clear()
        for child in self.children():
            if child.role != MAINTENANCE and not child.killed_for:
                child.killed_for, child.disowned = "ended with its rescued runtime", True
                out.append(Kill(child.incarnation))
        return out

    # --- recycling ------------------------------------------------------------------------------------------------

    def _measured(self, event: WorkerMeasured, now_s: float) -> list[Command]:
        place, child = self._children.get(event.incarnation, (None, None))
        if place is None or child is None or self.stopping is not None:
            return []
        if child is not place.child:
            self._recycling.give_time(child, event, now_s)
            return []
        if child.life is not Life.READY:
            return []
        why, out = self._recycling.too_large(event)
        return out + (self._recycle(place, child, why, now_s) if why else [])

    def _recycle(self, place: Place, child: Child, why: str, now_s: float) -> list[Command]:
        """Start the successor of a worker; it goes when that one is ready."""
        if child is not place.child or child.life is not Life.READY or self.stopping is not None:
            return []
        child.retiring = True
        place.older.append(child)
        return [Log("info", f"{child.name} is replaced after {why}"), *self._start(place, now_s)]

    # --- the end --------------------------------------------------------------------------------------------------

    def _signalled(self, event: SignalCame, now_s: float) -> list[Command]:
        if self.stopping is None:
            return [Log("info", f"{event.name}: draining, at most {self.rules.drain_timeout_s:g} s; again stops at once"),
                    *self.stop(event.name, now_s)]  # fmt: skip
        if now_s - self.stopping.began_s < SAME_SIGNAL_S:
            return []
        return self.stopping.hurry(self, 128 + event.number, f"{event.name} again: stopping at once", now_s)

    def _give_up(self, reason: str, status: ExitStatus, now_s: float) -> list[Command]:
        if self.stopping is not None:
            self.stopping.status = self.stopping.status or int(status)
            return []
        self.gave_up = reason
        return [Log("error", reason), *self.stop("given up", now_s, int(status))]

    def stop(self, reason: str, now_s: float, status: int = 0) -> list[Command]:
        """Begin the end: workers first, then dispatcher, finalizer and the rest."""
        self.stopping = Stopping(reason, status, now_s, self.rules.drain_timeout_s)
        seat = self._by_role.get(DISPATCHER)
        if (
            seat is not None and seat.child is None
        ):  # now, to give back what its predecessor held, or not at all
            seat.start_at_s = now_s if self.was_ready else None
        return self.stopping.begin(self, now_s)
