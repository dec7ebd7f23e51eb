"""The dispatcher: claims jobs and hands them to the lanes of workers; the bookkeeper of every attempt of its host.

Pure: `step(event, now_s)` returns the commands that the shell carries out in order. The rooms: `books` (who has
what), `lanes` (credit, chunks), `pacing` (how fast), `claims` (what to ask for), `recall` (nothing waits behind a
long job), `unplaced` (jobs that no lane here has room for), `departures` (a worker died), `audit` (what was lost heals), `leaving` (the way out).
"""

from __future__ import annotations

import logging
import math
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
    ActorReplaced,
    AskHolding,
    AttemptsClosed,
    AttemptsRan,
    AttemptsWait,
    DispatcherHello,
    Drained,
    FinalizerLoad,
    Holding,
    Message,
    Recalled,
    Retire,
    RunJobs,
    Stop,
    StopNow,
    WorkerGone,
    WorkerReady,
)

from . import notes
from .audit import NO_AUDIT, Audit
from .books import held_pieces
from .cancels import Cancels
from .claims import Claiming
from .departures import Departures
from .desk import Desk
from .events import (
    Claimed,
    ClaimWithdrawn,
    Command,
    Event,
    FinalizerSaid,
    Heard,
    Hearing,
    Notified,
    OpenAttemptsRead,
    PageRead,
    PagesRead,
    RunningRead,
    Send,
    Settings,
    ToFinalizer,
    Undeliverable,
    WorkLeftRead,
)
from .lanes import Lane
from .leaving import Leaving, weight
from .pacing import LONGEST_NAP_S
from .recall import Recalls
from .unplaced import Unplaced
from .waiting import Waiting

MARGIN_S = 0.002
HELLO_S = 1.0
"""How often to say hello to a finalizer that has not answered."""


class Dispatcher:
    """The core. Feed it events; it never blocks, looks at no clock, and no event can make it raise."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.desk = Desk(settings)
        self.unplaced = Unplaced(self.desk)
        self.claiming = Claiming(self.desk, self.unplaced)
        self.recalls = Recalls(self.desk, self.unplaced)
        self.departures = Departures(self.desk)
        self.claiming.stopped = settings.stopping
        self.audit = Audit(self.desk)
        self.cancels = Cancels(self.desk)
        self.waiting = Waiting(self.desk)
        self.hears = False
        self.leaving = Leaving(self.desk, self.claiming, self.departures, self.audit)
        self._finalizer: str | None = None
        self._hello_s: float | None = None
        self._left = False
        self._due_s = 0.0

    def step(self, event: Event, now_s: float, *, more: bool = False) -> Sequence[Command]:
        """Take one event; `now_s` is the host's monotonic clock.

        With `more` the next event follows at once: handing over and claiming wait for the last one.
        """
        desk = self.desk
        desk.out = []
        desk.now_s = now_s
        self._take(event)
        if more:
            desk.send_endings()
            return desk.out
        if now_s >= self._due_s or isinstance(event, Tick):
            self._timers()
        if desk.books.stocked:
            desk.feed()
        if self.audit.recovered:
            self.claiming.check()
        desk.send_endings()
        self._maybe_leave()
        return desk.out

    def next_tick_s(self) -> float | None:
        """When the core wants a Tick at the latest, on the same clock; None: only an event can matter.

        Ask after the last of the events that have come: until that time timers are looked at no more.
        """
        due = [
            None if self.leaving.cut else self.recalls.due_s(),
            self.departures.due_s() if self.audit.recovered else None,
            self.desk.resend_due_s(),
            self._hello_s,
            self.leaving.due_s(),
            None if self.leaving.cut else self.audit.next_s(),
            self.claiming.due_s() if self.audit.recovered else None,
            self._blocked_until_s(),
        ]
        known = [at_s for at_s in due if at_s is not None]
        self._due_s = min(known) if known else math.inf
        return self._due_s if known else None

    def deaf_until_s(self) -> float | None:
        """Until when what workers and finalizer say need not be read, as every lane has enough to do; else None.

        A wake-up per job would cost as much as all the rest.
        """
        if self.claiming.stopped or not self.audit.recovered or not self.desk.lanes.by_peer:
            return None
        soonest_s = min(
            (lane.busy_until_s() for lane in self.desk.lanes.by_peer.values() if not lane.retired),
            default=0.0,
        )
        return min(soonest_s - MARGIN_S, self.desk.now_s + LONGEST_NAP_S)

    def figures(self, now_s: float) -> dict[str, Any]:
        """Cumulative figures and present gauges for `Stats`."""
        desk, claiming = self.desk, self.claiming
        return {
            "claimed_jobs": claiming.jobs,
            "claims": claiming.claims,
            "claim_seconds": claiming.seconds,
            "in_flight": {name: jobs for name, jobs in desk.books.in_flight.items() if jobs},
            "booked_jobs": desk.books.jobs,
            "waiting_jobs": desk.books.waiting,
            "booked_bytes": desk.books.bytes,
            "stock": desk.books.stocked,
            "lanes": len(desk.lanes.by_peer),
            "idle_lanes": sum(1 for lane in desk.lanes if lane.idle_slots),
            "recalled_jobs": self.recalls.recalled + self.recalls.granted,
            "run_jobs": desk.pacing.run_jobs,
            "run_seconds": desk.pacing.run_seconds,
            "lost_jobs": self.departures.lost,
            "healed_jobs": self.audit.healed,
            "last_claim_ok_age_s": None if claiming.last_ok_s is None else now_s - claiming.last_ok_s,
            "store_up": claiming.store_up,
            "accepting": claiming.accepting,
        }

    # --- events --------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case Heard(peer, message):
                self._heard(peer, message)
            case FinalizerSaid(message):
                self._finalizer_said(message)
            case Claimed():
                self.claiming.answered(event)
                self.cancels.claimed()
                if self.claiming.stopped:
                    self.desk.give_back_stock()
            case SupervisorSaid(message):
                self._supervisor_said(message)
            case ClaimWithdrawn():
                self.claiming.withdrawn()
            case Undeliverable(peer, RunJobs() as message):
                lane = self.desk.lanes.get(peer)
                if lane is not None:
                    self.desk.undeliverable(
                        lane, message.receipt_id, sum(1 << index for index in message.indexes)
                    )
            case Notified(payload):
                self._notified(payload)
            case Hearing(works):
                self.claiming.look_again()
                if works != self.hears:
                    self.hears = works
                    self._say_hello()
            case PageRead(peer):
                lane = self.desk.lanes.get(peer)
                if lane is not None:
                    self.recalls.page_read(lane, event)
            case PagesRead(started):
                self.audit.pages_read(started)
            case OpenAttemptsRead(rows):
                self.audit.rows_read(rows)
                if (
                    not self.audit.asking
                ):  # else an older question was answered, from before some of what runs now
                    self.cancels.opened(rows, self.audit.asked_s)
            case RunningRead(rows):
                self.cancels.running(rows)
            case WorkLeftRead():
                self.claiming.work_left(event)
            case StoreSaysNo():
                self._store_says_no(event)
            case StoreLost(error):
                self.claiming.store_lost("connection", error)
            case StoreIsBack():
                self.claiming.store_back()
                self.audit.soon()
            case Tick() | Undeliverable():
                pass

    def _heard(self, peer: bytes, message: Message) -> None:
        if isinstance(message, WorkerReady):
            self._worker_ready(peer, message)
            return
        lane = self.desk.lanes.get(peer)
        if lane is None:
            return  # a lane that is unknown says WorkerReady first; the audit settles what it had
        match message:
            case AttemptsRan(receipt_id, mask, timings):
                self._ran(lane, receipt_id, mask, timings)
            case Recalled(receipt_id, mask):
                self.recalls.answered(lane, receipt_id, mask)
                if self.claiming.stopped:
                    self.desk.give_back_stock()
            case AttemptsWait():
                self.waiting.said(lane, message)
            case Holding(number, pieces, waiting):
                held = held_pieces(pieces)
                if held is None:
                    self.desk.malformed(lane.name, "Holding.pieces")
                else:
                    self.audit.holding(lane, number, held)
                    self.waiting.holding(lane, waiting)
            case _:
                self.desk.malformed("worker", type(message).__name__)

    def _worker_ready(self, peer: bytes, message: WorkerReady) -> None:
        desk = self.desk
        held = held_pieces(message.holding)
        kinds = [kind for kind in message.kinds if isinstance(kind, str)]
        if held is None or not 0 <= message.capacity <= 100_000:
            desk.malformed("worker", "WorkerReady")
            return
        lane = desk.lanes.get(peer)
        if lane is None:
            lane = Lane(peer, message.worker, message.incarnation, message.lane, max(1, message.capacity))
            desk.lanes.add(lane, kinds)
            desk.note(logging.DEBUG, notes.LANE_READY, worker=lane.worker, lane=lane.name, holding=len(held))
        lane.heard_s = desk.now_s
        lane.blocked_until_s = 0.0
        lane.retired = lane.retired or not message.capacity  # it has done all it may, or leaves
        desk.out.append(Send(peer, AskHolding(NO_AUDIT)))
        self.audit.lane_ready(lane, held)

    def _ran(self, lane: Lane, receipt_id: int, mask: int, timings: list[Any]) -> None:
        desk = self.desk
        lane.heard_s = desk.now_s
        had = lane.drop(receipt_id, mask)
        receipt = desk.books.get(receipt_id)
        if receipt is not None and (ran := had & receipt.out):
            desk.books.ran(receipt, lane.peer, ran)
        if not desk.pacing.observe(receipt.queue if receipt is not None else "", timings):
            desk.malformed("worker", "AttemptsRan.timings")

    def _finalizer_said(self, message: Message) -> None:
        match message:
            case AttemptsClosed(pieces):
                closed = held_pieces(pieces)
                if closed is None:
                    self.desk.malformed("finalizer", "AttemptsClosed.pieces")
                    return
                for receipt_id, mask in closed.items():
                    receipt = self.desk.books.get(receipt_id)
                    if receipt is None:
                        self.desk.books.note_closed(receipt_id, mask)
                    else:
                        if receipt.ending & mask:
                            self.claiming.look_again(new=False)  # what was given back can be claimed now
                        self.desk.close(receipt, mask)
            case FinalizerLoad(incarnation, _, _, accepting):
                self.claiming.accepting = accepting
                # While claiming rests, ask again: the word that it may go on can be lost.
                self._hello_s = None if accepting else self.desk.now_s + HELLO_S
                if self._finalizer not in (None, incarnation):
                    self.desk.resend_endings()
                self._finalizer = incarnation
            case _:
                self.desk.malformed("finalizer", type(message).__name__)

    def _supervisor_said(self, message: Message) -> None:
        match message:
            case WorkerGone():
                self.departures.worker_gone(message)
            case Retire(worker, incarnation):
                for lane in self.desk.lanes.of_worker(worker, incarnation):
                    lane.retired = True
                    if lane.jobs > lane.capacity:
                        self.desk.recall(lane)
            case ActorReplaced("finalizer"):
                self._say_hello()
                self.desk.resend_endings()
            case Stop(drain_s, _, away_s):
                self.leaving.stop(max(0.0, drain_s), max(0.0, away_s))
            case StopNow():
                self.leaving.stop_now()
            case _:
                pass

    def _notified(self, payload: str) -> None:
        if not payload:
            self.claiming.look_again()
            return
        words = payload.split()
        match words[0] if words else "":  # another version's notice, or anybody's: NOTIFY is open to all
            case "cancel":
                self.cancels.notified(words)
            case "callback":
                self.waiting.news(words)
            case "returned" if len(words) == 2:
                self.claiming.look_again(new=not self.unplaced.gave_back(words[1]))

    def _store_says_no(self, event: StoreSaysNo) -> None:
        match event.what:
            case "claim":
                self.claiming.failed(event)
                self.audit.soon()
            case "open_attempts":
                self.claiming.store_lost(event.what, event.error, away=event.trouble is Trouble.AWAY)
                self.audit.failed()
            case "work_left":
                self.claiming.work_left(event)

    # --- timers --------------------------------------------------------------------------------------------

    def _timers(self) -> None:
        now_s = self.desk.now_s
        if (
            self._hello_s is None
            and self._finalizer is None
            or self._hello_s is not None
            and now_s >= self._hello_s
        ):
            self._say_hello()
        if self.audit.recovered:  # before, the books do not know what a dead worker had
            for peer in self.departures.check():
                self.audit.lane_gone(peer)
                self.recalls.lane_gone(peer)
        if not self.leaving.cut and self.audit.check():
            self._say_hello()  # had the last one been lost, the finalizer would take the listener for what it was before
        resend_s = self.desk.resend_due_s()
        if resend_s is not None and now_s >= resend_s:
            self.desk.resend_endings()
        if not self.leaving.cut:
            self.recalls.check()
        self.leaving.check()

    def _blocked_until_s(self) -> float | None:
        if not self.desk.books.stocked:
            return None
        now_s = self.desk.now_s
        return min(
            (lane.blocked_until_s for lane in self.desk.lanes if lane.blocked_until_s > now_s), default=None
        )

    def _say_hello(self) -> None:
        self._hello_s = self.desk.now_s + HELLO_S
        self.desk.out.append(ToFinalizer(DispatcherHello(self.settings.incarnation, self.hears)))

    def _maybe_leave(self) -> None:
        if self._left or not self.leaving.over():
            return
        self._left = True
        jobs = self.desk.books.jobs
        # What has run is the finalizer's, which says itself what it could not store.
        unreturned = sum((receipt.open & ~receipt.ran).bit_count() for receipt in self.desk.books)
        self.desk.note(weight(jobs), notes.DRAINED, jobs_left=jobs)
        self.desk.out.append(ToSupervisor(Drained("dispatcher", self.settings.incarnation, unreturned)))
        self.desk.out.append(Exit())
