"""A world for the dispatcher's core without processes: a database, lanes, a finalizer, and couriers that may lose things.

Everything happens when a test says so, in any order; the clock is a number. `World.check` states what must hold after
every step, `World.settle` lets the world run fairly until nothing is left to do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from awa_pool.dispatcher.core import Dispatcher
from awa_pool.dispatcher.events import (
    Claim,
    Claimed,
    ClaimWithdrawn,
    Command,
    Event,
    FinalizerSaid,
    Heard,
    OpenAttemptsRead,
    PagePiece,
    PageRead,
    PageRun,
    PagesRead,
    ReadOpenAttempts,
    ReadPage,
    ReadPages,
    ReadRunning,
    ReadWorkLeft,
    RunningRead,
    Send,
    Settings,
    ToFinalizer,
    Undeliverable,
    Withdraw,
    WorkLeftRead,
)
from awa_pool.events import Exit, Note, StoreSaysNo, SupervisorSaid, Tick, ToSupervisor, Trouble
from awa_pool.messages import (
    AskHolding,
    AttemptsClosed,
    AttemptsRan,
    AttemptsWait,
    CallbackNews,
    EndAttempts,
    FinalizerLoad,
    Holding,
    Message,
    Recall,
    Recalled,
    RunJobs,
    WorkerGone,
    WorkerReady,
)


@dataclass
class Row:
    """A claimed receipt as the dispatcher sees it."""

    queue: str
    slot: int
    receipt_id: int
    nonce: int
    priority: int
    job_ids: list[int]
    kinds: list[str]
    bodies: list[str]
    open_mask: int = 0
    leases: list[int] | None = None


@dataclass
class FakeLane:
    """A lane of a worker: an inbox, a list of unstarted attempts, at most one running, others that have given their slots away
    to wait for callbacks, unacknowledged results."""

    peer: bytes
    worker: int
    incarnation: str
    inbox: deque[Message] = field(default_factory=deque)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    running: tuple[int, int] | None = None
    since_s: float = 0.0
    away: list[tuple[int, int]] = field(default_factory=list)
    results: dict[tuple[int, int], bool] = field(default_factory=dict)
    started: set[tuple[int, int]] = field(default_factory=set)
    completed: set[tuple[int, int]] = field(default_factory=set)

    def holds(self) -> list[list[int]]:
        held: dict[int, int] = {}
        running = [self.running] if self.running else []
        for receipt_id, index in [*self.waiting, *running, *self.away, *self.results]:
            held[receipt_id] = held.get(receipt_id, 0) | 1 << index
        return [[receipt_id, mask] for receipt_id, mask in held.items()]

    def waits(self) -> list[list[int]]:
        return [[receipt_id, 1 << index] for receipt_id, index in self.away]


class World:
    """See the module's text."""

    def __init__(self, settings: Settings, jobs: int = 0, kind: str = "short") -> None:
        self.settings = settings
        self.now_s = 100.0
        self.kind = kind
        self.available: deque[int] = deque(range(1, jobs + 1))
        self.kinds: dict[int, str] = {}  # of jobs that are of another kind
        self.rows: dict[int, Row] = {}
        self.closed: dict[int, int] = {}
        self.heard_closed: dict[int, int] = {}  # what this dispatcher has been told of it
        self.ended: dict[int, int] = {}
        self.starts: dict[tuple[int, int], int] = {}
        self.lanes: dict[bytes, FakeLane] = {}
        self.questions: deque[Command | OpenAttemptsRead] = deque()
        self.to_finalizer: deque[Message] = deque()
        self.results: deque[tuple[bytes, int, int]] = deque()
        self.to_dispatcher: deque[Event] = deque()
        self.supervisor: list[Message] = []
        self.notes: list[Note] = []
        self.exited = False
        self.gave_way = False
        self.spared: set[tuple[int, int]] = set()  # what waited when its worker died
        self.news: list[CallbackNews] = []
        self.next_receipt = 1
        self.number = 0
        self.core = Dispatcher(settings)
        self.claims: list[Claim] = []

    # --- the dispatcher ------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        for command in self.core.step(event, self.now_s):
            match command:
                case Send(peer, message):
                    lane = self.lanes.get(peer)
                    if lane is None:
                        self.to_dispatcher.append(Undeliverable(peer, message))
                    elif message != AskHolding(0):  # the answer to a greeting
                        lane.inbox.append(message)
                case ToFinalizer(CallbackNews() as news):
                    self.news.append(news)
                case ToFinalizer(message):
                    self.to_finalizer.append(message)
                case ToSupervisor(message):
                    self.supervisor.append(message)
                case Claim() | ReadOpenAttempts() | ReadPage() | ReadPages() | ReadRunning() | ReadWorkLeft():
                    if isinstance(command, Claim):
                        books = self.core.desk.books
                        assert command.total <= self.settings.window_jobs - (books.jobs - books.waiting)
                        self.claims.append(command)
                    self.questions.append(command)
                case Withdraw(claim) if claim in self.questions:
                    self.questions.remove(claim)
                    self.to_dispatcher.append(ClaimWithdrawn())
                case Note():
                    self.notes.append(command)
                case Exit():
                    self.exited = True
        due_s = self.core.next_tick_s()
        assert due_s is None or due_s > self.now_s or self.exited or not isinstance(event, Tick), (
            "a timer does not run down"
        )
        self.check()

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.step(Tick())

    def deliver(self) -> bool:
        if not self.to_dispatcher:
            return False
        event = self.to_dispatcher.popleft()
        match event:
            case FinalizerSaid(AttemptsClosed(pieces)):
                for receipt_id, mask in pieces:
                    self.heard_closed[receipt_id] = self.heard_closed.get(receipt_id, 0) | mask
        self.step(event)
        return True

    def restart_dispatcher(self) -> None:
        """A new one, knowing nothing; what was on the way to the old one is gone."""
        self.questions.clear()
        self.to_dispatcher.clear()
        self.heard_closed.clear()
        self.core = Dispatcher(self.settings)
        for lane in self.lanes.values():
            self.say_ready(lane)

    # --- the database --------------------------------------------------------------------------------------

    def answer(self, *, lose: bool = False) -> bool:
        """Carry out the oldest question; a lost answer is reported as a failure, its effect stays."""
        if not self.questions:
            return False
        question = self.questions.popleft()
        match question:
            case Claim():
                rows = self._claim(question)
                notes = {} if rows else {name: "empty" for name in question.queues}
                self.step(
                    StoreSaysNo("claim", Trouble.AWAY, "lost")
                    if lose
                    else Claimed(question.request, rows, notes, 0.003)
                )
            case ReadOpenAttempts():
                self.step(
                    StoreSaysNo("open_attempts", Trouble.AWAY, "lost")
                    if lose
                    else OpenAttemptsRead(self.open_rows())
                )
            case OpenAttemptsRead():
                self.step(question)
            case ReadPage(peer):
                self.step(self._page(peer))
            case ReadPages():
                self.step(self._pages())
            case ReadRunning():
                self.step(self._running())
            case ReadWorkLeft():
                running = sum(row.open_mask.bit_count() for row in self.open_rows())
                self.step(WorkLeftRead(len(self.available), running, 0))
        return True

    def read_early(self) -> None:
        """Let the database look now at what an audit asks; the answer arrives when it is its turn."""
        for at, question in enumerate(self.questions):
            if isinstance(question, ReadOpenAttempts):
                self.questions[at] = OpenAttemptsRead(self.open_rows())
                return

    def _claim(self, claim: Claim) -> list[Row]:
        rows = []
        left = min(claim.total, sum(claim.limits))
        while left and self.available:
            ids = [self.available.popleft() for _ in range(min(left, claim.chunk, len(self.available)))]
            left -= len(ids)
            receipt_id, self.next_receipt = self.next_receipt, self.next_receipt + 1
            kinds = [self.kinds.get(job_id, self.kind) for job_id in ids]
            bodies = [
                f'[{job_id},"{kind}",{{}},1,1,25,null]' for job_id, kind in zip(ids, kinds, strict=True)
            ]
            row = Row(claim.queues[0], 3, receipt_id, -receipt_id, 2, ids, kinds, bodies)
            self.rows[receipt_id] = row
            self.closed[receipt_id] = 0
            rows.append(row)
        return rows

    def open_rows(self) -> list[Row]:
        rows = []
        for receipt_id, row in self.rows.items():
            open_mask = ((1 << len(row.job_ids)) - 1) & ~self.closed[receipt_id]
            if open_mask:
                rows.append(
                    Row(
                        row.queue,
                        row.slot,
                        receipt_id,
                        row.nonce,
                        row.priority,
                        row.job_ids,
                        [],
                        [],
                        open_mask,
                    )
                )
        return rows

    def _close(self, receipt_id: int, index: int, outcome: str) -> None:
        if self.closed[receipt_id] >> index & 1:
            return
        self.closed[receipt_id] |= 1 << index
        job_id = self.rows[receipt_id].job_ids[index]
        if outcome == "completed":
            self.ended[job_id] = self.ended.get(job_id, 0) + 1
        else:
            self.available.append(job_id)

    # --- the finalizer -------------------------------------------------------------------------------------

    def finalize(self, *, lose_message: bool = False) -> bool:
        """Take the oldest message or result to its end and say so."""
        if self.results:
            peer, receipt_id, index = self.results.popleft()
            self._close(receipt_id, index, "completed")
            if peer in self.lanes:
                self.lanes[peer].results.pop((receipt_id, index), None)
            self.to_dispatcher.append(FinalizerSaid(AttemptsClosed([[receipt_id, 1 << index]])))
            return True
        if not self.to_finalizer:
            return False
        message = self.to_finalizer.popleft()
        if lose_message:
            return True
        if isinstance(message, EndAttempts):
            pieces: dict[int, int] = {}
            for _, receipt_id, nonce, index, job_id, _, outcome, *_ in message.items:
                row = self.rows[receipt_id]
                assert row.nonce == nonce and row.job_ids[index] == job_id
                assert outcome == "return" or (receipt_id, index) not in self.spared, "lost in its wait"
                self._close(receipt_id, index, outcome)
                pieces[receipt_id] = pieces.get(receipt_id, 0) | 1 << index
            closed = AttemptsClosed([[receipt_id, mask] for receipt_id, mask in pieces.items()])
            self.to_dispatcher.append(FinalizerSaid(closed))
        else:
            self.to_dispatcher.append(FinalizerSaid(FinalizerLoad("f1", 0, 0, True)))
        return True

    # --- workers -------------------------------------------------------------------------------------------

    def start_worker(self, worker: int) -> FakeLane:
        self.number += 1
        lane = FakeLane(f"w{worker}-i{self.number}-sync".encode(), worker, f"i{self.number}")
        self.lanes[lane.peer] = lane
        self.say_ready(lane)
        return lane

    def say_ready(self, lane: FakeLane) -> None:
        ready = WorkerReady(lane.worker, lane.incarnation, "sync", 1, lane.holds(), [self.kind])
        self.to_dispatcher.append(Heard(lane.peer, ready))

    def work(self, lane: FakeLane, *, lose_result: bool = False) -> bool:
        """One thing a worker does: end what runs, else read a message, else start the next."""
        if lane.running is not None:
            self._end_job(lane, lose_result)
        elif lane.inbox:
            self._read(lane, lane.inbox.popleft())
        elif lane.waiting:
            attempt = lane.waiting.pop(0)
            lane.started.add(attempt)
            lane.running, lane.since_s = attempt, self.now_s
            self.starts[attempt] = self.starts.get(attempt, 0) + 1
            assert self.starts[attempt] == 1, f"attempt {attempt} was started twice"
        else:
            return False
        return True

    def _end_job(self, lane: FakeLane, lose_result: bool) -> None:
        assert lane.running is not None
        receipt_id, index = lane.running
        took_s = max(self.now_s - lane.since_s, 1e-6)
        lane.completed.add(lane.running)
        lane.results[lane.running] = True
        lane.running = None
        if not lose_result:
            self.results.append((lane.peer, receipt_id, index))
        ran = AttemptsRan(receipt_id, 1 << index, [[self.kind, 1, took_s, took_s]])
        self.to_dispatcher.append(Heard(lane.peer, ran))

    def give_way(self, lane: FakeLane) -> bool:
        """What runs begins to wait for a callback, and gives its slot away."""
        if lane.running is None:
            return False
        receipt_id, index = lane.running
        self.gave_way = True
        lane.away.append(lane.running)
        lane.running = None
        self.to_dispatcher.append(Heard(lane.peer, AttemptsWait([[receipt_id, 1 << index]], True)))
        return True

    def go_on(self, lane: FakeLane, number: int = 0) -> bool:
        """One that waits goes on: in the free slot, or, beside what runs there, straight to its end."""
        if not lane.away:
            return False
        attempt = lane.away.pop(number % len(lane.away))
        self.to_dispatcher.append(Heard(lane.peer, AttemptsWait([[attempt[0], 1 << attempt[1]]], False)))
        beside, since_s = lane.running, lane.since_s
        lane.running, lane.since_s = attempt, self.now_s
        if beside is not None:
            self._end_job(lane, False)
            lane.running, lane.since_s = beside, since_s
        return True

    def _read(self, lane: FakeLane, message: Message) -> None:
        match message:
            case RunJobs():
                lane.waiting += [(message.receipt_id, index) for index in message.indexes]
            case Recall(receipt_id, mask):
                back = [a for a in lane.waiting if a[0] == receipt_id and mask >> a[1] & 1]
                lane.waiting = [a for a in lane.waiting if a not in back]
                answer = Recalled(receipt_id, sum(1 << index for _, index in back))
                self.to_dispatcher.append(Heard(lane.peer, answer))
            case AskHolding(audit):
                self.to_dispatcher.append(Heard(lane.peer, Holding(audit, lane.holds(), lane.waits())))
            case _:
                pass

    def resend(self, lane: FakeLane) -> None:
        """What a worker does with results that were not acknowledged."""
        self.results.extend((lane.peer, *attempt) for attempt in lane.results)

    def kill(self, lane: FakeLane) -> None:
        del self.lanes[lane.peer]
        marks: dict[int, list[int]] = {}
        for receipt_id, index in lane.started:
            row = marks.setdefault(receipt_id, [receipt_id, 0, 0])
            row[1] |= 1 << index
            row[2] |= (1 << index) * ((receipt_id, index) in lane.completed)
        waiting = [[receipt_id, 1 << index] for receipt_id, index in lane.away]
        self.spared.update(lane.away)
        gone = WorkerGone(
            lane.worker, lane.incarnation, "killed by signal 9 (SIGKILL)", list(marks.values()), "handler",
            waiting=waiting,
        )  # fmt: skip
        self.to_dispatcher.append(SupervisorSaid(gone))

    def _page(self, peer: bytes) -> PageRead:
        lane = self.lanes.get(peer)
        if lane is None:
            return PageRead(peer, [], None)
        marks: dict[int, int] = {}
        for receipt_id, index in lane.started:
            marks[receipt_id] = marks.get(receipt_id, 0) | 1 << index
        running = {attempt: 1000.0 for attempt in lane.away}
        if lane.running:
            running[lane.running] = self.now_s - lane.since_s
        return PageRead(peer, [PagePiece(receipt_id, mask, 0) for receipt_id, mask in marks.items()], running)

    def _pages(self) -> PagesRead:
        started: dict[int, int] = {}
        for lane in self.lanes.values():
            for receipt_id, index in lane.started:
                started[receipt_id] = started.get(receipt_id, 0) | 1 << index
        return PagesRead(started)

    def _running(self) -> RunningRead:
        rows = []
        for peer, lane in self.lanes.items():
            for receipt_id, index in [*lane.away, *([lane.running] if lane.running else [])]:
                row = self.rows[receipt_id]
                worker, incarnation, name = peer.decode().removeprefix("w").split("-")
                run = PageRun(
                    int(worker), incarnation, name, receipt_id, -receipt_id, index, row.job_ids[index], 1,
                    lane.since_s,
                )  # fmt: skip
                rows.append(run)
        return RunningRead(rows)

    # --- what must hold ------------------------------------------------------------------------------------

    def check(self) -> None:
        """The books agree with themselves: each open attempt in one place, counts exact, credits not negative."""
        desk = self.core.desk
        stocked = jobs = size = waiting = 0
        for receipt in desk.books:
            places = (receipt.stock, receipt.out, receipt.ran, receipt.ending)
            assert (
                sum(place.bit_count() for place in places) + receipt.adrift.bit_count()
                == receipt.open.bit_count()
            )
            assert receipt.open and not any(place & ~receipt.open for place in places)
            assert set(receipt.why) == {i for i in range(63) if receipt.ending >> i & 1}
            assert not receipt.waiting & ~receipt.out
            assert not receipt.open & self.heard_closed.get(receipt.receipt_id, 0), "what was closed is back"
            waiting += receipt.waiting.bit_count()
            stocked += receipt.stock.bit_count()
            jobs += receipt.open.bit_count()
            size += receipt.size_bytes
        assert (stocked, jobs, size) == (desk.books.stocked, desk.books.jobs, desk.books.bytes)
        assert waiting == desk.books.waiting
        shelved = sum(
            (s.mask & s.receipt.stock).bit_count() for shelf in desk.stock.shelves.values() for s in shelf
        )
        assert shelved == stocked
        out: dict[int, int] = {}
        for lane in desk.lanes:
            assert lane.jobs == sum(piece.mask.bit_count() for piece in lane.pieces) >= 0
            assert lane.resumed == sum(piece.mask.bit_count() for piece in lane.pieces if piece.started)
            for receipt_id, piece in lane.waiting.items():
                assert piece.mask and not piece.mask & ~lane.waits[receipt_id]
                assert piece.mask & piece.receipt.out == piece.mask & piece.receipt.waiting
            for piece in lane.pieces:
                assert not piece.mask & piece.receipt.waiting
            for piece in lane.held():
                mine = piece.mask & piece.receipt.out
                receipt_id = piece.receipt.receipt_id
                assert not out.get(receipt_id, 0) & mine, "an attempt is with two lanes"
                out[receipt_id] = out.get(receipt_id, 0) | mine
        for receipt in desk.books:
            assert out.get(receipt.receipt_id, 0) == receipt.out
        assert all(jobs >= 0 for jobs in desk.books.in_flight.values())
        for claim in self.claims[-1:]:
            assert 0 < claim.total <= self.settings.window_jobs and min(claim.limits) > 0
        counted = {queue: 0 for queue in desk.books.in_flight}
        for receipt in desk.books:
            if receipt.queue:
                rest = receipt.open & ~(receipt.waiting | receipt.ran | receipt.ending)
                counted[receipt.queue] += rest.bit_count()
        assert counted == desk.books.in_flight
        assert (  # what waits is no part of the window, and may come back into it beside what has been claimed since
            desk.books.jobs <= self.settings.window_jobs
            or self.gave_way
            or any(r.adrift or not r.bodies for r in desk.books)
        )

    def settle(self, seconds: float = 120.0, step_s: float = 0.05) -> None:
        """Let everybody do what they can, fairly, until all jobs have ended or the time is over."""
        until_s = self.now_s + seconds
        total = len(self.ended) + len(self.available) + sum(r.open_mask.bit_count() for r in self.open_rows())
        while self.now_s < until_s and (len(self.ended) < total or self.core.desk.books.jobs):
            moved = True
            while moved:
                moved = self.deliver() | self.answer() | self.finalize()
                for lane in list(self.lanes.values()):
                    moved |= self.work(lane) | self.go_on(lane)
            for lane in self.lanes.values():
                self.resend(lane)
            self.tick(step_s)
