"""How a person sees a job: everything about one, or some of them in a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from awa_pool.body import INT64
from awa_pool.follow_ups import PARENT
from awa_pool.job import JobRow
from awa_pool.outcomes import error_line
from awa_pool.store.callbacks import Waiting
from awa_pool.store.unique import KeyState
from awa_pool.unique import states_of
from awa_pool.units import write_duration

from . import render, waits

NOTE_CHARS = 120  # of an error or of progress, in a table
STATE_STYLES = {"failed": "red", "cancelled": "yellow", "retryable": "yellow", "running": "green"}


def print_job(row: JobRow, key: KeyState | None, callback: Waiting | None = None, *, as_json: bool) -> None:
    """Print everything about one job, who holds its unique key, and which callback it waits for."""
    if as_json:
        told = None if key is None else key._asdict() | {"states": states_of(key.states)}
        waits_for = None if callback is None else callback._asdict()
        more = {"unique": told, "follow_up_of": _parent(row), "waits_for": waits_for}
        render.print_json(row._asdict() | more)
        return
    out = render.console()
    for name, value in _fields(row._asdict()):
        out.print(Text.assemble((f"{name:<14}", "bold"), render.plain(value)))
    if (parent := _parent(row)) is not None:
        out.print(Text.assemble((f"{'follow-up of':<14}", "bold"), f"job {parent}"))
    if callback is not None:
        out.print(Text.assemble((f"{'waiting':<14}", "bold"), waits.line(callback)))
    if key is not None:
        out.print(Text.assemble((f"{'unique':<14}", "bold"), _key_line(row, key)))
    for error in row.errors:
        out.print()
        head = f"attempt {error.get('attempt', '?')}, {error.get('at', 'at an unknown time')}"
        out.print(Text(render.plain(head), style="bold red"))
        out.print(Text(f"  {render.plain(error_line(error))}"))
        for line in str(error.get("traceback") or "").splitlines():
            out.print(Text("  " + render.plain(line), style="dim"))


def _parent(row: JobRow) -> int | None:
    """Return the job whose end put this one in; other software may have written anything there."""
    parent = row.metadata.get(PARENT)
    return parent if type(parent) is int and 0 < parent <= INT64[1] else None


def _key_line(row: JobRow, key: KeyState) -> str:
    """Say what becomes of a job's unique key, and who has it."""
    if key.holder is None:
        held = "held by nobody"
    elif key.holder == row.id:
        held = "held by this job"
    else:
        held = f"held by job {key.holder}"
    return f"{key.unique_key}, {held}; a key of the states {', '.join(states_of(key.states))}"


def _fields(row: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in row.items():
        if name == "errors" or value in (None, [], {}, False):
            continue
        if name in ("args", "metadata", "tags"):
            yield name, json.dumps(value, ensure_ascii=False)
        elif name == "progress":
            yield name, progress_text(value)
            if value.get("metadata"):
                yield "  metadata", json.dumps(value["metadata"], ensure_ascii=False)
        elif name == "deadline_s":
            yield "deadline", write_duration(float(value))
        elif name.endswith("_at"):
            yield name, render.moment(value)
        else:
            yield name, value


def progress_text(progress: dict[str, Any]) -> str:
    """Return how far an attempt is, in one line; other software may have written anything."""
    percent, message = progress.get("percent"), progress.get("message")
    parts = [
        f"{percent:g} %" if isinstance(percent, int | float) else "",
        message if isinstance(message, str) else "",
    ]
    return ", ".join(part for part in parts if part) or "–"


def jobs_table(rows: Sequence[JobRow]) -> Iterator[Any]:
    """Yield the table of these jobs, and below it how to see what it cuts short."""
    cells = [
        (r.id, r.kind, r.queue, _state(r), f"{r.attempt}/{r.max_attempts}", render.moment(r.run_at or r.created_at),
         _note(r))
        for r in rows
    ]  # fmt: skip
    columns = ("id", "kind", "queue", "state", "attempt", "due", "last error or progress")
    yield render.table(columns, cells, ("id", "attempt"), text=("last error or progress",), spare=("due",))
    if any(str(row[-1] or "").endswith("…") for row in cells):
        yield "…: awa-pool job ID shows all of it"


def _state(row: JobRow) -> Text:
    text = row.state + (" (dead)" if row.dead else "")
    return Text(render.plain(text), style=STATE_STYLES.get(row.state, ""))


def _note(row: JobRow) -> str | None:
    """Return what there is to say of a job in a table: how far it is while it runs, else what went wrong last."""
    if row.state == "running" and row.progress is not None:
        return render.shortened(progress_text(row.progress), NOTE_CHARS)
    return _last_error(row.errors) or row.reason


def _last_error(errors: list[dict[str, Any]]) -> str:
    if not errors:
        return ""
    return render.shortened(error_line(max(errors, key=_attempt)), NOTE_CHARS)


def _attempt(error: dict[str, Any]) -> int:
    attempt = error.get("attempt")  # other software may have written anything
    return attempt if isinstance(attempt, int) else 0
