"""The dispatcher's core: credit, chunks, claims, recall, departures, audit, one behaviour each."""

from __future__ import annotations

import logging

import pytest
from dispatcher_world import FakeLane, World

from awa_pool.dispatcher.claims import FIRST_CLAIM
from awa_pool.dispatcher.events import Claim, FinalizerSaid, Heard, Notified, OpenAttemptsRead, Settings
from awa_pool.dispatcher.lanes import BUFFER_S, REFILL_S
from awa_pool.dispatcher.notes import DRAINING, JOBS_RETURNED, LANE_GONE, STORE_REFUSED, some_of
from awa_pool.dispatcher.pacing import LONGEST_NAP_S, KindPace, Pacing, Poll
from awa_pool.events import StoreIsBack, StoreLost, StoreSaysNo, SupervisorSaid, Tick, Trouble
from awa_pool.messages import (
    ActorReplaced,
    AttemptsClosed,
    AttemptsRan,
    CancelJob,
    EndAttempts,
    FinalizerLoad,
    Holding,
    Idle,
    Recall,
    Recalled,
    Retire,
    RunJobs,
    Stop,
    StopNow,
    WorkerGone,
    WorkerReady,
)

QUEUES = (("default", None),)


def ready_world(jobs: int, workers: int = 2, known_s: float | None = 1e-5, **settings: object) -> World:
    """A world whose dispatcher has recovered; its kind is known to take `known_s`."""
    world = World(Settings("d1", QUEUES, workers=workers, **settings), jobs)  # type: ignore[arg-type]
    if known_s is not None:
        for _ in range(40):
            world.core.desk.pacing.observe("default", [[world.kind, 10, 10 * known_s, known_s]])
    for worker in range(workers):
        world.start_worker(worker)
    run(world)
    return world


def run(world: World) -> None:
    """Let messages and answers come, but no job run."""
    moved = True
    while moved:
        moved = world.deliver() | world.answer() | world.finalize()


def lanes(world: World) -> list[FakeLane]:
    return list(world.lanes.values())


def read_all(world: World, lane: FakeLane) -> None:
    while lane.inbox and lane.running is None:
        world.work(lane)


def test_an_unknown_kind_is_handed_over_one_by_one_and_none_behind_it():
    world = ready_world(50, known_s=None)
    for lane in lanes(world):
        assert [message.indexes for message in lane.inbox if isinstance(message, RunJobs)] == [[0]] or len(
            lane.inbox
        ) == 1


def test_short_jobs_go_in_chunks_of_a_whole_receipt():
    world = ready_world(500)
    first = lanes(world)[0].inbox[0]
    assert isinstance(first, RunJobs) and first.indexes == list(range(63))


def test_a_lane_of_short_jobs_has_more_than_it_must_and_less_than_its_buffer():
    known_s = 0.001
    world = ready_world(2000, known_s=known_s)
    for _ in range(4):  # claims start small and double
        world.tick(0.06)
        run(world)
    handed = [sum(len(message.indexes) for message in lane.inbox) for lane in lanes(world)]
    assert all(REFILL_S <= jobs * known_s <= BUFFER_S for jobs in handed), handed


def test_a_lane_has_its_next_chunk_before_it_is_through_with_the_last():
    known_s = 0.001
    world = ready_world(500, workers=1, known_s=known_s)
    (lane,) = lanes(world)
    while world.available:
        world.work(lane)
        world.now_s += known_s if lane.running else 0.0
        run(world)
        assert lane.running or lane.inbox or lane.waiting


def test_few_jobs_are_shared_out_evenly():
    world = ready_world(0, known_s=0.001)
    world.available.extend(range(1, 13))
    world.step(Notified(""))
    run(world)
    handed = sorted(sum(len(message.indexes) for message in lane.inbox) for lane in lanes(world))
    assert sum(handed) == 12 and handed[0] >= 4


def test_nothing_is_put_behind_a_kind_that_is_known_to_be_long():
    world = ready_world(50, known_s=0.2)
    assert all(len(lane.inbox) == 1 and len(lane.inbox[0].indexes) == 1 for lane in lanes(world))


def test_nothing_is_claimed_ahead_for_lanes_that_run_long_jobs():
    world = ready_world(50, known_s=5.0)
    assert len(world.available) == 48


def test_claims_grow_with_the_speed_of_the_jobs():
    slow, fast = (
        max(claim.total for claim in ready_world(5000, known_s=known_s).claims) for known_s in (0.005, 1e-5)
    )
    assert 15 <= slow <= 200
    assert fast >= 8 * slow


def test_claims_start_small_and_double_while_they_are_filled():
    world = ready_world(5000, known_s=1e-5)
    totals = [claim.total for claim in world.claims]
    assert totals[:4] == [FIRST_CLAIM * 2**full for full in range(4)]
    world.settle()
    world.tick(1.0)
    run(world)  # finds nothing
    before = len(world.claims)
    world.available.extend(range(10_001, 15_001))
    world.step(Notified(""))
    run(world)
    assert world.claims[before].total == FIRST_CLAIM < world.claims[before + 1].total


@pytest.mark.parametrize("window_jobs", [FIRST_CLAIM // 2, FIRST_CLAIM * 2])
def test_claims_stay_within_the_window(window_jobs):
    world = ready_world(5000, window_jobs=window_jobs)
    most = world.core.desk.books.jobs
    assert window_jobs / 2 <= most <= window_jobs
    for _ in range(200):
        for lane in lanes(world):
            world.work(lane)
        run(world)
        most = max(most, world.core.desk.books.jobs)
    assert most == window_jobs


def test_claims_ask_for_no_more_bytes_than_the_window_has_left():
    window_bytes = 8000  # bodies have some 30
    world = ready_world(5000, window_bytes=window_bytes)
    for _ in range(700):
        for lane in lanes(world):
            world.work(lane)
        run(world)
    assert all(1 < claim.max_bytes <= window_bytes for claim in world.claims)  # 1: nothing was left
    assert min(claim.max_bytes for claim in world.claims) < window_bytes / 2
    assert len(world.claims) > 3


def test_a_finalizer_that_is_full_stops_claims():
    world = World(Settings("d1", QUEUES), 100)
    world.to_dispatcher.append(FinalizerSaid(FinalizerLoad("f1", 5000, 0, False)))
    world.deliver()
    world.start_worker(1)
    world.deliver(), world.answer(), world.deliver()
    assert not world.claims
    world.step(FinalizerSaid(FinalizerLoad("f1", 0, 0, True)))
    assert len(world.claims) == 1


def test_a_new_finalizer_is_asked_again_for_every_ending():
    world = ready_world(20)
    victim = lanes(world)[0]
    world.kill(victim)
    world.deliver()
    world.tick(0.3)
    asked = [m for m in world.to_finalizer if isinstance(m, EndAttempts)]
    world.to_finalizer.clear()
    world.step(SupervisorSaid(ActorReplaced("finalizer")))
    again = [m for m in world.to_finalizer if isinstance(m, EndAttempts)]
    assert asked and sum(len(m.items) for m in asked) == sum(len(m.items) for m in again)


def test_a_claim_that_finds_nothing_is_followed_by_longer_and_longer_pauses():
    poll = Poll(1.0)
    pauses = []
    for _ in range(12):
        poll.nothing(0.0)
        pauses.append(poll.due_s)
    assert pauses[0] == 0.05 and pauses == sorted(pauses) and pauses[-1] == 1.0
    poll.busy(0.0)
    assert poll.due_s <= 0.05


def test_an_idle_dispatcher_looks_once_a_second():
    world = ready_world(0)
    for _ in range(30):
        due_s = world.core.next_tick_s()
        assert due_s is not None
        world.tick(max(0.0, due_s - world.now_s))
        run(world)
    claims, began_s = len(world.claims), world.now_s
    while world.now_s < began_s + 20:
        world.tick(max(0.001, (world.core.next_tick_s() or 0.0) - world.now_s))
        run(world)
    assert 15 <= len(world.claims) - claims <= 21


def test_a_notification_is_followed_by_a_claim_at_once():
    world = ready_world(0)
    run(world)
    claims = len(world.claims)
    world.step(Notified(""))
    assert len(world.claims) == claims + 1
    assert world.claims[-1].waiting


def test_queues_take_turns_at_the_head_of_the_claim():
    world = World(Settings("d1", (("a", None), ("b", None))), 0)
    world.start_worker(1)
    run(world)
    world.step(Notified(""))
    assert {claim.queues[0] for claim in world.claims} == {"a", "b"}


def test_jobs_behind_a_long_one_go_to_an_idle_lane_within_a_blink():
    world = ready_world(30)
    busy, idle = lanes(world)
    for lane in (busy, idle):
        read_all(world, lane)
    world.work(busy)  # starts the first of its chunk, which will not end
    while idle.running or idle.waiting or idle.inbox:
        world.work(idle)
        run(world)
    assert busy.waiting
    began_s = world.now_s
    while len(world.ended) < 29 and world.now_s < began_s + 1.0:
        due_s = world.core.next_tick_s() or world.now_s
        world.tick(max(0.001, due_s - world.now_s))
        run(world)
        while idle.inbox or idle.waiting or idle.running:
            world.work(idle)
            run(world)
    assert len(world.ended) == 29 and world.now_s - began_s < 0.2
    # What was taken as granted was said again: had the first word been lost, the lane would run it later, too.
    recalls = [message for message in busy.inbox if isinstance(message, Recall)]
    assert recalls[-1].mask & ~recalls[0].mask == 0
    assert [recall.receipt_id for recall in recalls].count(recalls[-1].receipt_id) >= 2


def test_an_answered_recall_hands_the_same_receipt_out_again():
    world = ready_world(10, workers=2)
    holder = next(lane for lane in lanes(world) if lane.inbox)
    other = next(lane for lane in lanes(world) if lane is not holder)
    read_all(world, holder)
    read_all(world, other)
    other.waiting.clear()
    given = holder.inbox or holder.waiting
    assert given
    receipt_id = holder.waiting[0][0]
    mask = sum(1 << index for at, index in holder.waiting if at == receipt_id)
    world.step(Heard(holder.peer, Recalled(receipt_id, mask)))
    again = [m for lane in lanes(world) for m in lane.inbox if isinstance(m, RunJobs)]
    assert any(m.receipt_id == receipt_id for m in again)


def test_a_retired_worker_is_given_nothing_more_and_its_waiting_jobs_are_recalled():
    world = ready_world(500)
    lane = lanes(world)[0]
    before = len(lane.inbox)
    world.step(SupervisorSaid(Retire(lane.worker, lane.incarnation)))
    sent = list(lane.inbox)[before:]
    assert sent and all(isinstance(message, Recall) for message in sent)


def test_a_cancelled_attempt_is_told_to_the_lane_that_has_it_and_dropped_from_the_stock():
    world = ready_world(2000, known_s=0.001)
    jobs = lanes(world)[0].inbox[0]
    assert isinstance(jobs, RunJobs)
    job_id = world.rows[jobs.receipt_id].job_ids[jobs.indexes[0]]
    world.step(Notified(f"cancel {job_id} 1 {jobs.receipt_id}"))
    assert CancelJob(job_id, 1) in lanes(world)[0].inbox
    stocked = next(receipt for receipt in world.core.desk.books if receipt.stock)
    index = stocked.stock.bit_length() - 1
    before = stocked.open
    world.step(Notified(f"cancel {stocked.job_ids[index]} 1 {stocked.receipt_id}"))
    assert stocked.open == before & ~(1 << index)


@pytest.mark.parametrize(
    "payload", ["x", "cancel", "cancel a b c", "cancel 1 2 3", "cancel -1 9999999999999999999999 3"]
)
def test_notices_of_others_are_passed_over(payload):
    world = ready_world(5)
    world.step(Notified(payload))


@pytest.mark.parametrize(
    "message",
    [
        AttemptsRan(1, -1, []),
        AttemptsRan(1, 1 << 90, [["k"]]),
        AttemptsRan(1, 1, [["k", 0, 1.0, 1.0]]),
        AttemptsRan(1, 1, [["k", 1, float("nan"), 1.0]]),
        Recalled(77, (1 << 63) - 1),
        Holding(1, [["a", 1], 5]),
        WorkerReady(0, "i1", "sync", -5, [], []),
        WorkerReady(0, "i1", "sync", 1, [[1]], [1, 2]),
    ],
)
def test_a_malformed_message_changes_nothing(message):
    world = ready_world(20)
    jobs = world.core.desk.books.jobs
    world.step(Heard(lanes(world)[0].peer, message))
    assert world.core.desk.books.jobs == jobs


def test_closed_attempts_leave_the_books_and_give_the_credit_back():
    world = ready_world(10, workers=1)
    lane = lanes(world)[0]
    read_all(world, lane)
    receipt_id, index = lane.waiting[0]
    known = world.core.desk.lanes.get(lane.peer)
    assert known is not None
    jobs = known.jobs
    world.step(FinalizerSaid(AttemptsClosed([[receipt_id, 1 << index]])))
    assert known.jobs == jobs - 1


def test_under_drain_idle_is_said_once_when_nothing_is_left():
    world = ready_world(3, drain=True)
    world.settle(5.0)
    for _ in range(20):
        world.tick(0.5)
        run(world)
    assert [message for message in world.supervisor if isinstance(message, Idle)] == [Idle(0)]


def test_a_drain_that_the_database_refuses_to_tell_about_says_so_once() -> None:
    world = ready_world(0, drain=True)
    for _ in range(3):
        world.step(StoreSaysNo("work_left", Trouble.REFUSED, "no such column"))
    world.step(StoreSaysNo("work_left", Trouble.AWAY, "gone"))
    (told,) = [note for note in world.notes if note.event == STORE_REFUSED]
    assert told.level == logging.ERROR and told.fields == {"question": "work_left", "error": "no such column"}


def away_while_claiming(**settings: object) -> World:
    """A world whose dispatcher has asked for jobs just when the database went away: the claim waits for it."""
    world = ready_world(0, **settings)
    world.step(Notified(""))
    assert [type(question) for question in world.questions] == [Claim]
    world.step(StoreLost("refused"))
    return world


def test_a_stop_takes_a_claim_back_that_waits_for_the_database():
    world = away_while_claiming()
    world.step(SupervisorSaid(Stop(22.0, "test", 20.0)))
    assert not world.exited
    assert world.deliver() and world.exited


def test_a_claim_that_the_database_has_is_awaited_and_what_it_brings_is_given_back():
    world = ready_world(0)
    world.available.append(1)
    world.step(Notified(""))
    claim = world.questions.popleft()  # it runs there: too late to take it back
    world.step(SupervisorSaid(Stop(22.0, "test", 20.0)))
    assert not world.exited and not world.questions
    world.questions.append(claim)
    run(world)
    assert world.exited and list(world.available) == [1] and not world.open_rows()


def test_a_drain_gives_back_what_stands_behind_a_long_job_though_its_worker_cannot_answer():
    world = ready_world(10, workers=1)
    (busy,) = lanes(world)
    read_all(world, busy)
    world.work(busy)  # starts the first of its chunk, which will not end
    assert busy.running and busy.waiting
    world.step(SupervisorSaid(Stop(600.0, "test", 600.0)))
    began_s = world.now_s
    while len(world.available) < 9 and world.now_s < began_s + 1.0:
        world.tick(max(0.001, (world.core.next_tick_s() or 0.0) - world.now_s))
        run(world)
    assert len(world.available) == 9 and not world.exited
    assert sum(row.open_mask.bit_count() for row in world.open_rows()) == 1


def leaving_with_a_result_unwritten(**stop: float) -> World:
    """A world on its way out, without workers; the finalizer cannot write what a dead worker had."""
    world = ready_world(1, workers=1)
    (lane,) = lanes(world)
    read_all(world, lane)
    world.work(lane)
    world.step(StoreLost("refused"))
    world.step(SupervisorSaid(Stop(22.0, "test", 20.0)))
    world.step(SupervisorSaid(WorkerGone(1, lane.incarnation, "test", [], "")))
    world.step(SupervisorSaid(Stop(1.0, "test", stop["away_s"])))
    world.tick(1.0)
    return world


@pytest.mark.parametrize(
    ("last", "reason"),
    [(StopNow("again"), "the pool ends at once"), (None, "the drain time is over")],
    ids=["a second signal", "the time"],
)
def test_what_is_cut_is_told_by_number_and_with_its_reason(last: StopNow | None, reason: str):
    world = ready_world(1, workers=1)
    (lane,) = lanes(world)
    read_all(world, lane)
    world.work(lane)
    world.step(SupervisorSaid(Stop(22.0, "test", 20.0)))
    (draining,) = [note for note in world.notes if note.event == DRAINING]
    assert draining.fields == {"jobs": 1, "drain_s": 20.0}  # what the user has set
    if last is not None:
        world.step(SupervisorSaid(last))
    world.tick(30.0)
    (told,) = [note for note in world.notes if note.event == JOBS_RETURNED]
    assert told.fields == {"jobs": 1, "reason": reason, "job_ids": "1"}


def test_a_worker_that_dies_is_told_with_the_numbers_of_its_jobs():
    world = ready_world(1, workers=1)
    (lane,) = lanes(world)
    read_all(world, lane)
    world.work(lane)
    world.step(
        SupervisorSaid(WorkerGone(lane.worker, lane.incarnation, "killed by signal 9 (SIGKILL)", [], ""))
    )
    world.tick(1.0)
    (told,) = [note for note in world.notes if note.event == LANE_GONE]
    assert told.fields["job_ids"] == "1"
    assert some_of([*range(30, 0, -1)]) == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"


def test_a_database_that_is_away_is_not_awaited_beyond_the_time_to_drain():
    assert leaving_with_a_result_unwritten(away_s=0.0).exited
    world = leaving_with_a_result_unwritten(away_s=5.0)
    assert not world.exited
    world.tick(4.1)
    assert world.exited


def test_a_database_that_came_back_has_the_time_of_a_farewell():
    world = leaving_with_a_result_unwritten(away_s=5.0)
    world.step(StoreIsBack())
    world.tick(5.0)
    assert not world.exited
    world.finalize()
    run(world)
    assert world.exited


def test_who_is_told_to_end_at_once_does_not_wait_long_for_the_finalizer():
    world = leaving_with_a_result_unwritten(away_s=5.0)
    world.step(StoreIsBack())
    world.step(SupervisorSaid(StopNow("test")))
    world.tick(2.1)
    assert world.exited


def test_a_dispatcher_that_has_not_reached_the_database_leaves_at_once_if_it_is_the_first_and_else_in_time():
    for first in (True, False):
        world = World(Settings("d1", QUEUES, first=first))
        world.tick(0.0)
        world.step(StoreLost("refused"))
        world.step(SupervisorSaid(Stop(3.0, "test", 1.0)))
        assert world.exited is first
        world.tick(3.1)
        assert world.exited


def test_the_percentile_follows_its_kind_down_and_up():
    pace = KindPace()
    pace.observe(1, 0.5, 0.5)
    for _ in range(300):
        pace.observe(10, 0.01, 0.0012)
    assert pace.p95_s < 0.003
    for _ in range(30):
        pace.observe(1, 0.2, 0.2)
    assert pace.p95_s > 0.05


def test_one_long_job_does_not_make_its_queue_long():
    pacing = Pacing()
    for _ in range(50):
        pacing.observe("q", [["k", 10, 0.01, 0.001]])
    before = pacing.ahead("q", 2, 0)
    pacing.observe("q", [["k", 1, 60.0, 60.0]])
    assert pacing.ahead("q", 2, 0) > before / 2


def test_a_claim_is_asked_in_one_piece_and_one_at_a_time():
    world = ready_world(5000)
    world.step(Notified(""))
    world.step(Notified(""))
    assert sum(isinstance(question, Claim) for question in world.questions) <= 1


def test_the_sockets_may_wait_only_while_every_lane_has_enough_to_do():
    busy = ready_world(500, known_s=0.005)
    until_s = busy.core.deaf_until_s()
    assert until_s is not None and 0.002 < until_s - busy.now_s < LONGEST_NAP_S + 0.001
    dry = ready_world(2, known_s=0.005)
    until_s = dry.core.deaf_until_s()
    assert until_s is None or until_s - dry.now_s < 0.002


def test_an_answer_of_the_database_that_is_older_than_the_end_of_an_attempt_gives_no_lane_its_job_again():
    """The lane held it when it was asked; a lane that is thought to hold what it has done is given nothing more."""
    world = ready_world(4, workers=1)
    (lane,) = lanes(world)
    world.now_s = max(world.now_s, world.core.audit.due_s)
    world.step(Tick())
    world.questions.clear()
    late = OpenAttemptsRead(world.open_rows())
    assert late.rows
    while world.work(lane):
        world.now_s += 0.001
        world.deliver()
    run(world)
    world.step(late)
    (mine,) = world.core.desk.lanes
    assert mine.jobs == 0 and world.core.desk.books.jobs == 0
    assert world.core.desk.books.closed is None
