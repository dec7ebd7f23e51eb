"""How a page is laid out: a header, two lanes of words, the kinds' names and rules. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

LANES = ("sync", "async")
DEFAULT_JOURNAL = 1024

MAGIC = 0x6177_615F_7067_0002
# magic, pid, kinds offset, kinds bytes, journal rows, sync places, async places, size
HEADER = struct.Struct("=8q")
# jobs done, highest journal row ever used + 1, attempts started with a deadline, highest place ever used + 1, and room
LANE_WORDS = 8
DEADLINES = 2
PLACES_USED = 3
ROW_WORDS = 8  # version, slot, receipt_id, nonce, started, completed, ended, version
ROW = struct.Struct("=8q")
STARTED = 4
COMPLETED = 5
ENDED = 6
PLACE_WORDS = 11
# version, receipt_id, nonce, index, job_id, run_lease, kind, phase, started_s, deadline_s, version
PLACE = struct.Struct("=8qddq")
PHASE = 7


class Phase(IntEnum):
    """What the attempt in a place is doing."""

    IDLE = 0
    HANDLER = 1
    WAITING = 2  # its handler waits for a callback
    ASIDE = 3  # a task of its handler waits for a callback, while others may run


@dataclass(frozen=True, slots=True)
class KillRule:
    """When an attempt of a kind may be ended from outside."""

    grace_s: float
    cancel_kill: bool


NO_RULE = KillRule(5.0, cancel_kill=False)
"""For kinds that the page does not name."""


def lane_words(rows: int, places: int) -> int:
    """Return how many words a lane takes."""
    return LANE_WORDS + rows * ROW_WORDS + places * PLACE_WORDS
