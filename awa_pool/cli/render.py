"""How rows look to people, and to programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from awa_pool.visible import visible

GAP = 2  # between columns
LEAST_TEXT = 20  # what a column of text should have
WIDE = 1000  # columns when the output is not a terminal: a row stays one line, which grep finds whole


def console(file: IO[str] | None = None) -> Console:
    """Return the console of standard output (or `file`); files and pipes get wide lines without colours."""
    shown = file or sys.stdout
    return Console(file=shown, width=None if shown.isatty() else WIDE, highlight=False, soft_wrap=False)


def plain(value: object) -> str:
    """Return a value as one harmless line: stored text must not move a terminal's cursor."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return visible(text)


def shortened(text: str, most: int) -> str:
    """Return the first line of a text as a harmless one, at most `most` characters; what is left out shows as `…`."""
    first, _, more = text.strip().partition("\n")
    if len(first) <= most and not more.strip():
        return plain(first)
    return plain(first[: most - 1].rstrip()) + "…"


def moment(value: datetime | None, now: datetime | None = None) -> str:
    """Return an instant as UTC with its distance from now: `2026-01-31 12:30:05Z (5m ago)`."""
    if value is None:
        return "–"
    behind_s = ((now or datetime.now(UTC)) - value).total_seconds()
    distance = f"{span(abs(behind_s))} ago" if behind_s >= 0 else f"in {span(-behind_s)}"
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z ({distance})"


def span(seconds: float | None) -> str:
    """Return a duration in the one or two units that matter."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit, below, lower in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}{int(seconds % size // below):02d}{lower}"
    return f"{int(seconds)}s"


def size(amount_bytes: float | None) -> str:
    """Return a size in MiB or GiB."""
    if amount_bytes is None:
        return "–"
    mib = amount_bytes / 2**20
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Sequence[str] = (),
    *,
    text: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> Table:
    """Build a table; columns named in `right` are set flush right, cells are never read as markup.

    Where the terminal is too narrow, columns named in `spare` are left out, the first of them first; then those in
    `text` are broken between words. Others are cut, with `…`, only when nothing else helps.
    """
    cells = [[cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row] for row in rows]
    widths = [
        0 if name in text else max([len(name), *(row[at].cell_len for row in cells)])
        for at, name in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    room = console().width
    for name in spare:
        if sum(widths[at] + GAP for at in shown) + len(text) * LEAST_TEXT - GAP <= room:
            break
        shown.remove(columns.index(name))
    made = Table(box=None, pad_edge=False, header_style="bold")
    for at in shown:
        name = columns[at]
        breaks = name in text
        made.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=not breaks,
            overflow="fold" if breaks else "ellipsis",
        )
    for row in cells:
        made.add_row(*(row[at] for at in shown))
    return made


def print_json(value: Any) -> None:
    """Print one object as one line of JSON; times as in the records of errors, `2026-01-31T12:30:05+00:00`."""
    print(json.dumps(as_plain(value), ensure_ascii=False, default=_as_text))


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def as_plain(value: Any) -> Any:
    """Return a row of any of our types as a dict of its fields."""
    if hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value
