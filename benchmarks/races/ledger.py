"""The ledger: one append-only file, written by handlers and by who answers them, read by the judge.

A line is a JSON array `[bout, who, what]`, shorter than what the kernel appends in one piece: writers never mix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import orjson

VARIABLE = "AWA_RACES_LEDGER"
HANDLER = "handler"


class Pen:
    """Appends lines to the ledger."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, bout: int, who: str, what: str) -> None:
        """Append a line."""
        os.write(self._file, orjson.dumps([bout, who, what[:200]]) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: str | Path) -> Mapping[int, list[tuple[str, str]]]:
    """Return what was noted of each bout: (who, what), in order."""
    found: dict[int, list[tuple[str, str]]] = {}
    for line in Path(path).read_bytes().splitlines():
        bout, who, what = orjson.loads(line)
        found.setdefault(bout, []).append((who, what))
    return found
