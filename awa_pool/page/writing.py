"""The page of this process: its lanes store what they do, a word at a time."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping

import orjson

from awa_pool.errors import AwaError

from .layout import (
    COMPLETED,
    DEADLINES,
    DEFAULT_JOURNAL,
    ENDED,
    HEADER,
    LANE_WORDS,
    MAGIC,
    PHASE,
    PLACE_WORDS,
    PLACES_USED,
    ROW,
    ROW_WORDS,
    STARTED,
    KillRule,
    Phase,
    lane_words,
)


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
        self._journal = first_word + LANE_WORDS
        self._places = self._journal + rows * ROW_WORDS
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
        at = (self._journal + row * ROW_WORDS) * 8
        ROW.pack_into(self.buffer, at, self._version, slot, receipt_id, nonce, 0, 0, 0, self._version)
        if self.words[self._lane + 1] <= row:
            self.words[self._lane + 1] = row + 1
        return row

    def release_piece(self, row: int) -> None:
        """Free a row: everything of that piece is committed, or was never started."""
        self._version += 1
        at = (self._journal + row * ROW_WORDS) * 8
        ROW.pack_into(self.buffer, at, self._version, 0, 0, 0, 0, 0, 0, self._version)
        self._free.append(row)

    def started_word(self, row: int) -> int:
        """Index in `words` of the row's started mask."""
        return self._journal + row * ROW_WORDS + STARTED

    def completed_word(self, row: int) -> int:
        """Index in `words` of the row's completed mask."""
        return self._journal + row * ROW_WORDS + COMPLETED

    def mark_ended(self, row: int, mask: int) -> None:
        """Show that these attempts of the row ended otherwise than completed."""
        self.words[self._journal + row * ROW_WORDS + ENDED] |= mask

    def place_offset(self, place: int) -> int:
        """Offset in `buffer` of a running entry."""
        return (self._places + place * PLACE_WORDS) * 8

    def use_place(self, place: int) -> None:
        """Let readers look at `place` from now on."""
        if self.words[self._lane + PLACES_USED] <= place:
            self.words[self._lane + PLACES_USED] = place + 1

    def set_phase(self, place: int, phase: Phase) -> None:
        """Change what the attempt in `place` is doing; IDLE empties the place."""
        self.words[self._places + place * PLACE_WORDS + PHASE] = int(phase)

    def count_deadline(self) -> None:
        """Show that one more attempt with a deadline has started: whoever watches deadlines looks again."""
        self.words[self._lane + DEADLINES] += 1

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
        _, _, _, _, rows, sync_places, async_places, _ = HEADER.unpack_from(buffer)
        first = HEADER.size // 8
        self.sync = LanePage(buffer, self._words, first, rows, sync_places)
        self.async_ = LanePage(buffer, self._words, first + lane_words(rows, sync_places), rows, async_places)

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
        kinds_at = HEADER.size + 8 * (lane_words(journal, 1) + lane_words(journal, capacity))
        size = kinds_at + len(text)
        draft = f"{path}.{os.getpid()}"
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, path, -(-size // 8) * 8)
            buffer = mmap.mmap(fd, -(-size // 8) * 8)
        finally:
            os.close(fd)
        HEADER.pack_into(buffer, 0, MAGIC, os.getpid(), kinds_at, len(text), journal, 1, capacity, size)
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
