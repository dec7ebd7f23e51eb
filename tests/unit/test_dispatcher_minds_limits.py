"""How the dispatcher carries cancels to whoever runs the attempt, and settles what a worker was killed for."""

from __future__ import annotations

from typing import Any

from dispatcher_world import FakeLane, World

from awa_pool.dispatcher.events import Notified, Settings
from awa_pool.dispatcher.notes import ATTEMPT_CLOSED, JOB_CANCELLED
from awa_pool.events import SupervisorSaid
from awa_pool.messages import AttemptCancelled, CancelJob, EndAttempts, WorkerGone

QUEUES = (("default", None),)


def world_with(jobs: int, known_s: float | None = None) -> World:
    """A world whose one lane runs a job; behind it wait others only where their kind is known to be short."""
    world = World(Settings("d1", QUEUES, workers=1), jobs)
    for _ in range(0 if known_s is None else 40):
        world.core.desk.pacing.observe("default", [[world.kind, 10, 10 * (known_s or 0), known_s]])
    world.start_worker(0)
    settle(world)
    for lane in world.lanes.values():
        start(world, lane)
    return world


def start(world: World, lane: FakeLane) -> None:
    for _ in range(20):
        if lane.running is not None:
            return
        world.work(lane)
    raise AssertionError("the lane has nothing to run")


def settle(world: World) -> None:
    moved = True
    while moved:
        moved = world.deliver() | world.answer() | world.finalize()


def running(world: World) -> tuple[FakeLane, int, int, int]:
    (lane,) = world.lanes.values()
    assert lane.running is not None
    receipt_id, index = lane.running
    return lane, receipt_id, index, world.rows[receipt_id].job_ids[index]


def cancel_news(world: World) -> list[AttemptCancelled]:
    return [said for said in world.supervisor if isinstance(said, AttemptCancelled)]


def test_a_cancel_is_told_to_the_worker_and_to_whoever_ends_it():
    world = world_with(1)
    lane, receipt_id, index, job_id = running(world)
    world.step(Notified(f"cancel {job_id} 1 {receipt_id}"))
    assert CancelJob(job_id, 1) in lane.inbox
    news = AttemptCancelled(lane.worker, lane.incarnation, receipt_id, -receipt_id, index)
    assert cancel_news(world) == [news]


def test_a_cancel_that_overtakes_the_answer_to_its_claim_is_kept_for_it():
    world = World(Settings("d1", QUEUES, workers=1), 1)
    world.start_worker(0)
    for _ in range(50):
        world.deliver()
        if world.claims and world.questions:
            break
        world.answer()
    world.step(Notified("cancel 1 1 1"))
    world.closed[1] = 1
    settle(world)
    assert [receipt.receipt_id for receipt in world.core.desk.books] == []
    (lane,) = world.lanes.values()
    assert lane.running is None and not lane.waiting


def test_what_a_page_shows_running_and_the_database_has_closed_is_cancelled_without_any_note():
    world = world_with(1)
    lane, receipt_id, index, job_id = running(world)
    world.closed[receipt_id] |= 1 << index
    world.restart_dispatcher()  # nobody has it on his books any more
    settle(world)
    assert cancel_news(world) == []  # that audit began as the attempt did, for all the clock says
    for _ in range(3):
        world.tick(11.0)
        settle(world)
    assert CancelJob(job_id, 1) in lane.inbox
    news = AttemptCancelled(lane.worker, lane.incarnation, receipt_id, -receipt_id, index)
    assert news in cancel_news(world)
    assert {note.event for note in world.notes} & {JOB_CANCELLED, ATTEMPT_CLOSED} == {ATTEMPT_CLOSED}


def test_what_runs_and_is_open_in_the_database_is_left_alone():
    world = world_with(1)
    for _ in range(5):
        world.tick(11.0)
        settle(world)
    assert cancel_news(world) == []


def ends(world: World) -> dict[tuple[int, int], tuple[str, Any]]:
    """Return what the finalizer was asked to end: (receipt, index) -> (outcome, error)."""
    found: dict[tuple[int, int], tuple[str, Any]] = {}
    for message in world.to_finalizer:
        if isinstance(message, EndAttempts):
            found |= {(item[1], item[3]): (item[6], item[8]) for item in message.items}
    return found


def gone(world: World, lane: FakeLane, started: list[list[int]], charged: list[Any]) -> None:
    cause = "killed by signal 9 (SIGKILL), job 1 (short) ran past its deadline and a grace of 1 s"
    del world.lanes[lane.peer]
    world.step(SupervisorSaid(WorkerGone(lane.worker, lane.incarnation, cause, started, "handler", charged)))
    world.tick(1.0)


def test_only_the_attempt_for_which_a_worker_was_killed_is_charged_and_says_why():
    world = world_with(2, known_s=1e-5)
    lane, receipt_id, index, _ = running(world)
    mask = world.core.desk.books.receipts[receipt_id].out
    assert mask.bit_count() == 2
    other = (mask & ~(1 << index)).bit_length() - 1
    gone(world, lane, [[receipt_id, mask, 0]], [[receipt_id, 1 << index, "deadline_exceeded"]])
    found = ends(world)
    outcome, error = found[receipt_id, index]
    assert (outcome, error["type"], error["reason"]) == ("lost", "DeadlineExceeded", "deadline_exceeded")
    assert error["error"].startswith("killed by signal 9 (SIGKILL), job 1 (short) ran past")
    assert found[receipt_id, other] == ("return", None)
    assert world.core.departures.lost == 0


def test_one_that_completed_at_the_last_moment_is_completed():
    world = world_with(1)
    lane, receipt_id, index, _ = running(world)
    bit = 1 << index
    gone(world, lane, [[receipt_id, bit, bit]], [[receipt_id, bit, "deadline_exceeded"]])
    assert ends(world) == {(receipt_id, index): ("completed", None)}


def test_charges_that_are_malformed_charge_nobody_and_harm_nothing():
    world = world_with(1)
    lane, receipt_id, index, _ = running(world)
    gone(world, lane, [[receipt_id, 1 << index, 0]], [["x"], [receipt_id, -1, "r"], 5])
    assert ends(world)[receipt_id, index][0] == "lost"
