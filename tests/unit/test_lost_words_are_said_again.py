"""Messages that nobody else would repeat: greetings, answers of an audit, the word that claiming may go on."""

from __future__ import annotations

from dispatcher_world import FakeLane, World

from awa_pool.dispatcher.audit import AGAIN_S, NO_AUDIT, PATIENT_AUDITS
from awa_pool.dispatcher.core import HELLO_S
from awa_pool.dispatcher.events import FinalizerSaid, Heard, Send, Settings, ToFinalizer
from awa_pool.events import Tick
from awa_pool.messages import (
    AskHolding,
    DispatcherHello,
    FinalizerLoad,
    Holding,
    ResultsCommitted,
    RunJobs,
    WorkerReady,
)
from awa_pool.worker.core import LaneCore
from awa_pool.worker.events import Arrived, Draining, ToDispatcher
from awa_pool.worker.events import Tick as LaneTick
from awa_pool.worker.greeting import GREET_MAX_S, GREET_S


def said(lane: LaneCore, now_s: float) -> list[object]:
    return list(lane.step(LaneTick(), now_s))


def test_a_lane_greets_until_the_dispatcher_has_said_something() -> None:
    lane = LaneCore(1, "i", "sync", 1, ["noop"])
    hello = lane.greet()
    assert said(lane, 10.0) == []
    assert said(lane, 10.0 + GREET_S) == [ToDispatcher(hello)]
    lane.step(Arrived(ResultsCommitted(1)), 11.0)  # that was the finalizer
    assert said(lane, 10.0 + 10 * GREET_S) == [ToDispatcher(hello)]
    lane.step(Arrived(AskHolding(NO_AUDIT)), 12.0)
    assert said(lane, 100.0) == [] and lane.next_due_s() is None
    lane.greet()  # there is a new dispatcher
    said(lane, 200.0)
    assert said(lane, 200.0 + GREET_S) == [ToDispatcher(hello)]


def test_a_lane_that_leaves_says_so_again_with_each_piece_that_comes_too_late() -> None:
    lane = LaneCore(1, "i", "sync", 1, ["noop"])
    lane.step(Draining(), 0.0)
    late = Arrived(RunJobs("default", 2, 3, 7, 9, [0]), [b'[1,"noop",{},1,1,25,null]'])
    for _ in range(2):
        assert ToDispatcher(lane.hello()) in lane.step(late, 1.0)
    assert lane.hello().capacity == 0


def test_greetings_become_rarer() -> None:
    lane = LaneCore(1, "i", "sync", 1, ["noop"])
    lane.greet()
    times = [now for now in range(100) if said(lane, float(now))]
    assert times[0] == GREET_S and times[-1] - times[-2] == GREET_MAX_S


def test_every_greeting_is_answered() -> None:
    world = World(Settings("d1", (("default", None),), workers=1), 0)
    ready = WorkerReady(1, "i", "sync", 1, [], ["noop"])
    for _ in range(2):
        commands = world.core.step(Heard(b"w1-i-sync", ready), world.now_s)
        assert Send(b"w1-i-sync", AskHolding(NO_AUDIT)) in commands


def test_an_answer_that_comes_twice_is_not_taken_for_two_audits() -> None:
    world = World(Settings("d1", (("default", None),), workers=1), 10)
    lane = world.start_worker(0)
    while world.deliver() | world.answer() | world.finalize():
        pass
    handed = world.core.desk.lanes.get(lane.peer)
    assert handed is not None and handed.jobs
    lane.inbox.clear()  # the hand-over was lost
    for number in range(1, 3):
        world.tick(10.0)
        while world.answer():
            pass
        for _ in range(2):
            world.step(Heard(lane.peer, Holding(world.core.audit.number, [])))
        assert (world.core.audit.healed > 0) == (number == 2)


def test_while_claiming_rests_the_finalizer_is_asked_again_whether_it_may_go_on() -> None:
    world = World(Settings("d1", (("default", None),), workers=1), 0)
    world.step(FinalizerSaid(FinalizerLoad("f1", 5000, 0, False)))
    asked = world.core.step(Tick(), world.now_s + HELLO_S)
    assert ToFinalizer(DispatcherHello("d1")) in asked
    world.step(FinalizerSaid(FinalizerLoad("f1", 0, 0, True)))
    assert world.core.claiming.accepting
    asked = world.core.step(Tick(), world.now_s + 10 * HELLO_S)
    assert not any(isinstance(command, ToFinalizer) for command in asked)


def test_what_a_silent_worker_runs_is_not_given_back_by_a_new_dispatcher() -> None:
    world = World(Settings("d1", (("default", None),), workers=1), 1)
    lane = world.start_worker(0)
    while world.deliver() | world.answer() | world.finalize():
        pass
    while not lane.running:
        assert world.work(lane)  # a long job: nothing is read, nothing is said
    world.restart_dispatcher()
    world.to_dispatcher.clear()
    for _ in range(6):
        world.tick(10.0)
        while world.answer() | world.finalize():
            pass
    assert not world.available and world.core.audit.healed == 0
    world.say_ready(lane)
    world.settle()
    assert list(world.ended.values()) == [1]


def test_what_a_stopped_worker_holds_waits_for_it_a_while_after_a_restart_of_the_dispatcher() -> None:
    world = World(Settings("d1", (("default", None),), workers=2, audit_s=1.0), 2)
    lanes = [world.start_worker(number) for number in (1, 2)]
    while world.deliver() | world.answer() | world.finalize():
        pass
    assert all(lane.inbox or lane.waiting for lane in lanes)
    stopped = lanes[1]
    world.restart_dispatcher()
    world.to_dispatcher = type(world.to_dispatcher)(
        heard for heard in world.to_dispatcher if getattr(heard, "peer", None) != stopped.peer
    )
    for _ in range(4):
        world.tick(1.5)
        while world.deliver() | world.answer() | world.finalize():
            pass
    assert world.core.audit.healed == 0  # it may go on: then it runs what it holds
    for _ in range(5):
        world.tick(2.0)
        while world.deliver() | world.answer() | world.finalize():
            pass
    assert world.core.audit.healed > 0  # it stays away
    world.say_ready(stopped)
    world.settle()
    assert all(count == 1 for count in world.ended.values()) and len(world.ended) == 2


def asked_again(world: World, lane: FakeLane) -> int:
    """Let an audit begin and its times go by; return how often the lane was asked in all."""
    world.tick(10.0)
    for pause_s in (*AGAIN_S, 1.0):
        while world.answer():
            pass
        world.tick(pause_s)
    asked = lane.inbox.count(AskHolding(world.core.audit.number))
    lane.inbox.clear()  # lost, or unread
    return asked


def test_a_lane_that_does_not_answer_an_audit_is_asked_again_but_not_all_through_a_long_handler() -> None:
    world = World(Settings("d1", (("default", None),), workers=1), 10)
    lane = world.start_worker(0)
    while world.deliver() | world.answer() | world.finalize():
        pass
    lane.inbox.clear()
    for _ in range(PATIENT_AUDITS):
        assert asked_again(world, lane) == 1 + len(AGAIN_S)
    assert asked_again(world, lane) == 1
    world.step(Heard(lane.peer, Holding(world.core.audit.number, [])))
    assert world.core.audit.healed == 0
    assert asked_again(world, lane) == 1 + len(AGAIN_S)
    world.step(Heard(lane.peer, Holding(world.core.audit.number, [])))
    assert world.core.audit.healed > 0  # what it was handed never came
