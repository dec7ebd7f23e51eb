"""The ledger: one append-only file outside of the pool, written by handlers and by the producer, read by the judge.

A line is a word and numbers; lines are shorter than what the kernel appends in one piece, so writers never mix.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "AWA_CHAOS_LEDGER"
PUT, BEGAN, ENDED = "put", "began", "ended"


class Pen:
    """Appends lines to the ledger."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def line(self, word: str, *numbers: float) -> None:
        """Append one line."""
        os.write(self._file, f"{word} {' '.join(map(repr, numbers))}\n".encode())

    def put(self, jobs: Sequence[int]) -> None:
        """Note jobs whose insert has committed."""
        for job in jobs:
            self.line(PUT, job, time.time())

    @contextlib.contextmanager
    def entry(self, job: int, attempt: int) -> Iterator[None]:
        """Note a handler's start, and its return or exception."""
        self.line(BEGAN, job, attempt, time.time())
        well = 0
        try:
            yield
            well = 1
        finally:
            self.line(ENDED, job, attempt, time.time(), well)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass
class Ledger:
    """What the file says, read as it grows."""

    path: Path
    put: set[int] = field(default_factory=set)
    """Jobs whose insert was confirmed."""
    began: dict[int, float] = field(default_factory=dict)
    """Job -> time of its newest start."""
    returned: set[int] = field(default_factory=set)
    """Jobs whose handler has returned without an exception at least once."""
    ends_s: list[float] = field(default_factory=list)
    """Times of all ends of handlers."""
    starts: int = 0
    _at: int = 0

    def read(self) -> None:
        """Take in what was appended since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._at += len(data)
        for line in data.decode().splitlines():
            self._take(line.split())

    def lines_of(self, job: int) -> list[str]:
        """Return what stands there of one job, with times of day."""
        found = []
        for line in self.path.read_text().splitlines():
            word, number, *rest = line.split()
            if int(number) == job:
                at_s = float(rest[0 if word == PUT else 1])
                clock = time.strftime("%H:%M:%S", time.localtime(at_s)) + f"{at_s % 1:.3f}"[1:]
                found.append(f"{clock} {word} {' '.join(rest[:1] + rest[2:]) if word != PUT else ''}")
        return found

    def _take(self, words: list[str]) -> None:
        job = int(words[1])
        if words[0] == PUT:
            self.put.add(job)
        elif words[0] == BEGAN:
            self.starts += 1
            self.began[job] = max(self.began.get(job, 0.0), float(words[3]))
        else:
            self.ends_s.append(float(words[3]))
            if words[4] == "1":
                self.returned.add(job)
