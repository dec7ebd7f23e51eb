"""The finalizer's core: when it flushes, what it tells whom, and how it treats what the database refuses."""

from __future__ import annotations

import pytest
from finalizer_world import World

from awa_pool.events import SupervisorSaid, Trouble
from awa_pool.finalizer.core import LINGER_S, LONGEST_NAP_S, PROMPT_S
from awa_pool.finalizer.events import Complete, Finish, Heard, Settings
from awa_pool.finalizer.peers import ACK_JOBS, ACK_S, Peer
from awa_pool.finalizer.retry import Again, Requeue, Split, finalize_with_retry
from awa_pool.messages import AttemptsEnded, Drained, EndAttempts, Stop


def test_the_first_result_after_a_silence_is_flushed_at_once():
    world = World()
    world.end(world.worker("w"), 1, 1)
    assert isinstance(world.calls[0], Complete)


def test_results_in_quick_succession_share_a_flush():
    world = World()
    worker = world.worker("w")
    for receipt_id in range(1, 11):
        world.end(worker, receipt_id, 1, more=True)
        world.now_s += 0.001
    world.answer()
    assert not world.calls
    world.tick(LINGER_S)
    world.answer()
    assert world.sizes == [1, 9]


def test_results_of_a_lane_that_has_run_dry_linger_briefly_and_take_the_others_along():
    world = World()
    busy, dry = world.worker("busy"), world.worker("dry")
    world.end(busy, 9, 1, more=True)
    world.answer()
    world.end(busy, 1, 1, more=True)
    world.tick(PROMPT_S * 2)
    assert not world.calls
    world.end(dry, 2, 1)
    world.tick(PROMPT_S)
    world.answer()
    assert world.sizes == [1, 2]


def test_many_waiting_jobs_are_not_kept_for_the_linger():
    world = World()
    worker = world.worker("w")
    for receipt_id in range(1, 20):
        world.end(worker, receipt_id, (1 << 63) - 1)
    world.answer()
    assert world.calls


def test_a_receipt_reported_by_two_lanes_stands_once_in_a_flush():
    world = World()
    world.end(world.worker("a"), 9, 1)
    world.end(world.worker("a"), 1, 0b01)
    world.end(world.worker("b"), 1, 0b10)
    world.answer()
    world.tick(0.03)
    call = world.calls[0]
    assert isinstance(call, Complete)
    assert (call.receipts, call.masks) == ([1], [0b11])


def test_nothing_is_acknowledged_before_it_is_written():
    world = World()
    worker = world.worker("w")
    world.end(worker, 1, 1)
    assert worker.kept
    world.answer()
    assert not worker.kept


def test_acknowledgements_of_a_busy_lane_are_gathered():
    world = World()
    worker = world.worker("w")
    world.end(worker, 1, 1, more=True)
    world.answer()
    assert not worker.kept
    acked_s = world.now_s
    world.end(worker, 2, 1, more=True)
    world.tick(LINGER_S)
    world.answer()
    assert world.outcomes[2, 0] == "completed" and worker.kept
    due_s = world.core.next_tick_s()
    assert due_s == acked_s + ACK_S > world.now_s
    world.tick(due_s - world.now_s)
    assert not worker.kept


def test_a_lane_that_has_run_dry_is_told_at_once_what_is_committed():
    world = World()
    worker = world.worker("w")
    world.end(worker, 1, 1, more=True)
    world.answer()
    world.end(worker, 2, 1, more=True)
    world.end(worker, 3, 1)
    world.tick(PROMPT_S)
    world.answer()
    assert not worker.kept


def test_many_committed_jobs_are_acknowledged_without_waiting_for_others():
    peer = Peer(0.0)
    peer.dry, peer.acked_s = False, 5.0
    assert peer.quiet_until_s() == 5.0 + ACK_S
    peer.unacked_jobs = ACK_JOBS
    assert peer.quiet_until_s() < 5.0


def test_a_repeat_of_a_committed_result_is_acknowledged_and_not_written_again():
    world = World()
    worker = world.worker("w")
    world.end(worker, 1, 1)
    message = worker.kept[1]
    world.answer()
    worker.kept[1] = message
    world.resend(worker)
    assert not world.calls
    assert not worker.kept


def test_a_gap_in_the_numbers_holds_the_acknowledgement_back():
    peer = Peer(0.0)
    peer.take(1, 1, 0.0)
    peer.take(3, 1, 0.0)
    peer.committed(1)
    peer.committed(3)
    assert peer.ack() == (1, [3])  # but what is committed behind it need not be kept
    peer.take(2, 1, 0.0)
    peer.committed(2)
    assert peer.ack() == (3, [])


def test_a_new_finalizer_acknowledges_no_result_before_the_older_ones_that_the_lane_still_keeps():
    peer = Peer(0.0)
    peer.take(57, 55, 0.0)
    peer.committed(57)
    assert peer.ack() == (54, [57])
    peer.take(56, 55, 1.0)
    peer.take(55, 55, 1.0)
    peer.committed(56)
    assert peer.ack() == (54, [56])
    peer.committed(55)
    assert peer.ack() == (57, [])


def test_a_late_word_of_what_the_lane_keeps_is_corrected_by_the_next():
    peer = Peer(0.0)
    peer.take(57, 50, 0.0)  # sent before the acknowledgement of 50 to 56 came
    peer.committed(57)
    assert peer.ack() == (49, [57])
    assert not peer.take(57, 57, 1.0)
    assert peer.ack() == (57, [])


@pytest.mark.parametrize("trouble", [Trouble.CONFLICT, Trouble.AWAY])
def test_a_conflict_or_lost_connection_is_tried_again_three_times_with_growing_pauses(trouble):
    pauses = [finalize_with_retry(trouble, tries, 0.5) for tries in (1, 2, 3)]
    assert pauses == [Again(0.010), Again(0.020), Again(0.040)]


def test_after_the_third_retry_a_conflict_is_somebodys_fault_and_an_outage_is_waited_for():
    assert finalize_with_retry(Trouble.CONFLICT, 4, 0.5) == Split()
    assert isinstance(finalize_with_retry(Trouble.AWAY, 4, 0.5), Again)
    assert finalize_with_retry(Trouble.AWAY, 500, 0.5) == Again(1.0)


def test_a_lock_not_to_be_had_goes_back_into_the_queue():
    assert isinstance(finalize_with_retry(Trouble.LOCKED, 1, 0.5), Requeue)


def test_one_refused_result_does_not_fail_its_batch():
    world = World()
    worker = world.worker("w")
    world.hello()
    world.end(worker, 50, 1)
    world.poison.add(7)
    for receipt_id in range(1, 17):
        world.end(worker, receipt_id, 1)
    world.settle()
    assert not worker.kept
    assert [world.outcomes[receipt_id, 0] for receipt_id in range(1, 17)].count("completed") == 15
    assert world.outcomes[7, 0] == "retry"


def test_an_outcome_that_the_database_refuses_becomes_a_retryable_failure_with_its_error():
    world = World()
    worker = world.worker("w")
    world.poison.add(1)
    world.end(worker, 1, 0, [world.other(1, 0, "snooze")])
    world.settle()
    assert world.outcomes[1, 0] == "retry"
    assert not worker.kept


def test_results_wait_out_an_outage_of_any_length():
    world = World()
    worker = world.worker("w")
    for receipt_id in range(1, 30):
        world.end(worker, receipt_id, 3)
    for _ in range(100):
        world.answer(Trouble.AWAY)
        world.tick(2.0)
    assert world.core.desk.held_jobs == 58 and not world.core.store_up
    world.settle()
    assert not worker.kept and world.core.store_up


def test_a_full_window_stops_claiming_until_there_is_room():
    world = World(Settings("f1", window_jobs=100))
    world.hello()
    worker = world.worker("w")
    for receipt_id in range(1, 4):
        world.end(worker, receipt_id, (1 << 50) - 1)
    assert [load.accepting for load in world.loads] == [True, False]
    world.settle()
    assert [load.accepting for load in world.loads] == [True, False, True]


def test_an_ending_asked_for_twice_is_sent_once():
    world = World()
    world.end(world.worker("w"), 9, 0, [world.other(9, 0, "retry")])
    for _ in range(3):
        world.end_attempts(1, 0, "return")
    world.answer()
    call = world.calls[0]
    assert isinstance(call, Finish) and len(call.items) == 1


@pytest.mark.parametrize(
    "message",
    [
        AttemptsEnded("i", 1, -5, 1, 1, [["k", 1]], []),
        AttemptsEnded("i", 1, 1, 1 << 70, 1, [["k", 1]], []),
        AttemptsEnded("i", 1, 1, 1, 1, [["k", -1], ["k"], 7], [[1], [99, 1, 1, "k", "retry", None, None]]),
        AttemptsEnded("i", 1, 1, 1, 1, [], [[0, 1, 1, "k", "exploded", None, None]]),
        AttemptsEnded("i", 0, 1, 1, 1, [["k", 1]], []),
        EndAttempts(1, [5, [], [1, 2, 3], [3, 1, -1, 0, 1, 1, "return", float("nan"), "x", 9]]),
    ],
)
def test_a_malformed_message_is_dropped_and_nothing_is_written(message):
    world = World()
    world.worker("w")
    world.step(Heard(b"w", message))
    assert not world.calls and world.core.desk.held_jobs == 0


def test_a_stop_writes_what_is_held_and_then_leaves():
    world = World()
    worker = world.worker("w")
    for receipt_id in range(1, 4):
        world.end(worker, receipt_id, 1)
    world.step(SupervisorSaid(Stop(5.0, "test")))
    while world.answer():
        pass
    assert not world.exited
    world.tick(0.25)
    assert world.exited and isinstance(world.supervisor[-1], Drained)
    assert not worker.kept


def test_a_stop_does_not_wait_for_a_dead_database_beyond_its_time():
    world = World()
    world.end(world.worker("w"), 1, 1)
    world.step(SupervisorSaid(Stop(1.0, "test")))
    world.answer(Trouble.AWAY)
    world.tick(1.1)
    assert world.exited


def test_a_database_that_is_away_is_awaited_no_longer_than_the_pool_has_to_drain():
    world = World()
    world.end(world.worker("w"), 1, 1)
    world.answer(Trouble.AWAY)
    world.step(SupervisorSaid(Stop(8.0, "test", 1.0)))
    world.tick(0.9)
    assert not world.exited
    world.tick(0.2)
    assert world.exited


def test_the_socket_may_wait_only_while_results_linger():
    world = World()
    worker = world.worker("w")
    assert world.core.deaf_until_s() is None
    world.end(worker, 1, 1)
    assert world.core.deaf_until_s() is None
    world.end(worker, 2, 1, more=True)
    world.answer()
    until_s = world.core.deaf_until_s()
    assert until_s is not None and world.now_s < until_s <= world.now_s + LONGEST_NAP_S
