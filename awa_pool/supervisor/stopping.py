"""The end of a pool, phase by phase: workers finish, the dispatcher gives back, the finalizer stores. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from awa_pool.messages import Stop, StopNow

from .events import DISPATCHER, FINALIZER, MAINTENANCE, WORKER, Command, ExitStatus, Finish, Kill, Log, Tell
from .places import Child, Life, Place

CUT_GRACE_S = 1.0  # between telling a worker to give up and killing it
CLOSE_S = 10.0  # for the dispatcher, once the workers are gone: its farewell, and a moment
FLUSH_S = 8.0  # for the finalizer, once the dispatcher is gone
HARD_S = 1.5  # each of these, after a second signal
RESCUED = "after --stale-after they are rescued, which uses an attempt, and run again if they have one left"
MOST_DISPATCHERS = 3  # lost on the way out, before the database alone has to see to what they held


class Phase(IntEnum):
    """Who is being waited for."""

    WORKERS = 0
    DISPATCHER = 1
    FINALIZER = 2
    REST = 3
    OVER = 4


class Living(Protocol):
    """What this needs of the supervisor."""

    def children(self) -> list[Child]: ...


class Stopping:
    """How far the end has come."""

    def __init__(self, reason: str, status: int, now_s: float, drain_timeout_s: float) -> None:
        self.reason = reason
        self.status = status
        self.phase = Phase.WORKERS
        self.hard = False
        self.began_s = now_s
        self._cut_at_s = now_s + drain_timeout_s
        self._cut = False
        self._dispatchers_lost = 0

    @property
    def needs_finalizer(self) -> bool:
        """A dead finalizer is worth a new one: results may still come."""
        return self.phase < Phase.FINALIZER and not self.hard

    def _wants_dispatcher_after(self, child: Child) -> bool:
        """A dispatcher that died on the way out is worth a new one, a few times: what it held is to be given back."""
        self._dispatchers_lost += 1
        in_time = self.phase <= Phase.DISPATCHER and self._dispatchers_lost <= MOST_DISPATCHERS
        return in_time and not (self.hard or child.cut or child.drained)

    def welcome(self, dispatcher: Child, now_s: float) -> list[Command]:
        """Tell a dispatcher that took a dead one's place how long it has: it claims nothing."""
        dispatcher.life = Life.STOPPING
        drain_s = 0.0
        if self.phase is Phase.WORKERS:
            drain_s = self._left_s(now_s) + 2 * CUT_GRACE_S
        else:
            dispatcher.leave_by_s = now_s + CLOSE_S
        return [Tell(dispatcher.incarnation, Stop(drain_s, self.reason, self._left_s(now_s)))]

    def begin(self, pool: Living, now_s: float) -> list[Command]:
        """Tell everybody; whoever is not even ready holds nothing and is killed."""
        drain_s = self._left_s(now_s)
        out: list[Command] = []
        results = any(child.role == WORKER and child.life is Life.READY for child in pool.children())
        for child in pool.children():
            if child.role == FINALIZER and (results or child.life is Life.READY):
                continue
            if child.role == DISPATCHER and child.successor and child.life is Life.BOOTING and results:
                continue  # it has yet to learn what its predecessor had
            if child.life in (Life.READY, Life.STOPPING):
                child.life = Life.STOPPING
                # A job is given back only when its handler has ended: the dispatcher outlasts the workers' cut.
                more_s = 2 * CUT_GRACE_S if child.role == DISPATCHER else 0.0
                out.append(Tell(child.incarnation, Stop(drain_s + more_s, self.reason, drain_s)))
            else:
                out += self._kill(child, "was not ready when the pool stopped")
        return out

    def hurry(self, pool: Living, status: int, text: str, now_s: float) -> list[Command]:
        """A second signal: cut what runs, and give each of the rest little time."""
        if self.hard:
            return []
        self.hard, self.status = True, self.status or status
        self._cut_at_s = now_s
        out: list[Command] = [Log("warning", text)]
        for child in pool.children():
            if child.role == WORKER:
                out += self._kill(child, "was cut by a second signal")
            else:
                child.leave_by_s = now_s + HARD_S * (1 if child.role == MAINTENANCE else 2)
                if child.role != FINALIZER:
                    out.append(Tell(child.incarnation, StopNow(self.reason)))
        return out

    def step(self, pool: Living, now_s: float) -> list[Command]:
        """Move on as far as the dead allow."""
        out: list[Command] = []
        if self.phase is Phase.WORKERS:
            out += self._wait_for_workers(pool, now_s)
        if self.phase is Phase.DISPATCHER and not _alive(pool, DISPATCHER):
            self.phase = Phase.FINALIZER
            out += self._end(pool, FINALIZER, HARD_S if self.hard else FLUSH_S, now_s)
        if self.phase is Phase.FINALIZER and not _alive(pool, FINALIZER):
            self.phase = Phase.REST
            out += self._end(pool, MAINTENANCE, HARD_S, now_s)
        if self.phase is Phase.REST and not pool.children():
            self.phase = Phase.OVER
            out.append(Finish(self.status, self.reason))
        return out

    def died(self, place: Place, child: Child, cause: str, results_held: int, now_s: float) -> list[Command]:
        """Say what a death on the way out means, and plan a successor where one is of use."""
        out: list[Command] = []
        if not child.drained and not child.killed_for:
            out.append(Log("warning", f"{child.name} {cause} while the pool stops"))
        if child.role == DISPATCHER:
            place.start_at_s = now_s if self._wants_dispatcher_after(child) else None
        if child.role == FINALIZER:
            place.start_at_s = None if child.cut else now_s
            held = results_held or (not child.drained and child.life is Life.STOPPING)
            if held and not child.cut and not self.needs_finalizer:
                out.append(Log("warning", f"{results_held} results were not stored: {RESCUED}"))
                if not self.hard:
                    self.status = self.status or int(ExitStatus.FAILED)
        return out

    def left_behind(self, jobs: int) -> list[Command]:
        """Say that a dispatcher had to leave with attempts in hand: the database did not take them back."""
        if not self.hard:
            self.status = self.status or int(ExitStatus.FAILED)
        return [Log("warning", f"{jobs} claimed jobs could not be given back: {RESCUED}")]

    def _wait_for_workers(self, pool: Living, now_s: float) -> list[Command]:
        workers = [child for child in pool.children() if child.role == WORKER]
        out: list[Command] = []
        if not workers:
            self.phase = Phase.DISPATCHER
            if not self.hard:
                out += self._close_dispatcher(pool, now_s)
        elif now_s >= self._cut_at_s and not self._cut:
            self._cut = True
            out.append(
                Log(
                    "warning", f"still busy: {len(workers)} of the workers; their jobs are cut and given back"
                )
            )
            for child in workers:
                child.leave_by_s, child.cut = now_s + CUT_GRACE_S, True
                out.append(Tell(child.incarnation, StopNow("the time to drain is over")))
        return out

    def _close_dispatcher(self, pool: Living, now_s: float) -> list[Command]:
        """With no worker left nothing runs: what a dispatcher has yet to give back takes it a moment, and no drain."""
        out: list[Command] = []
        for child in pool.children():
            if child.role == DISPATCHER and child.leave_by_s is None:
                child.leave_by_s = now_s + CLOSE_S
                if child.life is Life.STOPPING:
                    stop = Stop(CUT_GRACE_S, self.reason, self._left_s(now_s))
                    out.append(Tell(child.incarnation, stop))
        return out

    def _left_s(self, now_s: float) -> float:
        return max(0.0, self._cut_at_s - now_s)

    def _end(self, pool: Living, role: str, within_s: float, now_s: float) -> list[Command]:
        out: list[Command] = []
        for child in pool.children():
            if child.role != role or child.killed_for:
                continue
            if child.life is Life.UNINSTRUCTED or child.life is Life.BOOTING:
                out += self._kill(child, "was not ready when the pool stopped")
                continue
            due_s = now_s + within_s + 1.0
            child.leave_by_s = due_s if child.leave_by_s is None else min(due_s, child.leave_by_s)
            if child.life is not Life.STOPPING:
                child.life = Life.STOPPING
                out.append(Tell(child.incarnation, Stop(within_s, self.reason, self._left_s(now_s))))
        return out

    def _kill(self, child: Child, why: str) -> list[Command]:
        if child.killed_for:
            return []
        child.killed_for, child.leave_by_s, child.cut = why, None, True
        return [Kill(child.incarnation)]


def _alive(pool: Living, role: str) -> bool:
    return any(child.role == role for child in pool.children())
