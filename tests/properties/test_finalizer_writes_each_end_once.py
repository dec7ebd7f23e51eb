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
)
SCRIPT = st.lists(st.tuples(ACTION, st.integers(0, 300)), max_size=120)


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
    world.settle()
    assert not any(worker.kept for worker in world.workers.values())
    assert world.core.held_jobs == 0 and world.core.held_bytes == 0
    restarted = any(action == "restart" for action, _ in script)
    for receipt_id, mask in reported.items():
        if not restarted:  # endings that only the dispatcher knows come again from there
            assert world.closed.get(receipt_id, 0) == mask
            assert world.told_closed.get(receipt_id, 0) == mask
    assert set(world.outcomes.values()) <= {"completed", "retry", "return"}
