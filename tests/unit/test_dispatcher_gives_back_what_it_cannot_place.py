"""Jobs that no lane here has room for go back to the database, and are not claimed again at once."""

from __future__ import annotations

from dispatcher_world import FakeLane, World

from awa_pool.dispatcher.events import Heard, Notified, Settings
from awa_pool.dispatcher.unplaced import FIRST_PAUSE_S, LONGEST_PAUSE_S, LOOK_S, STALE_STOCK_S
from awa_pool.messages import EndAttempts, WorkerReady

WAITING = 7
ASYNC = b"w0-i9-async"


def settle(world: World) -> None:
    """Let messages and answers come, but no job run."""
    while world.deliver() | world.answer() | world.finalize():
        pass


def stuck_world() -> tuple[World, FakeLane]:
    """A plain lane in a long job, an idle async lane, and plain jobs that wait."""
    world = World(Settings("d1", (("default", None),), workers=1), 1)
    lane = world.start_worker(0)
    settle(world)
    while lane.running is None:
        world.work(lane)
    world.lanes[ASYNC] = FakeLane(ASYNC, 0, "i9")
    world.step(Heard(ASYNC, WorkerReady(0, "i9", "async", 100, [], ["other"])))
    settle(world)
    world.available.extend(range(2, 2 + WAITING))
    world.step(Notified(""))
    settle(world)
    return world, lane


def pass_time(world: World, seconds: float, step_s: float = 0.02) -> tuple[float, int]:
    """Let time pass, the plain lane in its job; returns for how long nobody else could have the jobs, and how many receipts came."""
    held_s, receipts = 0.0, len(world.rows)
    until_s = world.now_s + seconds
    while world.now_s < until_s:
        held_s += step_s if len(world.available) < WAITING else 0.0
        world.tick(step_s)
        settle(world)
    return held_s, len(world.rows) - receipts


def test_they_go_back_after_a_second_and_are_looked_at_ever_more_seldom() -> None:
    world, _ = stuck_world()
    assert len(world.available) == 0, "they were claimed for the idle lane"
    held_s, _ = pass_time(world, STALE_STOCK_S + 2 * LOOK_S)
    assert STALE_STOCK_S <= held_s <= STALE_STOCK_S + 2 * LOOK_S
    held_s, claims = pass_time(world, 60.0)
    assert 60.0 / (LONGEST_PAUSE_S + LOOK_S) - 1 <= claims <= 60.0 / LONGEST_PAUSE_S + 4
    assert held_s <= claims * 2 * LOOK_S


def test_what_is_new_is_looked_at_soon_and_what_went_back_from_here_is_not_new() -> None:
    world, _ = stuck_world()
    pass_time(world, 30.0)
    returned = next(iter(reversed(world.rows)))
    while len(world.available) < WAITING:
        pass_time(world, 0.02)
    world.step(Notified(f"returned {returned}"))
    _, claims = pass_time(world, FIRST_PAUSE_S + LOOK_S)
    assert claims == 0
    world.available.append(99)
    world.kinds[99] = "other"
    world.step(Notified(""))
    settle(world)
    assert 99 not in world.available, "an idle lane waits for it"


def test_a_lane_that_has_room_again_ends_the_rest_at_once() -> None:
    world, lane = stuck_world()
    pass_time(world, 30.0)
    while len(world.available) < WAITING:
        pass_time(world, 0.02)
    world.work(lane)
    settle(world)
    assert len(world.available) < WAITING


def test_while_other_jobs_flow_they_go_back_once_a_second_and_nothing_rests() -> None:
    world, _ = stuck_world()
    number, given_back = 100, 0
    for step in range(500):
        if step % 5 == 0:
            number += 1
            world.available.append(number)
            world.kinds[number] = "other"
            world.step(Notified(""))
        world.tick(0.02)
        given_back += sum(isinstance(message, EndAttempts) for message in world.to_finalizer)
        settle(world)
        assert number not in world.available or step % 5 < 2, "an idle lane waits for it"
    assert 5 <= given_back <= 12
