"""A lane's books, driven with events and a clock of the test's own."""

from __future__ import annotations

import json

from awa_pool.messages import (
    AskHolding,
    AttemptsEnded,
    AttemptsRan,
    CancelJob,
    Holding,
    Recall,
    Recalled,
    ResultsCommitted,
    RunJobs,
)
from awa_pool.worker.core import RESEND_MAX_S, UNACKNOWLEDGED_JOBS, LaneCore
from awa_pool.worker.events import (
    Arrived,
    Draining,
    FinalizerReplaced,
    Flush,
    Piece,
    ReleaseRow,
    Tick,
    ToDispatcher,
    ToFinalizer,
)


def core() -> LaneCore:
    return LaneCore(1, "i", "sync", 1, ["noop"])


def run_jobs(receipt_id: int, indexes: list[int], nonce: int = 9) -> Arrived:
    bodies = [json.dumps([100 + index, "noop", {}, 1, 1, 25, None]).encode() for index in indexes]
    return Arrived(RunJobs("default", 2, 3, receipt_id, nonce, indexes), [b"\0".join(bodies)])


def complete(piece: Piece, row: int = 0) -> None:
    """Do as an executor does with all that is left of a piece."""
    piece.row = row
    piece.done["noop"] = piece.todo
    piece.timings["noop"] = [piece.todo.bit_count(), 0.5, 0.25]
    piece.todo = 0


def hand_and_complete(
    lane: LaneCore, receipt_id: int, indexes: list[int], now_s: float = 0.0
) -> list[object]:
    lane.step(run_jobs(receipt_id, indexes), now_s)
    piece = lane.take()
    assert piece is not None
    complete(piece, receipt_id)
    return list(lane.step(Flush(piece), now_s))


def test_results_go_to_the_finalizer_and_news_to_the_dispatcher() -> None:
    lane = core()
    assert hand_and_complete(lane, 7, [2, 5]) == [
        ToFinalizer(AttemptsEnded("i", 1, 3, 7, 9, [["noop", 0b100100]], [])),
        ToDispatcher(AttemptsRan(7, 0b100100, [["noop", 2, 0.5, 0.25]])),
    ]
    assert lane.idle and not lane.settled
    assert lane.step(Arrived(ResultsCommitted(1)), 0) == [ReleaseRow(7)]
    assert lane.settled and lane.step(Arrived(ResultsCommitted(1)), 0) == []


def test_what_is_not_committed_is_sent_again_with_growing_pauses() -> None:
    lane = core()
    (first, _) = hand_and_complete(lane, 7, [0])
    now_s, gaps = 0.0, []
    for _ in range(6):
        due_s = lane.next_due_s()
        assert due_s is not None
        gaps.append(due_s - now_s)
        assert lane.step(Tick(), due_s - 0.01) == []
        assert lane.step(Tick(), due_s) == [first]
        now_s = due_s
    assert gaps == [1.0, 2.0, 4.0, 8.0, RESEND_MAX_S, RESEND_MAX_S]
    assert lane.step(FinalizerReplaced(), now_s) == [first]
    assert lane.next_due_s() == now_s + 1.0


def test_an_acknowledgement_covers_all_before_it() -> None:
    lane = core()
    for receipt_id in (1, 2, 3):
        hand_and_complete(lane, receipt_id, [0])
    assert lane.step(Arrived(ResultsCommitted(2)), 0) == [ReleaseRow(1), ReleaseRow(2)]
    assert lane.step(Arrived(AskHolding(4)), 0) == [ToDispatcher(Holding(4, [[3, 1]]))]


def test_what_is_committed_behind_one_that_waits_is_forgotten_too() -> None:
    lane = core()
    for receipt_id in (1, 2, 3):
        hand_and_complete(lane, receipt_id, [0])
    assert lane.step(Arrived(ResultsCommitted(0, [], [2, 3, 9])), 0) == [ReleaseRow(2), ReleaseRow(3)]
    assert lane.step(Arrived(AskHolding(4)), 0) == [ToDispatcher(Holding(4, [[1, 1]]))]
    assert lane.step(Arrived(ResultsCommitted(3, [], [])), 0) == [ReleaseRow(1)] and lane.settled


def test_a_journal_row_lives_until_the_last_result_of_its_piece_is_committed() -> None:
    lane = core()
    lane.step(run_jobs(7, [0, 1]), 0)
    piece = lane.take()
    assert piece is not None
    piece.row, piece.todo, piece.done = 4, 0b10, {"noop": 0b01}
    lane.step(Flush(piece), 0)
    assert lane.step(Arrived(ResultsCommitted(1)), 0) == []
    complete(piece, 4)
    lane.step(Flush(piece), 0)
    assert lane.step(Arrived(ResultsCommitted(2)), 0) == [ReleaseRow(4)]


def test_a_recall_takes_what_has_not_started_and_says_so_exactly() -> None:
    lane = core()
    lane.step(run_jobs(7, [0, 1, 2]), 0)
    lane.step(run_jobs(7, [3, 4]), 0)
    piece = lane.take()
    assert piece is not None
    piece.todo ^= 1
    piece.running = 1
    assert lane.step(Arrived(Recall(7, 0b01011)), 0) == [ToDispatcher(Recalled(7, 0b01010))]
    assert lane.step(Arrived(Recall(7, 0b01011)), 0) == [ToDispatcher(Recalled(7, 0))]
    assert lane.step(Arrived(Recall(8, 1)), 0) == [ToDispatcher(Recalled(8, 0))]
    assert lane.hello().holding == [[7, 0b10101]]
    lane.step(run_jobs(7, [1]), 0)
    assert lane.hello().holding == [[7, 0b10111]]


def test_a_recalled_piece_that_an_executor_has_only_taken_is_let_go() -> None:
    lane = core()
    lane.step(run_jobs(6, [0]), 0)
    lane.step(run_jobs(7, [0]), 0)
    running, piece = lane.take(), lane.take()
    assert running is not None and piece is not None
    running.todo, running.running, piece.row = 0, 1, 2
    assert lane.step(Arrived(Recall(7, 1)), 0) == [ReleaseRow(2), ToDispatcher(Recalled(7, 1))]
    assert lane.hello().holding == [[6, 1]]


def test_a_recall_leaves_a_lane_that_runs_nothing_the_attempt_it_starts_next() -> None:  # B069
    lane = core()
    lane.step(run_jobs(7, [0, 1, 2]), 0)
    lane.step(run_jobs(8, [0]), 0)
    assert lane.step(Arrived(Recall(7, 0b111)), 0) == [ToDispatcher(Recalled(7, 0b110))]
    assert lane.step(Arrived(Recall(8, 1)), 0)[-1] == ToDispatcher(Recalled(8, 1))
    assert lane.step(Arrived(Recall(7, 0b111)), 0) == [ToDispatcher(Recalled(7, 0))]
    assert lane.hello().holding == [[7, 1]]


def test_a_recall_found_after_a_long_attempt_takes_the_next_one_too() -> None:
    """The dispatcher takes an unanswered recall as granted for all that stands behind a long attempt."""
    lane = core()
    lane.step(run_jobs(7, [0, 1, 2]), 0)
    piece = lane.take()
    assert piece is not None
    piece.todo = 0b110  # the first has run since 10.0
    lane.started_s = 10.0
    assert lane.step(Arrived(Recall(7, 0b100)), 10.001) == [ToDispatcher(Recalled(7, 0b100))]
    assert lane.step(Arrived(Recall(7, 0b110)), 10.001) == [ToDispatcher(Recalled(7, 0))]
    assert lane.step(Arrived(Recall(7, 0b110)), 10.02) == [ToDispatcher(Recalled(7, 0b010))]


def test_a_repeated_handover_brings_only_what_is_new() -> None:
    lane = core()
    lane.step(run_jobs(7, [0, 1]), 0)
    lane.step(run_jobs(7, [1, 2]), 0)
    assert [piece.todo for piece in lane.pieces] == [0b011, 0b100]
    lane.step(run_jobs(7, [0], nonce=8), 0)
    assert len(lane.pieces) == 3


def test_a_drain_gives_everything_unstarted_back_now_and_later() -> None:
    lane = core()
    lane.step(run_jobs(7, [0, 1]), 0)
    lane.step(run_jobs(8, [5]), 0)
    *back, leaving = lane.step(Draining(), 0)
    assert back == [ToDispatcher(Recalled(7, 0b11)), ToDispatcher(Recalled(8, 1 << 5))]
    assert leaving == ToDispatcher(lane.hello()) and lane.hello().capacity == 0
    assert lane.step(run_jobs(9, [0]), 0) == [leaving, ToDispatcher(Recalled(9, 1))]
    assert lane.settled and lane.take() is None


def test_too_much_unacknowledged_stops_the_start_of_more() -> None:
    lane = core()
    for receipt_id in range(1, UNACKNOWLEDGED_JOBS // 63 + 2):
        assert not lane.congested
        hand_and_complete(lane, receipt_id, list(range(63)))
    assert lane.congested
    lane.step(Arrived(ResultsCommitted(1)), 0)
    lane.step(Arrived(ResultsCommitted(5)), 0)
    assert not lane.congested


def test_cancels_are_kept_while_something_is_held_only() -> None:
    lane = core()
    lane.step(Arrived(CancelJob(100, 1)), 0)
    assert lane.cancelled == set()
    lane.step(run_jobs(7, [0]), 0)
    lane.step(Arrived(CancelJob(100, 1)), 0)
    assert lane.cancelled == {(100, 1)}
    piece = lane.take()
    assert piece is not None
    complete(piece)
    lane.step(Flush(piece), 0)
    assert lane.cancelled == set()
