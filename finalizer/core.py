"""The finalizer: every write that ends an attempt goes through here, batched, guarded, repeated where that helps.

Pure: `step(event, now_s)` returns the commands that the shell carries out in order. A result is held from its coming
until the database has it; then its sender is told (a cumulative number), and the dispatcher takes the attempts off
its books. The rooms: `roads` (receipts and general outcomes), `staged` (ends with follow-ups, a transaction each),
`written` (what the database has answered), `culprits` (what it refuses), `desk` (what is held, and who is told).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any

from awa_pool.events import (
    Exit,
    StoreIsBack,
    StoreLost,
    StoreSaysNo,
    SupervisorSaid,
    Tick,
    ToSupervisor,
    Trouble,
)
from awa_pool.messages import (
    AttemptProgress,
    AttemptsEnded,
    AwaitCallback,
    CallbackNews,
    DispatcherHello,
    Drained,
    EndAttempts,
    FinalizerLoad,
    ForgetCallback,
    LeaseAttempt,
    Message,
    RegisterCallback,
    Stop,
    StopNow,
)

from . import notes
from .callbacks import CallbackRoad
from .culprits import Culprits
from .desk import Desk
from .events import (
    AttemptsLeased,
    AttemptsNotLeased,
    CallbacksNotRegistered,
    CallbacksRegistered,
    Command,
    Completed,
    Event,
    Finished,
    Heard,
    LookedUp,
    ProgressKept,
    ProgressNotKept,
    Send,
    Settings,
    StagedAnswered,
    StagedNo,
    StagedRow,
    WaitsNotRead,
    WaitsRead,
)
from .failing import Failing
from .leasing import LeaseRoad
from .progress import ProgressRoad
from .reading import read_endings, read_results
from .retry import GATHER_MOST_S
from .roads import Roads
from .staged import StagedRoad
from .waits import Waits
from .written import Written

IDLE_GAP_S = 0.03
"""A result that comes after so long a silence is flushed at once: nothing to wait for."""
LINGER_S = 0.2
"""A flush costs about 1.1 ms of CPU, PostgreSQL included, whatever it holds. Measured with 5 ms jobs on two workers: CPU
outside handlers 321 µs a job lingering 25 ms; all that gathers doubled from 100 ms on, it went from 367 to 230."""
PROMPT_S = 0.005
"""Lingering for a lane that has run dry: it sends nothing more, so little would be gathered."""
LONGEST_NAP_S = 0.05
"""So soon it is noticed that a lane has run dry."""
NAP_BESIDE_WAITS_S = 0.025
"""The same while handlers wait for callbacks: their news lie among what is not read, and they are to go on within 50 ms."""
FULL_JOBS = 512
"""Waiting jobs that end the lingering."""
QUIET_S = 0.2
"""When leaving: so long without a message, and nothing held, means that all has come."""


class Finalizer:
    """The core. Feed it events; it never blocks, looks at no clock, and no event can make it raise."""

    def __init__(self, settings: Settings, rng: random.Random | None = None) -> None:
        self.settings = settings
        rng = rng or random.Random()
        self.roads = Roads(rng)
        self.staged = StagedRoad(rng)
        self.progress = ProgressRoad()
        self.callbacks = CallbackRoad()
        self.waits = Waits()
        self.leases = LeaseRoad()
        self.desk = Desk()
        self._failing = Failing(self.desk)
        self._written = Written(self.desk, self.roads, self._failing)
        self._culprits = Culprits(self.desk, self.roads)
        self.accepting = True
        self.store_up = True
        self._now_s = 0.0
        self._heard_s = 0.0
        self._linger_s = 0.0
        self._leave_s: float | None = None
        self._away_s = 0.0
        self._left = False
        self._jobs_per_s = 0.0
        self._flushed_s = 0.0
        self._came = 0

    @property
    def saturated(self) -> bool:
        """Twice the window is held: read no more messages until something has been written."""
        return (
            self.desk.held_jobs > 2 * self.settings.window_jobs
            or self.desk.held_bytes > 2 * self.settings.window_bytes
        )

    def step(self, event: Event, now_s: float) -> Sequence[Command]:
        """Take one event; `now_s` is the host's monotonic clock."""
        out = self.desk.out = list[Command]()
        self._now_s = self.desk.now_s = self.roads.now_s = now_s
        self._take(event)
        self._failing.flush()
        self.desk.acknowledge(at_once=self._leave_s is not None)
        linger_s = 0.0 if self._leave_s is not None else self._linger_s
        calls = self.roads.flush(linger_s, self._full_jobs())
        if calls:
            self._note_rate()
            out += calls
        out += self.staged.flush(now_s, linger_s)
        out += self.progress.flush(now_s)
        out += self.callbacks.flush(now_s)
        out += self.waits.flush(now_s)
        out += self.leases.flush(now_s)
        self._tell_load()
        self._maybe_leave()
        return out

    def next_tick_s(self) -> float | None:
        """When the core wants a Tick at the latest; None: only an event can matter."""
        linger_s = 0.0 if self._leave_s is not None else self._linger_s
        due = [
            self.roads.due_s(linger_s, self._full_jobs()),
            self.staged.due_s(self._now_s, linger_s),
            self.progress.due_s(),
            self.callbacks.due_s(),
            self.waits.due_s(),
            self.leases.due_s(),
            self._failing.due_s(),
            *self.desk.acknowledge_due_s(),
        ]
        if self._leave_s is not None:
            due.append(min(self._leave_s, max(self._heard_s, self._now_s) + QUIET_S))
            if not self.store_up and self._away_s > self._now_s:
                due.append(self._away_s)
        return min((at_s for at_s in due if at_s is not None), default=None)

    def deaf_until_s(self) -> float | None:
        """Until when what comes need not be read, as it would only wait for the next flush; None: read at once.

        Each wake-up costs as much as a job's share of a flush; a quarter of a full call may gather unread. Where only
        handlers speak that ask about callbacks, until the next call about those.
        """
        if self._leave_s is not None or self.leases.is_busy(self._now_s):
            return None
        if not self.roads.lingering:
            asked = self.waits if self.waits else self.callbacks
            until_s = min(asked.gathers_until_s, self._now_s + GATHER_MOST_S)
            return until_s if until_s > self._now_s else None
        due_s = self.roads.due_s(self._linger_s, self._full_jobs())
        unread_s = self._full_jobs() / 4 / max(self._jobs_per_s, 1.0)
        nap_until_s = self._now_s + min(unread_s, NAP_BESIDE_WAITS_S if self.waits else LONGEST_NAP_S)
        return nap_until_s if due_s is None else min(due_s, nap_until_s)

    def _note_rate(self) -> None:
        past_s = self._now_s - self._flushed_s
        if past_s > 0.001:
            self._jobs_per_s += (self._came / past_s - self._jobs_per_s) * 0.5
            self._flushed_s, self._came = self._now_s, 0

    def figures(self) -> dict[str, Any]:
        """Cumulative figures and present gauges for `Stats`; `ended` by kind and outcome."""
        return {
            **self._written.figures(),
            "dropped": self.desk.dropped,
            **self.roads.figures(),
            **self.staged.figures(),
            "progress_written": self.progress.written,
            "callbacks_registered": self.callbacks.registered,
            **self.waits.figures(),
            "attempts_leased": self.leases.leased,
            "held_jobs": self.desk.held_jobs,
            "held_bytes": self.desk.held_bytes,
            "accepting": self.accepting,
            "store_up": self.store_up,
        }

    def _full_jobs(self) -> int:
        return max(1, min(FULL_JOBS, self.settings.window_jobs // 4))

    # --- events --------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case Heard(peer, message, payload):
                self._heard(peer, message, payload)
            case Completed(rows, took_s):
                self._store_answered()
                for part, done, stale in self.roads.completed(rows, took_s):
                    self._written.part(part, done, stale)
            case Finished(rows, took_s):
                self._store_answered()
                for item, status, state in self.roads.finished(rows, took_s):
                    self._written.item(item, status, state)
                self._culprits.look_after()
            case StoreSaysNo():
                if event.trouble is Trouble.AWAY:
                    self._store_away(event.error)
                decided = self.roads.failed(event)
                level = logging.DEBUG if decided == notes.FLUSH_RETRIED else logging.WARNING
                self.desk.note(level, decided, what=event.what, error=event.error, sqlstate=event.sqlstate)
                self._culprits.look_after()
            case StagedAnswered(lane, answers, took_s):
                self._staged_answered(lane, answers, took_s)
            case LookedUp(rows):
                self._culprits.looked_up(rows)
            case CallbacksRegistered(rows):
                self._store_answered()
                self.desk.out += self.callbacks.answered(rows, self._now_s)
            case CallbacksNotRegistered(trouble, error):
                self.desk.out += self.callbacks.failed(trouble, error, self._now_s)
            case AttemptsLeased(rows):
                self._store_answered()
                self.desk.out += self.leases.answered(rows, self._now_s)
            case AttemptsNotLeased(trouble, error):
                self.desk.out += self.leases.failed(trouble, error, self._now_s)
            case WaitsRead(rows):
                self._store_answered()
                self.desk.out += self.waits.answered(rows, self._now_s)
            case WaitsNotRead(trouble, error):
                self.desk.out += self.waits.failed(trouble, error, self._now_s)
            case ProgressKept(written):
                self.progress.kept(written)
            case ProgressNotKept(trouble, error):
                self.progress.failed(trouble, self._now_s)
                if trouble is Trouble.REFUSED:
                    self.desk.note(logging.WARNING, notes.PROGRESS_REFUSED, error=error)
            case SupervisorSaid(message):
                self._supervisor_said(message)
            case StoreLost(error):
                self._store_away(error)
            case StoreIsBack():
                self._store_answered()
            case Tick():
                pass

    def _heard(self, peer: bytes, message: Message, payload: Sequence[bytes]) -> None:
        match message:
            case AttemptsEnded():
                self._attempts_ended(peer, message, payload)
            case EndAttempts():
                self._end_attempts(message)
            case AttemptProgress():
                self._note_malformed(str(peer), "AttemptProgress", self.progress.put(message, self._now_s))
            case RegisterCallback():
                self._note_malformed(str(peer), "RegisterCallback", not self.callbacks.put(peer, message))
            case LeaseAttempt():
                self._note_malformed(
                    str(peer), "LeaseAttempt", not self.leases.put(peer, message, self._now_s)
                )
            case AwaitCallback() | ForgetCallback() | CallbackNews():
                bad = not self.waits.take(peer, message, self._now_s)
                self._note_malformed(str(peer), type(message).__name__, bad)
                return  # said again and again: no sign of results to come
            case DispatcherHello(_, hears):
                self.desk.dispatcher = peer
                self.waits.hear(hears, self._now_s)
                self._say_load()
            case _:
                self.desk.note(
                    logging.WARNING, notes.MALFORMED, source=str(peer), reason=type(message).__name__
                )
        self._heard_s = self._now_s

    def _attempts_ended(self, name: bytes, message: AttemptsEnded, payload: Sequence[bytes]) -> None:
        """Hold a worker's results until they are written; a repeat is acknowledged again at most."""
        if not 1 <= message.oldest <= message.seq:
            self.desk.note(logging.WARNING, notes.MALFORMED, source=str(name), reason="AttemptsEnded.seq")
            return
        peer = self.desk.peer(name)
        peer.dry = not message.more
        if not peer.take(message.seq, message.oldest, self._now_s):
            self.desk.acknowledge_soon(name)
            return
        parts, items, ends, result, bad = read_results(name, message, payload)
        if bad:
            # What cannot be read is never written; the dispatcher's audit ends those attempts.
            self.desk.dropped += bad
            self._note_malformed(str(name), "AttemptsEnded", bad)
        if not result.left:
            peer.committed(message.seq)
            self.desk.acknowledge_soon(name)
            return
        self._came += result.jobs
        self.desk.hold(result)
        # The first after a silence goes at once; under load a call gathers, for it costs as much as many jobs.
        if self.roads.idle:
            self._linger_s = 0.0 if self._now_s - self._heard_s > IDLE_GAP_S else LINGER_S
        if not message.more:
            self._linger_s = min(self._linger_s, PROMPT_S)
        self.roads.put(parts, items)
        for end in ends:
            self.staged.put(end, self._now_s)

    def _end_attempts(self, message: EndAttempts) -> None:
        parts, items, bad = read_endings(message)
        self._note_malformed("dispatcher", "EndAttempts", bad)
        self.roads.put(parts, items)

    def _supervisor_said(self, message: Message) -> None:
        match message:
            case Stop(drain_s, _, away_s):
                self._leave_by(self._now_s + max(0.0, drain_s), self._now_s + max(0.0, away_s))
            case StopNow():
                self._leave_by(self._now_s + QUIET_S, self._now_s)
            case _:
                pass

    def _staged_answered(self, lane: int, answers: Sequence[StagedRow | StagedNo], took_s: float) -> None:
        away = next((a for a in answers if isinstance(a, StagedNo) and a.trouble is Trouble.AWAY), None)
        if away is None:
            self._store_answered()
        else:
            self._store_away(away.error)
        for end, answer in self.staged.answered(lane, answers, took_s, self._now_s):
            if isinstance(answer, StagedRow):
                self._written.staged(end, answer)
            else:
                self._written.refused(end, answer)

    # --- load, store, leaving ------------------------------------------------------------------------------

    def _tell_load(self) -> None:
        jobs, most = self.desk.held_jobs, self.settings.window_jobs
        size, most_bytes = self.desk.held_bytes, self.settings.window_bytes
        accepting = self.accepting
        if jobs >= most or size >= most_bytes:
            accepting = False
        elif jobs <= most * 3 // 4 and size <= most_bytes * 3 // 4:
            accepting = True
        if accepting != self.accepting:
            self.accepting = accepting
            self._say_load()

    def _say_load(self) -> None:
        if self.desk.dispatcher is not None:
            load = FinalizerLoad(
                self.settings.incarnation, self.desk.held_jobs, self.desk.held_bytes, self.accepting
            )
            self.desk.out.append(Send(self.desk.dispatcher, load))

    def _store_away(self, error: str) -> None:
        if self.store_up:
            self.desk.note(logging.WARNING, notes.STORE_AWAY, error=error, held_jobs=self.desk.held_jobs)
        self.store_up = False

    def _store_answered(self) -> None:
        if not self.store_up:
            self.desk.note(logging.INFO, notes.STORE_BACK, held_jobs=self.desk.held_jobs)
        self.store_up = True

    def _leave_by(self, at_s: float, away_s: float) -> None:
        """End when nothing is held, at the latest at `at_s`; at `away_s` while the database is away."""
        self._away_s = away_s
        if self._leave_s is None:
            self.desk.note(_weight(self.desk.held_jobs), notes.DRAINING, held_jobs=self.desk.held_jobs)
            self._heard_s = max(self._heard_s, self._now_s)
        self._leave_s = at_s if self._leave_s is None else min(self._leave_s, at_s)

    def _maybe_leave(self) -> None:
        if self._leave_s is None or self._left:
            return
        done = self.roads.empty and self.staged.empty or not self.store_up and self._now_s >= self._away_s
        if done and self._now_s - self._heard_s >= QUIET_S or self._now_s >= self._leave_s:
            self._left = True
            self._failing.flush(all=True)
            self.desk.note(_weight(self.desk.held_jobs), notes.DRAINED, jobs_left=self.desk.held_jobs)
            self.desk.out.append(ToSupervisor(Drained("finalizer", self.settings.incarnation)))
            self.desk.out.append(Exit())

    def _note_malformed(self, source: str, reason: str, entries: int) -> None:
        if entries:
            self.desk.note(logging.WARNING, notes.MALFORMED, source=source, reason=reason, entries=entries)


def _weight(jobs: int) -> int:
    """Return the log level of a stage of the way out: with no job in hand it is no news."""
    return logging.INFO if jobs else logging.DEBUG
