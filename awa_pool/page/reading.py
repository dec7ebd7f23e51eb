"""The page of another process, as views of one moment."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

import orjson

from awa_pool.errors import AwaError

from .layout import (
    DEADLINES,
    HEADER,
    LANE_WORDS,
    LANES,
    MAGIC,
    NO_RULE,
    PHASE,
    PLACE,
    PLACE_WORDS,
    PLACES_USED,
    ROW,
    ROW_WORDS,
    KillRule,
    Phase,
    lane_words,
)

_TRIES = 100
_WAITS = (Phase.WAITING, Phase.ASIDE)


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that has started and holds its place."""

    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int
    kind: str
    phase: Phase
    started_s: float  # the host's monotonic clock
    deadline_s: float = 0.0  # on the same clock; 0: none
    grace_s: float = 0.0  # from the deadline, or a cancel, to the kill
    cancel_kill: bool = False  # once cancelled it may be killed after the grace


@dataclass(frozen=True, slots=True)
class PieceMarks:
    """A row of the journal: which attempts of a piece have started, and which of those completed or ended otherwise."""

    slot: int
    receipt_id: int
    nonce: int
    started: int
    completed: int
    ended: int = 0


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane at one moment."""

    lane: str
    jobs_done: int
    running: list[Running]
    journal: list[PieceMarks]


@dataclass(frozen=True, slots=True)
class PageView:
    """A page at one moment (each row exact, rows one after the other)."""

    pid: int
    lanes: dict[str, LaneView]

    @property
    def jobs_done(self) -> int:
        return sum(lane.jobs_done for lane in self.lanes.values())

    @property
    def running(self) -> list[Running]:
        return [running for lane in self.lanes.values() for running in lane.running]

    def started(self) -> list[list[int]]:
        """Return `[[receipt_id, started_mask, completed_mask], …]`, one item per receipt (see `WorkerGone`).

        What ended otherwise is left out of the started: its worker did not die of it, and without its result it has
        to run again.
        """
        merged: dict[int, list[int]] = {}
        for lane in self.lanes.values():
            for row in lane.journal:
                marks = merged.setdefault(row.receipt_id, [row.receipt_id, 0, 0])
                marks[1] |= row.started & ~row.ended
                marks[2] |= row.completed
        return list(merged.values())

    def waiting(self) -> list[list[int]]:
        """Return `[[receipt_id, mask], …]` of the attempts whose handlers do nothing but wait for callbacks."""
        merged: dict[int, int] = {}
        for each in self.running:
            if each.phase is Phase.WAITING:
                merged[each.receipt_id] = merged.get(each.receipt_id, 0) | 1 << each.index
        return [[receipt_id, mask] for receipt_id, mask in merged.items()]


class PageReader:
    """A page of another process, mapped once and read many times."""

    def __init__(self, path: str) -> None:
        """Map the page at `path`. Errors: FileNotFoundError before the worker made it, AwaError when it is not a page."""
        with open(path, "rb") as file:
            self._buffer = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if len(self._buffer) < HEADER.size or HEADER.unpack_from(self._buffer)[0] != MAGIC:
            self._buffer.close()
            raise AwaError(f"{path!r} is not a worker's page")
        _, self.pid, at, length, self._rows, sync_places, async_places, _ = HEADER.unpack_from(self._buffer)
        self._kinds: list[str]
        self._kinds, rules = orjson.loads(self._buffer[at : at + length])
        self._rules = {name: KillRule(grace_s, kill) for name, grace_s, kill in rules}
        self._places = (sync_places, async_places)

    def close(self) -> None:
        """Unmap."""
        self._buffer.close()

    def view(self) -> PageView:
        """Read everything."""
        return PageView(self.pid, {lane: self._lane(number) for number, lane in enumerate(LANES)})

    def jobs_done(self) -> int:
        """Read only how many attempts this worker has ended."""
        return sum(self._word(self._first_word(number)) for number in range(len(LANES)))

    def deadlines(self) -> int:
        """Read only how many attempts with a deadline have started."""
        return sum(self._word(self._first_word(number) + DEADLINES) for number in range(len(LANES)))

    def running(self, lane: str, *, waiting: bool = True) -> list[Running]:
        """Read only what runs in `lane` now; with `waiting` false without what waits for callbacks, at little cost."""
        places = (
            self._place(at * 8)
            for at in self._used_places(lane)
            if waiting or self._word(at + PHASE) not in _WAITS
        )
        return [running for running in places if running is not None]

    def waiting(self) -> int:
        """Count what waits for callbacks."""
        return sum(self._word(at + PHASE) in _WAITS for lane in LANES for at in self._used_places(lane))

    def _used_places(self, lane: str) -> range:
        """Return the first word of each place that has ever been used."""
        number = LANES.index(lane)
        first = self._first_word(number)
        used = min(self._word(first + PLACES_USED), self._places[number])
        first += LANE_WORDS + self._rows * ROW_WORDS
        return range(first, first + used * PLACE_WORDS, PLACE_WORDS)

    def journal(self, lane: str) -> list[PieceMarks]:
        """Read only the journal of `lane`."""
        first = self._first_word(LANES.index(lane))
        used = self._word(first + 1)
        rows = (self._row((first + LANE_WORDS + row * ROW_WORDS) * 8) for row in range(used))
        return [marks for marks in rows if marks is not None]

    def _lane(self, number: int) -> LaneView:
        name = LANES[number]
        return LaneView(name, self._word(self._first_word(number)), self.running(name), self.journal(name))

    def _first_word(self, lane: int) -> int:
        return HEADER.size // 8 + (lane_words(self._rows, self._places[0]) if lane else 0)

    def _word(self, index: int) -> int:
        return int(struct.unpack_from("=q", self._buffer, index * 8)[0])

    def _steady(self, at: int, layout: struct.Struct) -> tuple[int | float, ...] | None:
        """Return the row at `at` once its first and last word agree; None for one whose writer died within it."""
        last = at + layout.size - 8
        for _ in range(_TRIES):
            version = struct.unpack_from("=q", self._buffer, last)[0]
            values = layout.unpack_from(self._buffer, at)
            if struct.unpack_from("=q", self._buffer, at)[0] == version == values[0] == values[-1]:
                return values
        return None

    def _row(self, at: int) -> PieceMarks | None:
        values = self._steady(at, ROW)
        if values is None or not values[2]:
            return None
        _, slot, receipt_id, nonce, started, completed, ended, _ = (int(value) for value in values)
        return PieceMarks(slot, receipt_id, nonce, started, completed, ended)

    def _place(self, at: int) -> Running | None:
        values = self._steady(at, PLACE)
        if values is None or not values[PHASE]:
            return None
        receipt_id, nonce, index, job_id, run_lease, kind = (int(value) for value in values[1:7])
        name = self._kinds[kind] if 0 <= kind < len(self._kinds) else ""
        rule = self._rules.get(name, NO_RULE)
        return Running(
            receipt_id, nonce, index, job_id, run_lease, name, Phase(int(values[PHASE])), float(values[8]),
            float(values[9]), rule.grace_s, rule.cancel_kill,
        )  # fmt: skip


def read_page(path: str) -> PageView | None:
    """Read the page at `path` once; None when the worker has not made one (then it has started nothing)."""
    try:
        reader = PageReader(path)
    except FileNotFoundError:
        return None
    try:
        return reader.view()
    finally:
        reader.close()
