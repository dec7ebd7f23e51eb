"""How the ring looks to people: how many slots there are of each state, and why one does not move on."""

from __future__ import annotations

from awa_pool.sqlfiles import SLOTS
from awa_pool.store.inspecting import SlotStatus

from . import render

WORTH_TELLING_S = 60.0  # a slot that was sealed just now waits for the transactions and jobs of a moment


def told(rows: list[SlotStatus]) -> list[str]:
    """Return the ring in one line, and a line for each slot that something has held back for a minute."""
    states = {"free": SLOTS - len(rows)}
    for row in rows:
        states[row.state] = states.get(row.state, 0) + 1
    size = render.size(sum(row.bytes for row in rows))
    lines = [
        "ring: " + ", ".join(f"{count} {state}" for state, count in states.items() if count) + f"; {size}"
    ]
    for row in rows:
        if row.told is not None and row.state_s >= WORTH_TELLING_S:
            age, since = render.span(row.state_s), render.span(row.held_s)
            lines.append(f"  slot {row.slot}, {row.state} for {age}: {row.told}, since {since}")
    return lines
