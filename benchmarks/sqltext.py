"""The benchmarks' own statements, by the name of their file in `sql/`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import LiteralString

_FOLDER = Path(__file__).parent / "sql"


@cache
def text(name: str) -> LiteralString:
    """Return the statement in `sql/<name>.sql`."""
    return (_FOLDER / f"{name}.sql").read_text()
