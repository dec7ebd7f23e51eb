"""Whatever happens in whatever order, the dispatcher loses no attempt and hands none out twice."""

from __future__ import annotations

from random import Random

from dispatcher_world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from awa_pool.dispatcher.events import Hearing, Settings
from awa_pool.events import SupervisorSaid
from awa_pool.messages import ActorReplaced, Retire, Stop

ACTIONS = (
    ["deliver"] * 5
    + ["answer"] * 3
    + ["work"] * 8
    + ["finalize"] * 4
    + ["tick", "tick", "long", "lose_answer", "lose_send", "lose_end", "lose_result", "lose_said"]
    + ["give_way"] * 4
    + ["go_on", "heard", "late_audit", "late_audit"]
    + ["kill", "resend", "restart", "ready", "replaced", "minute", "retire"]
)


def act(world: World, action: str, number: int) -> None:
    """Let one thing happen."""
    lanes = list(world.lanes.values())
    lane = lanes[number % len(lanes)] if lanes else world.start_worker(number % 3)
    match action:
        case "deliver":
            world.deliver()
        case "answer":
            world.answer()
        case "late_audit":
            world.tick(11.0)
            world.read_early()
            for _ in range(number % 16):
                _ = world.work(lane), world.finalize(), world.deliver()
        case "lose_answer":
            world.answer(lose=True)
        case "work":
            world.work(lane)
        case "give_way":
            world.give_way(lane)
        case "go_on":
            world.go_on(lane, number)
        case "heard":
            world.step(Hearing(number % 2 == 0))
        case "lose_result":
            world.work(lane, lose_result=True)
        case "finalize":
            world.finalize()
        case "lose_end":
            world.finalize(lose_message=True)
        case "lose_send":
            if lane.inbox:
                lane.inbox.popleft()
        case "lose_said":
            if world.to_dispatcher and not isinstance(world.to_dispatcher[0], SupervisorSaid):
                world.to_dispatcher.popleft()  # the control pipe loses nothing
        case "tick":
            world.tick(0.001 * (1 + number % 40))
        case "long":
            world.tick(0.3)
        case "minute":
            world.tick(11.0)
        case "kill":
            world.kill(lane)
            world.start_worker(lane.worker)
        case "resend":
            world.resend(lane)
        case "restart":
            world.restart_dispatcher()
        case "ready":
            world.say_ready(lane)
        case "replaced":
            world.step(SupervisorSaid(ActorReplaced("finalizer")))
        case "retire":
            world.step(SupervisorSaid(Retire(lane.worker, lane.incarnation)))
            world.start_worker(lane.worker)


def long_script(seed: int) -> list[tuple[str, int]]:
    """Make a long script, as lists that Hypothesis makes are mostly too short for what takes many steps to come about."""
    random = Random(seed)
    return [(random.choice(ACTIONS), random.randrange(200)) for _ in range(150)]


SCRIPT = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 200)), max_size=150) | st.integers(
    0, 2**32
).map(long_script)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    SCRIPT, st.integers(1, 150), st.integers(1, 3), st.sampled_from([8, 64, 4096]), st.sampled_from([None, 3])
)
def test_every_job_ends_once_whatever_is_lost_dies_or_restarts(script, jobs, workers, window, most):
    world = World(Settings("d1", (("default", most),), workers=workers, window_jobs=window), jobs)
    for worker in range(workers):
        world.start_worker(worker)
    for action, number in script:
        act(world, action, number)
    if not world.lanes:
        world.start_worker(0)
    for lane in world.lanes.values():
        world.say_ready(lane)
    world.settle()
    assert sorted(world.ended) == list(range(1, jobs + 1)), world.core.figures(world.now_s)
    assert set(world.ended.values()) == {1}
    assert world.core.desk.books.jobs == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPT, st.integers(1, 100), st.sampled_from([0.0, 0.2, 5.0]))
def test_a_stop_at_any_moment_ends_or_returns_every_attempt(script, jobs, drain_s):
    world = World(Settings("d1", (("default", None),), workers=2), jobs)
    for worker in range(2):
        world.start_worker(worker)
    for action, number in script:
        act(world, action, number)
    for lane in world.lanes.values():
        world.say_ready(lane)
    world.settle(seconds=30.0, step_s=2.0)  # heals what was lost
    world.available.extend(range(jobs + 1, jobs + 40))
    for _ in range(20):
        world.deliver(), world.answer()
        for lane in world.lanes.values():
            world.work(lane)
    world.step(SupervisorSaid(Stop(drain_s, "test")))
    claims = len(world.claims)
    world.settle(seconds=drain_s + 10.0)
    assert world.exited
    assert len(world.claims) == claims
    assert not world.open_rows() or world.core.desk.books.jobs
    assert (
        len(world.ended) + len(world.available) + sum(r.open_mask.bit_count() for r in world.open_rows())
        == jobs + 39
    )
