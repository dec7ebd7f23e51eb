"""What the leader has seen of the ring: for the metrics, and for a line when a slot is held back for long. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HELD_LONG_S = 600.0
SLOTS = 24


class Ring:
    """The newest look at the ring; rows have slot, state, state_s, held_by, told and held_s."""

    def __init__(self) -> None:
        self._rows: list[Any] | None = None
        self._said: set[tuple[int, str]] = set()

    def seen(self, rows: Iterable[Any]) -> list[str]:
        """Take a look; returns what is worth a warning and has not been said: slots sealed for long, and why."""
        self._rows = list(rows)
        held = {
            (row.slot, row.held_by): row for row in self._rows if row.held_by and row.state_s >= HELD_LONG_S
        }
        new = [row for key, row in held.items() if key not in self._said]
        self._said = set(held)
        return [
            f"slot {row.slot} of the ring, {row.state} for {row.state_s:.0f} s, is held back: {row.told}, "
            f"since {row.held_s:.0f} s"
            for row in new
        ]

    def forget(self) -> None:
        """Another leads: what was seen here is old."""
        self._rows = None

    def figures(self) -> dict[str, Any]:
        """Return slots by state, and by what holds them back: how many, and the longest time in seconds."""
        if self._rows is None:
            return {}
        states = dict.fromkeys(("free", "current", "sealed", "exhausted"), 0)
        states["free"] = SLOTS - len(self._rows)
        slots: dict[str, int] = {}
        longest_s: dict[str, float] = {}
        for row in self._rows:
            states[row.state] += 1
            if row.held_by:
                slots[row.held_by] = slots.get(row.held_by, 0) + 1
                longest_s[row.held_by] = max(longest_s.get(row.held_by, 0.0), row.held_s or 0.0)
        return {"states": states, "held": slots, "held_s": longest_s}
