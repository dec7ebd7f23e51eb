"""A world for the finalizer's core without processes: workers that resend, a database that refuses, breaks and is busy."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from awa_pool.events import Exit, Note, StoreSaysNo, Tick, ToSupervisor, Trouble
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import (
    Command,
    Complete,
    Completed,
    Event,
    Finish,
    Finished,
    FinishStaged,
    Heard,
    LookedUp,
    LookUp,
    Send,
    Settings,
    StagedAnswered,
    StagedNo,
    StagedRow,
)
from awa_pool.messages import (
    AttemptsClosed,
    AttemptsEnded,
    DispatcherHello,
    EndAttempts,
    FinalizerLoad,
    Message,
    ResultsCommitted,
)

SLOT = 3


@dataclass
class ClosedRow:
    receipt_id: int
    done: int
    stale: int
    busy: int


@dataclass
class FinishedRow:
    item: int
    status: str
    state: str | None


@dataclass
class OpenRow:
    receipt_id: int
    open_mask: int
    job_ids: list[int]
    leases: list[int] | None = None


@dataclass
class FakeWorker:
    """Numbers its results, keeps them until the acknowledgement covers them."""

    peer: bytes
    seq: int = 0
    kept: dict[int, AttemptsEnded] = field(default_factory=dict)
    payloads: dict[int, list[bytes]] = field(default_factory=dict)


class World:
    """Database, workers and the core between them; `outcomes` says how each attempt ended, each once."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings("f1")
        self.now_s = 50.0
        self.core = self.new_core()
        self.closed: dict[int, int] = {}
        self.outcomes: dict[tuple[int, int], str] = {}
        self.poison: set[int] = set()  # receipts whose completion, or first outcome, the database refuses
        self.calls: deque[Command] = deque()
        self.follow_ups: dict[tuple[int, int], bytes] = {}  # what attempts brought in by their ends
        self.held: set[int] = set()  # receipts whose follow-ups want a key that another session holds
        self.refused: set[int] = set()  # receipts whose follow-ups the database refuses
        self.skipped: dict[
            int, list[tuple[str, int]]
        ] = {}  # by receipt: kind and holder of keys that are met
        self.staged: set[tuple[int, int]] = set()  # attempts that were reported with follow-ups
        self.trips: dict[int, FinishStaged] = {}
        self.workers: dict[bytes, FakeWorker] = {}
        self.told_closed: dict[int, int] = {}
        self.loads: list[FinalizerLoad] = []
        self.supervisor: list[Message] = []
        self.notes: list[Note] = []
        self.exited = False
        self.sizes: list[int] = []

    def new_core(self) -> Finalizer:
        return Finalizer(self.settings, random.Random(1))

    def step(self, event: Event) -> None:
        for command in self.core.step(event, self.now_s):
            match command:
                case Send(peer, ResultsCommitted(seq, _, also)):
                    self._acknowledged(self.workers[peer], seq, also)
                case Send(_, AttemptsClosed(pieces)):
                    for receipt_id, mask in pieces:
                        assert mask & ~self.closed.get(receipt_id, 0) == 0, "told closed what is open"
                        self.told_closed[receipt_id] = self.told_closed.get(receipt_id, 0) | mask
                case Send(_, FinalizerLoad() as load):
                    self.loads.append(load)
                case Complete() | Finish() | LookUp():
                    self.calls.append(command)
                    same = [call for call in self.calls if type(call) is type(command)]
                    assert len(same) == 1, "two calls of one road are under way"
                case FinishStaged(lane, ends, patient):
                    assert lane not in self.trips, "two trips on one lane"
                    mine = {values["receipt_id"] for values, _ in ends}
                    others = {v["receipt_id"] for trip in self.trips.values() for v, _ in trip.ends}
                    assert not mine & others, "two trips meet at a receipt"
                    assert not patient or len(ends) == 1
                    self.trips[lane] = command
                    patient_ones = sum(trip.patient for trip in self.trips.values())
                    assert patient_ones <= 2, "more than half of the lanes wait for keys"
                case ToSupervisor(message):
                    self.supervisor.append(message)
                case Note():
                    self.notes.append(command)
                case Exit():
                    self.exited = True
        assert self.core.desk.held_jobs >= 0 and self.core.desk.held_bytes >= 0

    def _acknowledged(self, worker: FakeWorker, seq: int, also: list[int]) -> None:
        for number in [number for number in worker.kept if number <= seq or number in also]:
            message = worker.kept.pop(number)
            worker.payloads.pop(number, None)
            mask = sum(mask for _, mask in message.completed) | sum(1 << other[0] for other in message.others)
            assert mask & ~self.closed.get(message.receipt_id, 0) == 0, "acknowledged what is not written"

    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.step(Tick())

    def worker(self, name: str) -> FakeWorker:
        peer = name.encode()
        return self.workers.setdefault(peer, FakeWorker(peer))

    def end(
        self,
        worker: FakeWorker,
        receipt_id: int,
        completed: int,
        others: list[list[Any]] | None = None,
        *,
        more: bool = False,
        staged: dict[int, bytes] | None = None,
    ) -> None:
        """A worker reports attempts of a receipt; `more`: it has others in hand; `staged`: follow-ups by index."""
        staged = staged or {}
        self.staged |= {(receipt_id, index) for index in staged}
        named = {other[0] for other in others or []}
        others = [*(others or []), *(self.completion(receipt_id, i) for i in staged if i not in named)]
        worker.seq += 1
        kinds = [["short", completed]] if completed else []
        oldest = min(worker.kept, default=worker.seq)
        message = AttemptsEnded(
            "i1", worker.seq, SLOT, receipt_id, -receipt_id, kinds, others, more, oldest, list(staged)
        )
        worker.kept[worker.seq] = message
        worker.payloads[worker.seq] = list(staged.values())
        self.step(Heard(worker.peer, message, worker.payloads[worker.seq]))

    def other(self, receipt_id: int, index: int, outcome: str) -> list[Any]:
        return [index, receipt_id * 100 + index, 1, "short", outcome, None, {"error": "no", "type": "E"}]

    def completion(self, receipt_id: int, index: int) -> list[Any]:
        return [index, receipt_id * 100 + index, 1, "stager", "completed", None, None]

    def resend(self, worker: FakeWorker) -> None:
        oldest = min(worker.kept, default=1)
        for number, message in list(worker.kept.items()):
            self.step(Heard(worker.peer, replace(message, oldest=oldest), worker.payloads.get(number, [])))

    def hello(self) -> None:
        self.step(Heard(b"dispatcher-1", DispatcherHello("d1")))

    def end_attempts(self, receipt_id: int, index: int, outcome: str) -> None:
        item = [SLOT, receipt_id, -receipt_id, index, receipt_id * 100 + index, 1, outcome, None, None]
        self.step(Heard(b"dispatcher-1", EndAttempts(1, [[*item, "k"]])))

    # --- the database --------------------------------------------------------------------------------------

    def answer(self, trouble: Trouble | None = None, *, committed: bool = False, busy: int = 0) -> bool:
        """Answer the oldest call; in trouble it fails, having committed or not."""
        if not self.calls:
            return False
        call = self.calls.popleft()
        what = "complete" if isinstance(call, Complete) else "finish"
        if isinstance(call, LookUp):
            self.step(LookedUp(None if trouble else self._open_rows()))
            return True
        if trouble is None and self._poisoned(call):
            self.step(StoreSaysNo(what, Trouble.REFUSED, "value \0 out of range", "22003"))
            return True
        rows = self._carry_out(call, busy) if trouble is None or committed else []
        if trouble is not None:
            self.step(StoreSaysNo(what, trouble, "no"))
        elif isinstance(call, Complete):
            self.sizes.append(len(call.receipts))
            self.step(Completed(rows, 0.001))
        else:
            self.step(Finished(rows, 0.001))
        return True

    def land(
        self,
        trouble: Trouble | None = None,
        *,
        committed: bool = False,
        busy: bool = False,
        lane: int | None = None,
    ) -> bool:
        """Answer a trip, that which has been under way longest unless one is named; in trouble it fails as a whole, all of it written or nothing."""
        if not self.trips:
            return False
        lane = next(iter(self.trips)) if lane is None else lane
        trip = self.trips.pop(lane)
        answers: list[StagedRow | StagedNo] = []
        for values, follow_ups in trip.ends:
            receipt_id, index = values["receipt_id"], values["index"]
            if receipt_id in self.held:
                answers.append(StagedNo(Trouble.LOCKED, "a key is held", "55P03"))
            elif receipt_id in self.refused and follow_ups:
                answers.append(StagedNo(Trouble.REFUSED, "not \0 this one", "P0001"))
            elif busy and index % 2:
                answers.append(StagedRow("busy", None, 0))
            elif trouble is not None and not committed:
                answers.append(StagedNo(trouble, "no"))
            elif self._close(receipt_id, index, values["outcome"]):
                self.follow_ups[receipt_id, index] = follow_ups
                skipped = self.skipped.get(receipt_id, [])
                answers.append(StagedRow("done", values["outcome"], 0 if skipped else 1, skipped))
            else:
                answers.append(StagedRow("stale", None, 0, [("follow", 1)]))  # that of the first time
        if trouble is not None:
            answers = [StagedNo(trouble, "no", whole_trip=True)] * len(trip.ends)
        self.step(StagedAnswered(lane, answers, 0.001))
        return True

    def _poisoned(self, call: Command) -> bool:
        if isinstance(call, Complete):
            return not self.poison.isdisjoint(call.receipts)
        assert isinstance(call, Finish)
        return any(
            item["receipt_id"] in self.poison and item.get("error", {}).get("type") != "FinishRefused"
            for item in call.items
        )

    def _carry_out(self, call: Command, busy: int) -> list[Any]:
        rows: list[Any] = []
        if isinstance(call, Complete):
            assert len(set(call.receipts)) == len(call.receipts), "a receipt stands twice in one call"
            for receipt_id, nonce, mask in zip(call.receipts, call.nonces, call.masks, strict=True):
                assert nonce == -receipt_id
                if busy and receipt_id % 2:
                    rows.append(ClosedRow(receipt_id, 0, 0, mask))
                    continue
                closed = self.closed.get(receipt_id, 0)
                rows.append(ClosedRow(receipt_id, mask & ~closed, mask & closed, 0))
                for index in range(63):
                    if mask >> index & 1:
                        self._close(receipt_id, index, "completed")
            return rows
        assert isinstance(call, Finish)
        for number, item in enumerate(call.items):
            receipt_id, index = item["receipt_id"], item["index"]
            if busy and number % 2:
                rows.append(FinishedRow(number, "busy", None))
            elif self._close(receipt_id, index, item["outcome"]):
                rows.append(FinishedRow(number, "done", "retryable"))
            else:
                rows.append(FinishedRow(number, "stale", None))
        return rows

    def _close(self, receipt_id: int, index: int, outcome: str) -> bool:
        closed = self.closed.get(receipt_id, 0)
        if closed >> index & 1:
            return False
        self.closed[receipt_id] = closed | 1 << index
        self.outcomes[receipt_id, index] = outcome
        return True

    def _open_rows(self) -> list[OpenRow]:
        full = (1 << 63) - 1
        ids = {message.receipt_id for worker in self.workers.values() for message in worker.kept.values()}
        return [
            OpenRow(number, full & ~self.closed.get(number, 0), [number * 100 + i for i in range(63)])
            for number in sorted(ids)
        ]

    def settle(self) -> None:
        """Let the database answer and the workers resend until nothing is held or kept."""
        for _ in range(400):
            while self.answer() or self.land():
                pass
            due_s = self.core.next_tick_s()
            self.tick(0.05 if due_s is None else max(0.0, min(due_s - self.now_s, 1.0)))
            if not self.calls and not self.trips and due_s is None:
                if not any(worker.kept for worker in self.workers.values()):
                    return
                self.tick(1.0)
                for worker in self.workers.values():
                    self.resend(worker)
