"""Attempts that wait for callbacks: with their lane, and no part of what it has to do."""

from __future__ import annotations

from typing import Any, cast

import pytest
from dispatcher_world import FakeLane, World

from awa_pool.dispatcher.database import Database
from awa_pool.dispatcher.events import Heard, Hearing, Notified, PageRead, ReadPage, Settings
from awa_pool.events import SupervisorSaid
from awa_pool.messages import (
    AttemptCancelled,
    AttemptsWait,
    CallbackNews,
    CancelJob,
    DispatcherHello,
    EndAttempts,
    Holding,
    Recall,
    RunJobs,
    Stop,
    WorkerGone,
)
from awa_pool.store.listener import ListenerBack, ListenerLost
from awa_pool.store.sqlstates import StoreUnavailable
from awa_pool.store.threads import StoreThread

ID = "6f1d3c1a-9b1e-4c9f-8a53-0d4f5b8f7a11"


def made(jobs: int, workers: int = 1, most: int | None = None, **settings: object) -> World:
    world = World(Settings("d1", (("default", most),), workers=workers, **settings), jobs)  # type: ignore[arg-type]
    for worker in range(workers):
        world.start_worker(worker)
    run(world)
    return world


def run(world: World) -> None:
    """Deliver and answer until nothing is on its way."""
    while world.deliver() | world.answer() | world.finalize():
        pass


def started(world: World, lane: FakeLane) -> tuple[int, int]:
    """Let the lane start its next attempt."""
    while lane.running is None:
        assert world.work(lane)
        run(world)
    return lane.running


def let_wait(world: World, lane: FakeLane) -> tuple[int, int]:
    attempt = started(world, lane)
    world.give_way(lane)
    run(world)
    return attempt


def test_a_lane_whose_handlers_wait_is_handed_more() -> None:
    world = made(20)
    (lane,) = world.lanes.values()
    for number in range(1, 11):
        let_wait(world, lane)
        assert world.core.desk.books.waiting == number
        assert world.core.figures(world.now_s)["waiting_jobs"] == number
    (held,) = world.core.desk.lanes
    assert held.jobs <= 2 and len(held.waiting) == 10
    world.settle()
    assert len(world.ended) == 20 and not world.core.desk.books.waiting


def test_what_waits_counts_neither_for_the_limit_of_its_queue_nor_for_the_window() -> None:
    world = made(50, most=2, window_jobs=4)
    (lane,) = world.lanes.values()
    for _ in range(20):
        let_wait(world, lane)
    assert world.core.desk.books.in_flight["default"] <= 2
    assert world.core.desk.books.jobs - 20 <= 4
    assert world.core.figures(world.now_s)["in_flight"]["default"] <= 2


def test_the_bodies_of_what_waits_are_let_go() -> None:
    world = made(8, window_bytes=200)  # of about 33 bytes each
    (lane,) = world.lanes.values()
    for _ in range(8):
        let_wait(world, lane)
    assert world.core.desk.books.bytes == 0 and world.core.desk.books.jobs == 8
    world.settle()
    assert len(world.ended) == 8


def test_an_attempt_that_goes_on_counts_again_and_nothing_new_starts_beside_it() -> None:
    world = made(3)
    (lane,) = world.lanes.values()
    let_wait(world, lane)
    started(world, lane)
    (held,) = world.core.desk.lanes
    before = held.jobs
    attempt = lane.away.pop()
    world.step(Heard(lane.peer, AttemptsWait([[attempt[0], 1 << attempt[1]]], False)))
    assert held.jobs == before + 1 and not held.waiting and not world.core.desk.books.waiting
    assert held.idle_slots == 0
    lane.away.append(attempt)
    world.settle()
    assert len(world.ended) == 3


def test_a_cancel_finds_the_lane_of_what_waits() -> None:
    world = made(1)
    (lane,) = world.lanes.values()
    receipt_id, index = let_wait(world, lane)
    job_id = world.rows[receipt_id].job_ids[index]
    world.step(Notified(f"cancel {job_id} 1 {receipt_id}"))
    assert CancelJob(job_id, 1) in lane.inbox
    assert any(isinstance(message, AttemptCancelled) for message in world.supervisor)


def ends_of_death(
    world: World, lane: FakeLane, started: list[Any], waiting: list[Any], charged: list[Any]
) -> dict[tuple[int, int], str]:
    """Let a worker die; returns how each of its attempts is ended."""
    del world.lanes[lane.peer]
    gone = WorkerGone(lane.worker, lane.incarnation, "killed", started, "handler", charged, waiting)
    world.step(SupervisorSaid(gone))
    world.tick(0.3)
    messages = [m for m in world.to_finalizer if isinstance(m, EndAttempts)]
    return {(item[1], item[3]): item[6] for message in messages for item in message.items}


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "the_page_has_forgotten_its_start"])
def test_what_waited_when_its_worker_died_goes_back_and_what_ran_is_lost(forgotten: bool) -> None:
    world = made(3)
    (lane,) = world.lanes.values()
    first, second = let_wait(world, lane), let_wait(world, lane)
    ran = started(world, lane)
    run(world)
    marks = [] if forgotten else [[receipt_id, 1 << index, 0] for receipt_id, index in (first, second)]
    marks.append([ran[0], 1 << ran[1], 0])
    waiting = [[receipt_id, 1 << index] for receipt_id, index in (first, second)]
    ends = ends_of_death(world, lane, marks, waiting, [])
    assert ends == {first: "return", second: "return", ran: "lost"}


def test_what_had_waited_and_went_on_when_its_worker_died_is_lost() -> None:
    world = made(2)
    (lane,) = world.lanes.values()
    receipt_id, index = let_wait(world, lane)  # and the word that it goes on is lost
    ends = ends_of_death(world, lane, [[receipt_id, 1 << index, 0]], [], [])
    assert ends.pop((receipt_id, index)) == "lost" and set(ends.values()) <= {"return"}


def test_what_its_worker_was_killed_for_is_charged_though_it_waits() -> None:
    world = made(2)
    (lane,) = world.lanes.values()
    receipt_id, index = let_wait(world, lane)
    row = [receipt_id, 1 << index]
    ends = ends_of_death(world, lane, [[*row, 0]], [row], [[*row, "deadline_exceeded"]])
    assert ends[receipt_id, index] == "lost"


def test_an_account_of_waits_that_is_no_such_thing_spares_nothing() -> None:
    world = made(1)
    (lane,) = world.lanes.values()
    receipt_id, index = let_wait(world, lane)
    ends = ends_of_death(world, lane, [[receipt_id, 1 << index, 0]], [[receipt_id, "x"]], [])
    assert ends == {(receipt_id, index): "lost"}


def test_a_new_dispatcher_learns_from_the_lanes_what_waits() -> None:
    world = made(10)
    (lane,) = world.lanes.values()
    for _ in range(4):
        let_wait(world, lane)
    world.restart_dispatcher()
    # The lane answers the greeting; it may do so before the books are read from the database, or after.
    world.deliver()
    world.step(Heard(lane.peer, Holding(0, lane.holds(), lane.waits())))
    run(world)
    assert world.core.desk.books.waiting == 4
    (held,) = world.core.desk.lanes
    assert held.jobs <= 6 and held.pieces
    world.settle()
    assert len(world.ended) == 10


def test_a_lost_word_on_a_wait_heals_with_the_audit() -> None:
    world = made(2)
    (lane,) = world.lanes.values()
    started(world, lane)
    world.give_way(lane)
    world.to_dispatcher.clear()
    assert world.core.desk.books.waiting == 0
    world.tick(11.0)
    while world.core.desk.books.waiting == 0:
        assert world.deliver() | world.answer() | world.work(lane)
    attempt = lane.away.pop()
    lane.running = attempt
    while world.core.desk.books.waiting:  # that it goes on is lost, too
        world.tick(11.0)
        run(world)
        world.work(lane)
    world.settle()
    assert len(world.ended) == 2


def test_a_wait_whose_attempt_was_ended_from_outside_is_told_by_the_finalizer_and_by_the_audit_only_later() -> (
    None
):
    """An answer that completes the job is no cancel: the finalizer knows what it was."""
    world = made(1)
    (lane,) = world.lanes.values()
    receipt_id, index = let_wait(world, lane)
    cancel = CancelJob(world.rows[receipt_id].job_ids[index], 1)
    world.tick(1.0)
    world.closed[receipt_id] |= 1 << index
    for told in (False, True):
        world.tick(11.0)
        run(world)
        assert (cancel in lane.inbox) is told
    assert world.core.desk.books.waiting == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_wait_that_its_lane_knows_nothing_of_twice_is_lost(times: int) -> None:
    world = made(1)
    (lane,) = world.lanes.values()
    let_wait(world, lane)
    world.tick(11.0)
    lane.away.clear()
    run(world)
    for number in range(1, times + 1):
        world.step(Heard(lane.peer, Holding(world.core.audit.number, [], [])))
        world.tick(11.0)
        assert world.core.audit.number > number
        run(world)
    ends = [item[6] for m in world.to_finalizer if isinstance(m, EndAttempts) for item in m.items]
    assert ends == [] or ends == ["lost"]
    assert (world.core.audit.healed == 1) is (times == 2)


def test_a_page_that_shows_only_waits_grants_no_recall() -> None:
    """An unanswered recall is granted where the page shows a long job; what waits is none: the lane will read its inbox."""
    world = made(60)
    world.core.desk.pacing.observe("default", [[world.kind, 10, 1e-4, 1e-5]])
    (lane,) = world.lanes.values()
    let_wait(world, lane)
    while not any(isinstance(message, RunJobs) for message in lane.inbox):
        world.tick(0.01)
        run(world)
    while not any(isinstance(message, Recall) for message in lane.inbox):
        world.tick(0.5)
        while world.deliver() | world.finalize():
            pass
    world.tick(0.06)
    assert any(isinstance(question, ReadPage) for question in world.questions)
    sent = len(lane.inbox)
    world.step(PageRead(lane.peer, [], {lane.away[0]: 1000.0}))
    assert len(lane.inbox) == sent and not world.core.recalls.granted
    world.step(PageRead(lane.peer, [], {lane.away[0]: 1000.0, (99, 1): 1.0}))
    assert world.core.recalls.granted


def test_a_pool_with_handlers_that_wait_is_not_idle_and_returns_them_when_its_time_is_over() -> None:
    world = made(1, drain=True)
    (lane,) = world.lanes.values()
    let_wait(world, lane)
    for _ in range(5):
        world.tick(2.0)
        run(world)
    assert [type(message).__name__ for message in world.supervisor] == []
    world.step(SupervisorSaid(Stop(5.0, "test")))
    world.tick(4.0)
    assert not world.exited and world.core.desk.books.jobs == 1
    world.tick(1.5)
    (message,) = [m for m in world.to_finalizer if isinstance(m, EndAttempts)]
    assert [item[6] for item in message.items] == ["return"]
    run(world)
    assert world.exited


@pytest.mark.parametrize(
    "message", [AttemptsWait([[1]], True), AttemptsWait(["x"], False), Holding(0, [], [[1, -1]])]
)
def test_what_is_no_piece_is_noted_and_changes_nothing(message: AttemptsWait | Holding) -> None:
    world = made(1)
    (lane,) = world.lanes.values()
    started(world, lane)
    world.step(Heard(lane.peer, message))
    assert [note.event for note in world.notes if note.event == "message.malformed"] == ["message.malformed"]
    assert not world.core.desk.books.waiting


@pytest.mark.parametrize("payload", [f"callback {ID} resumed", f"callback {ID} expired"])
def test_news_of_a_callback_are_passed_on(payload: str) -> None:
    world = made(0)
    world.step(Notified(payload))
    assert world.news == [CallbackNews(ID, payload.split()[2])]


@pytest.mark.parametrize(
    "payload",
    [
        "callback",
        f"callback {ID}",
        "callback x resumed",
        f"callback {ID} read",
        f"callback {ID} resumed 1",
        " ",
    ],
)
def test_what_is_no_news_is_passed_over(payload: str) -> None:
    world = made(0)
    world.step(Notified(payload))
    assert not world.news


def test_the_finalizer_is_told_whether_news_come_at_each_change_and_now_and_then() -> None:
    world = made(0)

    def said() -> list[bool]:
        hellos = [m.hears for m in world.to_finalizer if isinstance(m, DispatcherHello)]
        world.to_finalizer.clear()
        return hellos

    run(world)
    said()
    for event, hears in [(Hearing(True), [True]), (Hearing(True), []), (Hearing(False), [False])]:
        world.step(event)
        assert said() == hears
    world.step(Hearing(True))
    run(world)  # it is answered
    said()
    world.tick(11.0)
    assert said() == [True]


@pytest.mark.parametrize(
    ("heard", "works"),
    [
        (ListenerBack(False), True),
        (ListenerBack(True), False),
        (ListenerLost(StoreUnavailable("gone")), False),
    ],
)
def test_a_listener_behind_a_pooler_counts_as_none(heard: object, works: bool) -> None:
    assert Database(cast(StoreThread, None), "r").event(heard) == Hearing(works)
