"""Ends with follow-ups: how they are gathered into trips, what they wait for, and what comes of those refused (B013)."""

from __future__ import annotations

import logging

import pytest
from finalizer_world import World

from awa_pool.events import Trouble
from awa_pool.finalizer.events import Settings
from awa_pool.finalizer.staged import CROWDED_S, LANES, LINGER_S, MOST_ENDS
from awa_pool.messages import FinalizerLoad
from awa_pool.metrics import COUNTERS


def stage(world: World, receipts: range, *, each: int = 1, more: bool = True, size: int = 10) -> None:
    """A worker reports attempts that staged, `each` of every receipt."""
    worker = world.worker("w")
    for receipt_id in receipts:
        world.end(worker, receipt_id, 0, staged={i: b"[%s]" % (b"x" * size) for i in range(each)}, more=more)


def write(world: World) -> None:
    """Let the database take all plain completions that wait."""
    world.tick(0.3)
    while world.answer():
        world.tick(0.3)


def busy_world() -> World:
    """A world whose finalizer has just heard something, so that what comes next may gather."""
    world = World()
    stage(world, range(1000, 1001))
    world.land()
    return world


def test_an_end_that_comes_after_a_silence_goes_at_once_on_the_first_lane() -> None:
    world = World()
    stage(world, range(1, 2))
    assert list(world.trips) == [0]


def test_a_few_gather_and_share_a_trip() -> None:
    world = busy_world()
    stage(world, range(1, 6))
    assert not world.trips
    world.tick(LINGER_S)
    assert [len(trip.ends) for trip in world.trips.values()] == [5]


def test_a_full_trip_goes_at_once_and_only_full_ones_open_further_lanes() -> None:
    world = busy_world()
    stage(world, range(1, 2 * MOST_ENDS + 4))
    assert [len(trip.ends) for trip in world.trips.values()] == [MOST_ENDS, MOST_ENDS]
    world.tick(LINGER_S)
    assert len(world.trips) == 2  # the three that are left wait for one of them to land
    world.land()
    world.tick(CROWDED_S)
    assert sorted(len(trip.ends) for trip in world.trips.values()) == [3, MOST_ENDS]


def test_no_more_trips_than_lanes_are_under_way() -> None:
    world = busy_world()
    stage(world, range(1, MOST_ENDS * (LANES + 2)))
    assert len(world.trips) == LANES


def test_ends_of_a_receipt_wait_while_others_of_it_are_under_way() -> None:
    world = World()
    stage(world, range(1, 2))
    worker = world.worker("w")
    world.end(worker, 1, 0, staged={5: b"[2]"}, more=True)
    world.end(worker, 2, 0, staged={5: b"[3]"}, more=True)
    world.tick(CROWDED_S)
    flying = [values["receipt_id"] for trip in world.trips.values() for values, _ in trip.ends]
    assert sorted(flying) == [1, 2]  # the world itself refuses a second trip for a receipt
    world.land()
    world.tick(CROWDED_S)
    assert world.land() and world.land()
    assert set(world.follow_ups) == {(1, 0), (1, 5), (2, 5)}


def test_those_whose_keys_are_held_take_half_of_the_lanes_and_the_others_go_on() -> None:
    world = busy_world()
    world.held = set(range(1, 41))
    stage(world, range(1, 41))
    for _ in range(12):
        world.tick(0.05)
        while any(not trip.patient for trip in world.trips.values()):
            world.land()
    assert sum(trip.patient for trip in world.trips.values()) == LANES // 2
    stage(world, range(100, 120))
    while plain := [lane for lane, trip in world.trips.items() if not trip.patient]:
        world.land(lane=plain[0])
        world.tick(CROWDED_S)
    assert {receipt_id for receipt_id, _ in world.follow_ups} >= set(range(100, 120))
    world.held.clear()
    world.settle()
    assert {receipt_id for receipt_id, _ in world.follow_ups} >= set(range(1, 41))
    assert world.core.desk.held_jobs == 0


def test_results_behind_one_that_waits_for_a_key_are_acknowledged_and_named_again_when_they_come_again() -> (
    None
):
    world = World()
    world.held = {1}
    stage(world, range(1, 2), more=False)
    world.land()
    worker = world.worker("w")
    for receipt_id in range(2, 200):
        world.end(worker, receipt_id, 1)
    write(world)
    assert set(worker.kept) == {1}
    lost = worker.seq + 1
    world.end(worker, 500, 1)
    kept = dict(worker.kept)
    write(world)
    assert set(worker.kept) == {1}
    worker.kept = kept  # the word of it has not arrived
    world.resend(worker)
    assert lost not in worker.kept and set(worker.kept) == {1}
    world.held.clear()
    world.settle()
    assert not worker.kept


def test_a_deadlock_is_tried_three_times_more_with_the_same_follow_ups() -> None:
    world = World()
    stage(world, range(1, 2))
    sent = world.trips[0].ends
    for _ in range(3):
        world.land(Trouble.CONFLICT)
        world.tick(0.06)
        assert world.trips[0].ends == sent
    world.land()
    assert world.follow_ups == {(1, 0): sent[0][1]}


def test_waiting_for_locks_uses_up_none_of_the_tries() -> None:
    world = World()
    world.held = {1}
    stage(world, range(1, 2))
    for _ in range(8):
        world.land()
        world.tick(2.0)
    world.held.clear()
    world.land(Trouble.CONFLICT)
    world.tick(0.1)
    world.land()
    assert world.outcomes[1, 0] == "completed"


def test_a_commit_whose_answer_was_lost_replays_as_stale_and_is_acknowledged() -> None:
    world = World()
    stage(world, range(1, 4))
    world.land(Trouble.AWAY, committed=True)
    before = dict(world.follow_ups)
    world.settle()
    assert {key: world.follow_ups[key] for key in before} == before
    assert not world.worker("w").kept
    assert world.core.figures()["stale"] == len(before)


@pytest.mark.parametrize(("outcome", "then"), [("completed", "retry"), ("retry", "retry"), ("fail", "fail")])
def test_an_end_whose_follow_ups_are_refused_is_written_without_them(outcome: str, then: str) -> None:
    world = World()
    world.refused = {1}
    others = [] if outcome == "completed" else [world.other(1, 0, outcome)]
    world.end(world.worker("w"), 1, 0, others, staged={0: b"[1]"})
    world.settle()
    assert world.outcomes == {(1, 0): then}
    assert not world.follow_ups and not world.worker("w").kept


def test_what_was_put_in_and_what_was_refused_is_counted_for_the_metrics() -> None:
    world = World()
    world.refused = {2}
    stage(world, range(1, 4))
    world.settle()
    counted = {c.figure: c.name for c in COUNTERS if c.role == "finalizer"}
    figures = world.core.figures()
    assert {counted[name]: figures[name] for name in ("follow_ups", "follow_ups_skipped", "staged_refused")} == {
        "awa_pool_follow_ups": 2, "awa_pool_follow_ups_skipped": 0, "awa_pool_follow_ups_refused": 1,
    }  # fmt: skip


def test_skipped_follow_ups_are_counted_and_named_by_kind_and_holder_and_nothing_else() -> None:
    world = World()
    world.skipped = {1: [("send_mail", 71), ("pack", 72)], 3: [("send_mail", 73)]}
    stage(world, range(1, 4))
    world.settle()
    assert world.core.figures()["follow_ups_skipped"] == 3 and world.core.figures()["follow_ups"] == 1
    assert [(note.level, note.event, note.fields) for note in world.notes] == [
        (logging.DEBUG, "follow_up_skipped", {"job_id": 100, "kind": "send_mail", "holder": 71}),
        (logging.DEBUG, "follow_up_skipped", {"job_id": 100, "kind": "pack", "holder": 72}),
        (logging.DEBUG, "follow_up_skipped", {"job_id": 300, "kind": "send_mail", "holder": 73}),
    ]


def test_a_completion_that_is_said_twice_skips_nothing_though_it_meets_the_keys_of_its_own_follow_ups() -> (
    None
):
    world = World()
    stage(world, range(1, 2))
    world.land(Trouble.AWAY, committed=True)
    world.settle()
    assert world.core.figures()["stale"] == 1 and world.core.figures()["follow_ups_skipped"] == 0
    assert not [note for note in world.notes if note.event == "follow_up_skipped"]


def test_one_that_makes_a_whole_trip_fail_is_found_and_the_others_keep_their_follow_ups() -> None:
    world = busy_world()
    stage(world, range(1, 5))
    world.tick(LINGER_S)
    world.refused = {3}
    world.land(Trouble.REFUSED)
    world.settle()
    assert world.outcomes[3, 0] == "retry"
    assert {receipt_id for receipt_id, _ in world.follow_ups} == {1000, 1, 2, 4}


@pytest.mark.parametrize("limit", ["jobs", "bytes"])
def test_claiming_rests_while_as_much_is_held_as_may_be(limit: str) -> None:
    settings = Settings("f1", window_jobs=32) if limit == "jobs" else Settings("f1", window_bytes=2000)
    world = World(settings)
    world.hello()
    stage(world, range(1, 41), size=10 if limit == "jobs" else 300)
    assert isinstance(world.loads[-1], FinalizerLoad) and not world.loads[-1].accepting
    world.settle()
    assert world.loads[-1].accepting
    assert world.core.desk.held_jobs == 0 and world.core.desk.held_bytes == 0


@pytest.mark.parametrize("limit", ["jobs", "bytes"])
def test_no_message_is_read_while_twice_as_much_is_held(limit: str) -> None:
    settings = Settings("f1", window_jobs=16) if limit == "jobs" else Settings("f1", window_bytes=2000)
    world = World(settings)
    world.hello()
    size = 10 if limit == "jobs" else 300
    stage(world, range(1, 6), size=size)
    assert not world.core.saturated
    stage(world, range(6, 41), size=size)
    assert world.core.saturated
    world.settle()
    assert not world.core.saturated
