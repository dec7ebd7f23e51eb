"""The finalizer: every write that ends an attempt goes through here, batched, guarded, repeated where that helps.

Pure: `step(event, now_s)` returns the commands that the shell carries out in order. A result is held from its coming
until the database has it; then its sender is told (a cumulative number), and the dispatcher takes the attempts off
its books. Two roads share the window: receipts and general outcomes. A third, with a transaction per job, would be
another `Stream` with calls of its own.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from awa_pool.events import (
    Exit,
    Note,
    StoreIsBack,
    StoreLost,
    StoreSaysNo,
    SupervisorSaid,
    Tick,
    ToSupervisor,
    Trouble,
)
from awa_pool.messages import (
    AttemptsClosed,
    AttemptsEnded,
    DispatcherHello,
    Drained,
    EndAttempts,
    FinalizerLoad,
    Message,
    ResultsCommitted,
    Stop,
    StopNow,
)
from awa_pool.outcomes import DEADLINE_EXCEEDED
from awa_pool.states import Outcome

from . import notes
from .events import (
    Command,
    Completed,
    Event,
    Finished,
    Heard,
    LookedUp,
    LookUp,
    Send,
    Settings,
    StagedAnswered,
    StagedNo,
    StagedRow,
)
from .flush import ERROR_CHARS, Item, Part, Result
from .peers import Peer
from .reading import read_endings, read_results
from .roads import Roads
from .staged import StagedEnd, StagedRoad, without_follow_ups

IDLE_GAP_S = 0.03
"""A result that comes after so long a silence is flushed at once: nothing to wait for."""
LINGER_S = 0.1
"""A flush costs about 1.1 ms of CPU, PostgreSQL included, whatever it holds. Measured with 5 ms jobs on two workers: CPU
outside handlers 321 µs a job lingering 25 ms, 250 µs lingering 50 ms."""
PROMPT_S = 0.005
"""Lingering for a lane that has run dry: it sends nothing more, so little would be gathered."""
LONGEST_NAP_S = 0.02
"""So soon it is noticed that a lane has run dry."""
FULL_JOBS = 512
"""Waiting jobs that end the lingering."""
QUIET_S = 0.2
"""When leaving: so long without a message, and nothing held, means that all has come."""
MAX_PEERS = 2000


class Finalizer:
    """The core. Feed it events; it never blocks, looks at no clock, and no event can make it raise."""

    def __init__(self, settings: Settings, rng: random.Random | None = None) -> None:
        self.settings = settings
        rng = rng or random.Random()
        self.roads = Roads(rng)
        self.staged = StagedRoad(rng)
        self.held_jobs = 0
        self.held_bytes = 0
        self.accepting = True
        self.store_up = True
        self._ended: Counter[tuple[str, str]] = Counter()
        self._stale = self._dropped = 0
        self._follow_ups = self._follow_ups_skipped = 0
        self._peers: dict[bytes, Peer] = {}
        self._dispatcher: bytes | None = None
        self._closed: dict[int, int] = {}
        self._to_ack: set[bytes] = set()
        self._out: list[Command] = []
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
            self.held_jobs > 2 * self.settings.window_jobs or self.held_bytes > 2 * self.settings.window_bytes
        )

    def step(self, event: Event, now_s: float) -> Sequence[Command]:
        """Take one event; `now_s` is the host's monotonic clock."""
        self._out = []
        self._now_s = self.roads.now_s = now_s
        self._take(event)
        self._acknowledge()
        linger_s = 0.0 if self._leave_s is not None else self._linger_s
        calls = self.roads.flush(linger_s, self._full_jobs())
        if calls:
            self._note_rate()
            self._out += calls
        self._out += self.staged.flush(now_s, linger_s)
        self._tell_load()
        self._maybe_leave()
        return self._out

    def next_tick_s(self) -> float | None:
        """When the core wants a Tick at the latest; None: only an event can matter."""
        linger_s = 0.0 if self._leave_s is not None else self._linger_s
        due = [
            self.roads.due_s(linger_s, self._full_jobs()),
            self.staged.due_s(self._now_s, linger_s),
            *(self._peers[peer].due_s() for peer in self._to_ack),
        ]
        if self._leave_s is not None:
            due.append(min(self._leave_s, max(self._heard_s, self._now_s) + QUIET_S))
            if not self.store_up and self._away_s > self._now_s:
                due.append(self._away_s)
        return min((at_s for at_s in due if at_s is not None), default=None)

    def deaf_until_s(self) -> float | None:
        """Until when what comes need not be read, as it would only wait for the next flush; None: read at once.

        Each wake-up costs as much as a job's share of a flush; a quarter of a full call may gather unread.
        """
        if self._leave_s is not None or not self.roads.lingering:
            return None
        due_s = self.roads.due_s(self._linger_s, self._full_jobs())
        unread_s = self._full_jobs() / 4 / max(self._jobs_per_s, 1.0)
        nap_until_s = self._now_s + min(unread_s, LONGEST_NAP_S)
        return nap_until_s if due_s is None else min(due_s, nap_until_s)

    def _note_rate(self) -> None:
        past_s = self._now_s - self._flushed_s
        if past_s > 0.001:
            self._jobs_per_s += (self._came / past_s - self._jobs_per_s) * 0.5
            self._flushed_s, self._came = self._now_s, 0

    def figures(self) -> dict[str, Any]:
        """Cumulative figures and present gauges for `Stats`; `ended` by kind and outcome."""
        ended: dict[str, dict[str, int]] = {}
        for (kind, outcome), jobs in self._ended.items():
            ended.setdefault(kind, {})[outcome] = jobs
        return {
            "ended": ended,
            "stale": self._stale,
            "dropped": self._dropped,
            **self.roads.figures(),
            **self.staged.figures(),
            "follow_ups": self._follow_ups,
            "follow_ups_skipped": self._follow_ups_skipped,
            "held_jobs": self.held_jobs,
            "held_bytes": self.held_bytes,
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
                    self._part_closed(part, done, stale)
            case Finished(rows, took_s):
                self._store_answered()
                for item, status, state in self.roads.finished(rows, took_s):
                    self._item_closed(item, status, state)
                self._look_after_culprits()
            case StoreSaysNo():
                if event.trouble is Trouble.AWAY:
                    self._store_away(event.error)
                decided = self.roads.failed(event)
                level = logging.DEBUG if decided == notes.FLUSH_RETRIED else logging.WARNING
                self._note(level, decided, what=event.what, error=event.error, sqlstate=event.sqlstate)
                self._look_after_culprits()
            case StagedAnswered(lane, answers, took_s):
                self._staged_answered(lane, answers, took_s)
            case LookedUp(rows):
                self._looked_up(rows)
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
            case DispatcherHello():
                self._dispatcher = peer
                self._say_load()
            case _:
                self._note(logging.WARNING, notes.MALFORMED, source=str(peer), reason=type(message).__name__)
        self._heard_s = self._now_s

    def _attempts_ended(self, name: bytes, message: AttemptsEnded, payload: Sequence[bytes]) -> None:
        """Hold a worker's results until they are written; a repeat is acknowledged again at most."""
        if not 1 <= message.oldest <= message.seq:
            self._note(logging.WARNING, notes.MALFORMED, source=str(name), reason="AttemptsEnded.seq")
            return
        peer = self._peers.get(name)
        if peer is None:
            self._forget_peers()
            peer = self._peers[name] = Peer(self._now_s)
        peer.dry = not message.more
        if not peer.take(message.seq, message.oldest, self._now_s):
            self._to_ack.add(name)
            return
        parts, items, ends, result, bad = read_results(name, message, payload)
        if bad:
            # What cannot be read is never written; the dispatcher's audit ends those attempts.
            self._dropped += bad
            self._note(
                logging.WARNING, notes.MALFORMED, source=str(name), reason="AttemptsEnded", entries=bad
            )
        if not result.left:
            peer.committed(message.seq)
            self._to_ack.add(name)
            return
        self._came += result.jobs
        self.held_jobs += result.jobs
        self.held_bytes += result.size_bytes
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
        if bad:
            self._note(
                logging.WARNING, notes.MALFORMED, source="dispatcher", reason="EndAttempts", entries=bad
            )
        self.roads.put(parts, items)

    def _supervisor_said(self, message: Message) -> None:
        match message:
            case Stop(drain_s, _, away_s):
                self._leave_by(self._now_s + max(0.0, drain_s), self._now_s + max(0.0, away_s))
            case StopNow():
                self._leave_by(self._now_s + QUIET_S, self._now_s)
            case _:
                pass

    # --- what has been written -----------------------------------------------------------------------------

    def _part_closed(self, part: Part, done: int, stale: int) -> None:
        for kind, mask in part.kinds:
            if mask & done:
                self._ended[kind, "completed"] += (mask & done).bit_count()
        self._stale += stale.bit_count()
        if part.result is not None:
            part.result.stale |= stale
        self._closed[part.receipt_id] = self._closed.get(part.receipt_id, 0) | done | stale
        part.mask &= ~(done | stale)
        if not part.mask:
            self._unit_left(part.result)

    def _item_closed(self, item: Item, status: str, state: str | None) -> None:
        if status == "done":
            outcome = item.values["outcome"]
            if item.overran:
                outcome = DEADLINE_EXCEEDED  # on the last attempt too: a time-out is counted as nothing else
            elif state == "failed":
                outcome = "fail"
            self._ended[item.kind, outcome] += 1
        else:
            self._stale += 1
        if status != "done" or (state == "cancelled") != (item.values["outcome"] == Outcome.CANCEL):
            _not_so(item.result, item.values["index"])
        receipt_id = item.values["receipt_id"]
        self._closed[receipt_id] = self._closed.get(receipt_id, 0) | 1 << item.values["index"]
        self._unit_left(item.result)

    def _staged_answered(self, lane: int, answers: Sequence[StagedRow | StagedNo], took_s: float) -> None:
        away = next((a for a in answers if isinstance(a, StagedNo) and a.trouble is Trouble.AWAY), None)
        if away is None:
            self._store_answered()
        else:
            self._store_away(away.error)
        for end, answer in self.staged.answered(lane, answers, took_s, self._now_s):
            if isinstance(answer, StagedRow):
                self._staged_closed(end, answer)
            else:
                self._staged_refused(end, answer)

    def _staged_closed(self, end: StagedEnd, row: StagedRow) -> None:
        self._item_closed(Item(end.values, end.kind, end.result), row.status, row.state)
        self._follow_ups += row.inserted
        self._follow_ups_skipped += len(row.skipped)
        for kind, holder in row.skipped:
            self._note(
                logging.DEBUG,
                notes.FOLLOW_UP_SKIPPED,
                job_id=end.values["job_id"],
                kind=kind,
                holder=holder,
            )

    def _staged_refused(self, end: StagedEnd, no: StagedNo) -> None:
        """Write the attempt's end without the follow-ups that the database does not take."""
        self._note(
            logging.WARNING,
            notes.FOLLOW_UPS_REFUSED,
            job_id=end.values["job_id"],
            kind=end.kind,
            error=no.error,
            sqlstate=no.sqlstate,
        )
        values = without_follow_ups(end, no.error.replace("\0", "")[:ERROR_CHARS])
        if values["outcome"] != end.values["outcome"]:
            _not_so(end.result, values["index"])
        self.roads.put([], [Item(values, end.kind, end.result, urgent=True)])

    def _unit_left(self, result: Result | None) -> None:
        if result is None:
            return
        result.left -= 1
        if result.left == 0:
            self.held_jobs -= result.jobs
            self.held_bytes -= result.size_bytes
            peer = self._peers.get(result.peer)
            if peer is not None:
                peer.committed(result.seq, result.receipt_id, result.stale)
                peer.unacked_jobs += result.jobs
                self._to_ack.add(result.peer)

    def _acknowledge(self) -> None:
        for name in list(self._to_ack):
            peer = self._peers[name]
            if self._now_s < peer.quiet_until_s() and self._leave_s is None:
                continue
            seq = peer.ack()
            if seq is not None:
                peer.acked_s, peer.unacked_jobs = self._now_s, 0
                self._out.append(Send(name, ResultsCommitted(seq, peer.stale())))
            self._to_ack.discard(name)
        if self._closed:
            if self._dispatcher is not None:
                pieces = [[receipt_id, mask] for receipt_id, mask in self._closed.items()]
                self._out.append(Send(self._dispatcher, AttemptsClosed(pieces)))
            self._closed = {}

    def _forget_peers(self) -> None:
        """Lanes come and go for ever: keep the newest that hold nothing here."""
        if len(self._peers) >= MAX_PEERS:
            idle = sorted(
                (p.heard_s, name) for name, p in self._peers.items() if p.idle and name not in self._to_ack
            )
            for _, name in idle[: MAX_PEERS // 2]:
                del self._peers[name]

    # --- culprits ------------------------------------------------------------------------------------------

    def _look_after_culprits(self) -> None:
        """Fail what the database refused; what it refuses even so is left to the dispatcher's audit."""
        for item, error in self.roads.refused_items():
            given_up = item.replaced
            self._note(
                logging.ERROR if given_up else logging.WARNING,
                notes.RESULT_DROPPED if given_up else notes.RESULT_REFUSED,
                job_id=item.values["job_id"],
                kind=item.kind,
                error=error,
            )
            _not_so(item.result, item.values["index"])
            if given_up:
                self._dropped += 1
                self._unit_left(item.result)
            else:
                self.roads.replace(item, error)
        if self.roads.wants_look_up():
            self._out.append(LookUp())

    def _looked_up(self, rows: Sequence[Any] | None) -> None:
        """The ids of refused completions: each attempt is failed with the error, or given up if it is not open."""
        for part, items, error in self.roads.looked_up(rows):
            self._note(
                logging.WARNING,
                notes.RESULT_REFUSED,
                receipt_id=part.receipt_id,
                error=error,
                jobs=len(items),
            )
            if part.result is not None:
                part.result.left += len(items)
                part.result.stale |= part.mask
            for item in items:
                _not_so(part.result, item.values["index"])
                item.result = part.result
            if (
                rows is not None and part.mask
            ):  # not open any more: an earlier try had committed, or it is stale
                self._closed[part.receipt_id] = self._closed.get(part.receipt_id, 0) | part.mask
            self._unit_left(part.result)
            self.roads.put([], items)
        if rows is None:
            self._look_after_culprits()

    # --- load, store, leaving ------------------------------------------------------------------------------

    def _tell_load(self) -> None:
        jobs, most = self.held_jobs, self.settings.window_jobs
        size, most_bytes = self.held_bytes, self.settings.window_bytes
        accepting = self.accepting
        if jobs >= most or size >= most_bytes:
            accepting = False
        elif jobs <= most * 3 // 4 and size <= most_bytes * 3 // 4:
            accepting = True
        if accepting != self.accepting:
            self.accepting = accepting
            self._say_load()

    def _say_load(self) -> None:
        if self._dispatcher is not None:
            load = FinalizerLoad(self.settings.incarnation, self.held_jobs, self.held_bytes, self.accepting)
            self._out.append(Send(self._dispatcher, load))

    def _store_away(self, error: str) -> None:
        if self.store_up:
            self._note(logging.WARNING, notes.STORE_AWAY, error=error, held_jobs=self.held_jobs)
        self.store_up = False

    def _store_answered(self) -> None:
        if not self.store_up:
            self._note(logging.INFO, notes.STORE_BACK, held_jobs=self.held_jobs)
        self.store_up = True

    def _leave_by(self, at_s: float, away_s: float) -> None:
        """End when nothing is held, at the latest at `at_s`; at `away_s` while the database is away."""
        self._away_s = away_s
        if self._leave_s is None:
            self._note(_weight(self.held_jobs), notes.DRAINING, held_jobs=self.held_jobs)
            self._heard_s = max(self._heard_s, self._now_s)
        self._leave_s = at_s if self._leave_s is None else min(self._leave_s, at_s)

    def _maybe_leave(self) -> None:
        if self._leave_s is None or self._left:
            return
        done = self.roads.empty and self.staged.empty or not self.store_up and self._now_s >= self._away_s
        if done and self._now_s - self._heard_s >= QUIET_S or self._now_s >= self._leave_s:
            self._left = True
            self._note(_weight(self.held_jobs), notes.DRAINED, jobs_left=self.held_jobs)
            self._out.append(ToSupervisor(Drained("finalizer", self.settings.incarnation)))
            self._out.append(Exit())

    def _note(self, level: int, event: str, **fields: Any) -> None:
        self._out.append(Note(level, event, fields))


def _not_so(result: Result | None, index: int) -> None:
    """Note that this attempt has not ended as its worker said."""
    if result is not None:
        result.stale |= 1 << index


def _weight(jobs: int) -> int:
    """Return the log level of a stage of the way out: with no job in hand it is no news."""
    return logging.INFO if jobs else logging.DEBUG
