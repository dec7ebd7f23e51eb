"""Whatever the database does and whatever comes twice, each result is written once and acknowledged only then."""

from __future__ import annotations

from finalizer_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from awa_pool.events import Trouble
from awa_pool.finalizer.events import Settings

ACTION = st.sampled_from(
    ["end"] * 6
    + ["other", "other", "answer", "answer", "answer", "tick", "long", "resend", "busy", "give_back"]
    + ["away", "away_committed", "conflict", "locked", "restart", "poison", "twice"]
    + ["stage"] * 4
    + ["land", "land", "land", "land_busy", "land_away", "land_committed", "land_conflict", "land_refused"]
    + ["hold", "let_go", "refuse"]
)
SCRIPT = st.lists(st.tuples(ACTION, st.integers(0, 300)), max_size=120)


def sealed(receipt_id: int, index: int) -> bytes:
    """What that attempt stages."""
    return b'[{"of":%d}]' % (receipt_id * 100 + index)


def act(world: World, action: str, number: int, reported: dict[int, int]) -> None:
    """Let one thing happen; `reported` keeps what each receipt's attempts have been used for."""
    worker = world.worker(f"w{number % 3}-i1-sync")
    receipt_id = 1 + number % 40
    free = (1 << 20) - 1 & ~reported.get(receipt_id, 0)
    index = free.bit_length() - 1
    match action:
        case "end" | "twice" if free:
            mask = free & (7 << max(0, index - 2))
            reported[receipt_id] = reported.get(receipt_id, 0) | mask
            world.end(worker, receipt_id, mask)
            if action == "twice":
                world.end(worker, receipt_id, mask)
        case "other" if free:
            reported[receipt_id] = reported.get(receipt_id, 0) | 1 << index
            world.end(worker, receipt_id, 0, [world.other(receipt_id, index, "retry")])
        case "stage" if free:
            mask = free & (7 << max(0, index - 2))
            reported[receipt_id] = reported.get(receipt_id, 0) | mask
            indexes = [i for i in range(63) if mask >> i & 1]
            staged = {i: sealed(receipt_id, i) for i in indexes if i % 3 != number % 3}
            plain = mask & ~sum(1 << i for i in staged)
            others = [world.other(receipt_id, i, "retry") for i in staged if number % 5 == 0]
            world.end(worker, receipt_id, plain, others, staged=staged, more=number % 2 == 0)
        case "land":
            world.land()
        case "land_busy":
            world.land(busy=True)
        case "land_away":
            world.land(Trouble.AWAY)
        case "land_committed":
            world.land(Trouble.AWAY, committed=True)
        case "land_conflict":
            world.land(Trouble.CONFLICT)
        case "land_refused":
            world.land(Trouble.REFUSED)
        case "hold":
            world.held.add(receipt_id)
        case "let_go":
            world.held.clear()
        case "refuse":
            world.refused.add(receipt_id)
        case "give_back" if free:
            reported[receipt_id] = reported.get(receipt_id, 0) | 1 << index
            world.end_attempts(receipt_id, index, "return")
        case "answer":
            world.answer()
        case "busy":
            world.answer(busy=1)
        case "away":
            world.answer(Trouble.AWAY)
        case "away_committed":
            world.answer(Trouble.AWAY, committed=True)
        case "conflict":
            world.answer(Trouble.CONFLICT)
        case "locked":
            world.answer(Trouble.LOCKED)
        case "tick":
            world.tick(0.002 * (1 + number % 20))
        case "long":
            world.tick(2.0)
        case "resend":
            world.resend(worker)
        case "poison":
            world.poison.add(receipt_id)
        case "restart":
            world.core = world.new_core()
            world.calls.clear()
            world.trips.clear()
            world.hello()
            for each in world.workers.values():
                world.resend(each)


@settings(max_examples=120, deadline=None)
@given(SCRIPT, st.sampled_from([64, 4096]))
def test_results_survive_conflicts_outages_repeats_and_poison(script, window):
    world = World(Settings("f1", window_jobs=window))
    world.hello()
    reported: dict[int, int] = {}
    for action, number in script:
        act(world, action, number, reported)
    world.held.clear()
    world.settle()
    assert not any(worker.kept for worker in world.workers.values())
    assert world.core.desk.held_jobs == 0 and world.core.desk.held_bytes == 0
    restarted = any(action == "restart" for action, _ in script)
    for receipt_id, mask in reported.items():
        if not restarted:  # endings that only the dispatcher knows come again from there
            assert world.closed.get(receipt_id, 0) == mask
            assert world.told_closed.get(receipt_id, 0) == mask
    for attempt, follow_ups in world.follow_ups.items():  # its own, whole, and by its own end only
        assert follow_ups == sealed(*attempt)
        assert world.outcomes[attempt] in ("completed", "retry")
    assert set(world.outcomes.values()) <= {"completed", "retry", "return"}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stage", "stage", "tick", "land", "land_busy", "land_away", "land_committed", "hold",
                             "let_go", "land_conflict", "resend", "restart"]),
            st.integers(0, 300),
        ),
        max_size=100,
    )
)  # fmt: skip
def test_every_end_that_staged_and_was_not_refused_is_written_with_exactly_what_it_staged(script):
    world = World(Settings("f1"))
    world.hello()
    reported: dict[int, int] = {}
    in_a_row = 0
    for action, number in script:
        in_a_row = in_a_row + 1 if action == "land_conflict" else 0
        if in_a_row < 2:  # more conflicts than retries would end the attempt instead
            act(world, action, number, reported)
    world.held.clear()
    conflicts = sum(action == "land_conflict" for action, _ in script)
    world.settle()
    wanted = {
        attempt
        for attempt, outcome in world.outcomes.items()
        if outcome in ("completed", "retry") and attempt in world.staged
    }
    if conflicts <= 3:
        assert wanted == set(world.follow_ups)
    for attempt in world.staged - set(world.follow_ups):
        assert (
            world.outcomes[attempt] == "retry"
        )  # failed with the error, and none of its follow-ups is there
