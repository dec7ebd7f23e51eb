"""The shared page of a worker: what it is doing and what it has done, readable by others at any moment, also after
it was killed.

The worker alone writes. A page has a lane for sync handlers and one for async handlers; each lane is written by one
thread and holds

- a *journal*: one row `(slot, receipt_id, nonce, started_mask, completed_mask, ended_mask)` for each piece of a receipt
  of which something has started, kept at least until the finalizer has committed the results. A bit that is completed
  was completed; one that is ended ended otherwise, its result perhaps on the way; one that is started and neither was
  running; one of no kind was never started. This makes a crash exact.
- *running entries*: the attempt in each place of the lane, since when, in which phase, and until when it may run.

A mask is one aligned store. Rows of several words carry a version in their first and last word: the writer stores in
ascending order, a reader takes the last word first, so equal versions prove that nothing between them is torn (in the
order in which x86 shows stores; elsewhere a reader may, rarely, see a row of the past).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import orjson

from .errors import AwaError

LANES = ("sync", "async")
DEFAULT_JOURNAL = 1024

_MAGIC = 0x6177_615F_7067_0002
_HEADER = struct.Struct(
    "=8q"
)  # magic, pid, kinds offset, kinds bytes, journal rows, sync places, async places, size
_LANE_WORDS = 8  # jobs done, highest journal row ever used + 1, attempts started with a deadline, highest place ever used + 1, and room
_DEADLINES = 2
_PLACES_USED = 3
_ROW_WORDS = 8  # version, slot, receipt_id, nonce, started, completed, ended, version
_ROW = struct.Struct("=8q")
_STARTED = 4
_COMPLETED = 5
_ENDED = 6
_PLACE_WORDS = 11
PLACE = struct.Struct(
    "=8qddq"
)  # version, receipt_id, nonce, index, job_id, run_lease, kind, phase, started_s, deadline_s, version
_PHASE = 7
_TRIES = 100


class Phase(IntEnum):
    """What the attempt in a place is doing."""

    IDLE = 0
    HANDLER = 1
    WAITING = 2  # its handler waits for a callback
    ASIDE = 3  # a task of its handler waits for a callback, while others may run


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
class KillRule:
    """When an attempt of a kind may be ended from outside."""

    grace_s: float
    cancel_kill: bool


NO_RULE = KillRule(5.0, cancel_kill=False)
"""For kinds that the page does not name."""


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


class LanePage:
    """A lane's part of the page, for its one writing thread.

    `words` and `buffer` are public for the hot loop, which stores masks and places itself:
    `words[started_word(row)] = mask`, `PLACE.pack_into(buffer, place_offset(place), …)`.
    """

    def __init__(self, buffer: mmap.mmap, words: memoryview, first_word: int, rows: int, places: int) -> None:
        self.buffer = buffer
        self.words = words
        self.rows = rows
        self.places = places
        self._lane = first_word
        self._journal = first_word + _LANE_WORDS
        self._places = self._journal + rows * _ROW_WORDS
        self._free = list(range(rows - 1, -1, -1))  # the newest freed first: few cache lines are ever touched
        self._version = 0
        if places == 1:
            self.use_place(0)

    @property
    def full(self) -> bool:
        """No journal row is free: start nothing more until results are acknowledged."""
        return not self._free

    def open_piece(self, slot: int, receipt_id: int, nonce: int) -> int:
        """Take a journal row for a piece that is about to start; returns the row. Call it only if not `full`."""
        row = self._free.pop()
        self._version += 1
        at = (self._journal + row * _ROW_WORDS) * 8
        _ROW.pack_into(self.buffer, at, self._version, slot, receipt_id, nonce, 0, 0, 0, self._version)
        if self.words[self._lane + 1] <= row:
            self.words[self._lane + 1] = row + 1
        return row

    def release_piece(self, row: int) -> None:
        """Free a row: everything of that piece is committed, or was never started."""
        self._version += 1
        at = (self._journal + row * _ROW_WORDS) * 8
        _ROW.pack_into(self.buffer, at, self._version, 0, 0, 0, 0, 0, 0, self._version)
        self._free.append(row)

    def started_word(self, row: int) -> int:
        """Index in `words` of the row's started mask."""
        return self._journal + row * _ROW_WORDS + _STARTED

    def completed_word(self, row: int) -> int:
        """Index in `words` of the row's completed mask."""
        return self._journal + row * _ROW_WORDS + _COMPLETED

    def mark_ended(self, row: int, mask: int) -> None:
        """Show that these attempts of the row ended otherwise than completed."""
        self.words[self._journal + row * _ROW_WORDS + _ENDED] |= mask

    def place_offset(self, place: int) -> int:
        """Offset in `buffer` of a running entry."""
        return (self._places + place * _PLACE_WORDS) * 8

    def use_place(self, place: int) -> None:
        """Let readers look at `place` from now on."""
        if self.words[self._lane + _PLACES_USED] <= place:
            self.words[self._lane + _PLACES_USED] = place + 1

    def set_phase(self, place: int, phase: Phase) -> None:
        """Change what the attempt in `place` is doing; IDLE empties the place."""
        self.words[self._places + place * _PLACE_WORDS + _PHASE] = int(phase)

    def count_deadline(self) -> None:
        """Show that one more attempt with a deadline has started: whoever watches deadlines looks again."""
        self.words[self._lane + _DEADLINES] += 1

    def set_jobs_done(self, jobs: int) -> None:
        """Publish how many attempts this lane has ended."""
        self.words[self._lane] = jobs


class Page:
    """The page of this worker process, for writing."""

    def __init__(self, path: str, buffer: mmap.mmap, kinds: list[str]) -> None:
        self.path = path
        self._buffer = buffer
        self._words = memoryview(buffer).cast("q")
        self.kind_numbers = {kind: number for number, kind in enumerate(kinds)}
        """Kind -> number as it stands in running entries; an unknown kind is -1."""
        _, _, _, _, rows, sync_places, async_places, _ = _HEADER.unpack_from(buffer)
        first = _HEADER.size // 8
        self.sync = LanePage(buffer, self._words, first, rows, sync_places)
        self.async_ = LanePage(
            buffer, self._words, first + _lane_words(rows, sync_places), rows, async_places
        )

    @classmethod
    def create(
        cls,
        path: str,
        capacity: int = 1,
        kinds: list[str] | None = None,
        journal: int = DEFAULT_JOURNAL,
        rules: Mapping[str, KillRule] | None = None,
    ) -> Page:
        """Make the page of this process at `path`, replacing one of an earlier incarnation.

        `capacity` is the number of places of the async lane (the sync lane has one); `journal` the pieces that a lane
        can have open or unacknowledged, beside those of attempts that wait; `rules` say of kinds when they may be killed. A reader never sees a half-made page.
        """
        names = kinds or []
        journal = max(journal, 2 * capacity)
        known = rules or {}
        rows = [[name, known[name].grace_s, known[name].cancel_kill] for name in names if name in known]
        text = orjson.dumps([names, rows])
        kinds_at = _HEADER.size + 8 * (_lane_words(journal, 1) + _lane_words(journal, capacity))
        size = kinds_at + len(text)
        draft = f"{path}.{os.getpid()}"
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, path, -(-size // 8) * 8)
            buffer = mmap.mmap(fd, -(-size // 8) * 8)
        finally:
            os.close(fd)
        _HEADER.pack_into(buffer, 0, _MAGIC, os.getpid(), kinds_at, len(text), journal, 1, capacity, size)
        buffer[kinds_at:size] = text
        os.rename(draft, path)
        return cls(path, buffer, names)

    def close(self) -> None:
        """Unmap; the file stays for readers until the supervisor removes it."""
        for lane in (self.sync, self.async_):
            lane.words = memoryview(b"")
        self._words.release()
        self._buffer.close()


def _allocate(fd: int, path: str, size: int) -> None:
    """Give the file its blocks now: with none left, a store to mapped memory would kill this process."""
    try:
        done = 0
        while done < size:
            done += os.write(fd, bytes(size - done))
    except OSError as error:
        folder = os.path.dirname(path)
        raise AwaError(
            f"no room for a shared page of {size} bytes in {folder} ({error.strerror}): make room there, or name "
            "another folder with --run-dir"
        ) from None


class PageReader:
    """A page of another process, mapped once and read many times."""

    def __init__(self, path: str) -> None:
        """Map the page at `path`. Errors: FileNotFoundError before the worker made it, AwaError when it is not a page."""
        with open(path, "rb") as file:
            self._buffer = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if len(self._buffer) < _HEADER.size or _HEADER.unpack_from(self._buffer)[0] != _MAGIC:
            self._buffer.close()
            raise AwaError(f"{path!r} is not a worker's page")
        _, self.pid, at, length, self._rows, sync_places, async_places, _ = _HEADER.unpack_from(self._buffer)
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
        return sum(self._word(self._first_word(number) + _DEADLINES) for number in range(len(LANES)))

    def running(self, lane: str, *, waiting: bool = True) -> list[Running]:
        """Read only what runs in `lane` now; with `waiting` false without what waits for callbacks, at little cost."""
        places = (
            self._place(at * 8)
            for at in self._used_places(lane)
            if waiting or self._word(at + _PHASE) not in _WAITS
        )
        return [running for running in places if running is not None]

    def waiting(self) -> int:
        """Count what waits for callbacks."""
        return sum(self._word(at + _PHASE) in _WAITS for lane in LANES for at in self._used_places(lane))

    def _used_places(self, lane: str) -> range:
        """Return the first word of each place that has ever been used."""
        number = LANES.index(lane)
        first = self._first_word(number)
        used = min(self._word(first + _PLACES_USED), self._places[number])
        first += _LANE_WORDS + self._rows * _ROW_WORDS
        return range(first, first + used * _PLACE_WORDS, _PLACE_WORDS)

    def journal(self, lane: str) -> list[PieceMarks]:
        """Read only the journal of `lane`."""
        first = self._first_word(LANES.index(lane))
        used = self._word(first + 1)
        rows = (self._row((first + _LANE_WORDS + row * _ROW_WORDS) * 8) for row in range(used))
        return [marks for marks in rows if marks is not None]

    def _lane(self, number: int) -> LaneView:
        name = LANES[number]
        return LaneView(name, self._word(self._first_word(number)), self.running(name), self.journal(name))

    def _first_word(self, lane: int) -> int:
        return _HEADER.size // 8 + (_lane_words(self._rows, self._places[0]) if lane else 0)

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
        values = self._steady(at, _ROW)
        if values is None or not values[2]:
            return None
        _, slot, receipt_id, nonce, started, completed, ended, _ = (int(value) for value in values)
        return PieceMarks(slot, receipt_id, nonce, started, completed, ended)

    def _place(self, at: int) -> Running | None:
        values = self._steady(at, PLACE)
        if values is None or not values[_PHASE]:
            return None
        receipt_id, nonce, index, job_id, run_lease, kind = (int(value) for value in values[1:7])
        name = self._kinds[kind] if 0 <= kind < len(self._kinds) else ""
        rule = self._rules.get(name, NO_RULE)
        return Running(
            receipt_id, nonce, index, job_id, run_lease, name, Phase(int(values[_PHASE])), float(values[8]),
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


def _lane_words(rows: int, places: int) -> int:
    return _LANE_WORDS + rows * _ROW_WORDS + places * _PLACE_WORDS
