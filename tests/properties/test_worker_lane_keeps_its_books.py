"""Whatever comes in whatever order: each attempt of a lane ends, or is given back, exactly once."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from awa_pool.messages import AttemptsEnded, AttemptsRan, Recall, Recalled, ResultsCommitted, RunJobs
from awa_pool.worker.core import LaneCore
from awa_pool.worker.events import (
    Arrived,
    Command,
    Draining,
    FinalizerReplaced,
    Flush,
    Piece,
    ReleaseRow,
    Tick,
    ToDispatcher,
    ToFinalizer,
)

MASKS = st.integers(1, 0xFF)
RECEIPTS = st.integers(1, 4)


def indexes(mask: int) -> list[int]:
    return [index for index in range(63) if mask >> index & 1]


class Lane(RuleBasedStateMachine):
    """Models a lane as three masks per receipt: here, ended and uncommitted, gone."""

    def __init__(self) -> None:
        super().__init__()
        self.core = LaneCore(1, "i", "sync", 1, ["noop"])
        self.now_s = 0.0
        self.here: dict[int, int] = {}
        self.uncommitted: dict[int, tuple[int, int]] = {}
        self.rows: set[int] = set()
        self.next_row = 0
        self.piece: Piece | None = None

    def carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case ReleaseRow(row):
                    self.rows.remove(row)
                case ToDispatcher(Recalled(receipt_id, mask)):
                    assert mask & ~self.here.get(receipt_id, 0) == 0
                    self.here[receipt_id] = self.here.get(receipt_id, 0) & ~mask
                case ToFinalizer(AttemptsEnded() as message):
                    mask = sum(done for _, done in message.completed)
                    if message.seq in self.uncommitted:
                        assert self.uncommitted[message.seq] == (message.receipt_id, mask)
                    else:
                        assert mask & ~self.here[message.receipt_id] == 0
                        self.here[message.receipt_id] &= ~mask
                        self.uncommitted[message.seq] = (message.receipt_id, mask)
                case ToDispatcher(AttemptsRan() as ran):
                    assert ran.mask == sum(1 << index for index in indexes(ran.mask))

    @rule(receipt_id=RECEIPTS, mask=MASKS)
    def hand_over(self, receipt_id: int, mask: int) -> None:
        bodies = [json.dumps([index, "noop", {}, 1, 1, 25, None]).encode() for index in indexes(mask)]
        held = self.here.get(receipt_id, 0)
        for owner, kept in self.uncommitted.values():
            held |= kept if owner == receipt_id else 0
        self.here[receipt_id] = self.here.get(receipt_id, 0) | mask & ~held
        run = RunJobs("default", 2, 3, receipt_id, 5, indexes(mask))
        self.carry_out(self.core.step(Arrived(run, [b"\0".join(bodies)]), self.now_s))

    @rule(receipt_id=RECEIPTS, mask=MASKS)
    def recall(self, receipt_id: int, mask: int) -> None:
        self.carry_out(self.core.step(Arrived(Recall(receipt_id, mask)), self.now_s))

    @rule(jobs=st.integers(1, 8), recall=st.none() | MASKS)
    def work(self, jobs: int, recall: int | None) -> None:
        if self.piece is None or not self.piece.todo:
            self.piece = self.core.take()
        piece = self.piece
        if piece is None:
            return
        if piece.row < 0:
            piece.row = self.next_row
            self.rows.add(self.next_row)
            self.next_row += 1
        piece.running = 1
        for _ in range(jobs):
            if piece.todo:
                bit = piece.todo & -piece.todo
                piece.todo ^= bit
                piece.done["noop"] = piece.done.get("noop", 0) | bit
        if recall is not None:  # the handler asks whether it is cancelled, and mail is read
            self.recall(piece.receipt_id, recall)
        piece.running = 0
        self.carry_out(self.core.step(Flush(piece), self.now_s))

    @rule(seq=st.integers(0, 30))
    def acknowledge(self, seq: int) -> None:
        if not self.uncommitted or seq > max(self.uncommitted):
            return
        self.uncommitted = {number: kept for number, kept in self.uncommitted.items() if number > seq}
        self.carry_out(self.core.step(Arrived(ResultsCommitted(seq)), self.now_s))

    @rule(passed_s=st.floats(0, 20), replaced=st.booleans())
    def time_passes(self, passed_s: float, replaced: bool) -> None:
        self.now_s += passed_s
        self.carry_out(self.core.step(FinalizerReplaced() if replaced else Tick(), self.now_s))

    @rule(really=st.integers(0, 9))
    def drain(self, really: int) -> None:
        if really == 0:
            self.carry_out(self.core.step(Draining(), self.now_s))

    @invariant()
    def the_books_agree(self) -> None:
        expected = dict(self.here)
        for receipt_id, mask in self.uncommitted.values():
            expected[receipt_id] = expected.get(receipt_id, 0) | mask
        held = {receipt_id: mask for receipt_id, mask in self.core.hello().holding}
        assert held == {receipt_id: mask for receipt_id, mask in expected.items() if mask}

    @invariant()
    def nothing_is_kept_when_nothing_is_left(self) -> None:
        if not any(self.here.values()) and not self.uncommitted:
            assert self.core.settled and not self.rows


TestLane = Lane.TestCase
TestLane.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
