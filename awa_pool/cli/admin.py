"""Commands that look at a queue and change single jobs: `status`, `job`, `jobs`, `cancel`, `retry`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from awa_pool.config.layers import load
from awa_pool.config.settings import SETTINGS, PoolConfig
from awa_pool.errors import ConfigError, JobNotFound, TransitionRefused, UniqueConflict
from awa_pool.follow_ups import PARENT
from awa_pool.job import JobRow
from awa_pool.outcomes import error_line
from awa_pool.states import State
from awa_pool.store import inspecting
from awa_pool.store import statements as do
from awa_pool.store.callbacks import Waiting, callback_of, list_waits
from awa_pool.store.calls import Call
from awa_pool.store.connection import connect
from awa_pool.store.store import Store
from awa_pool.store.unique import KeyState, key_state
from awa_pool.unique import states_of
from awa_pool.units import write_duration

from . import render, rings, waits
from .database import with_database
from .entry import FAILED, OK, refuse
from .options import App, DataDir, Dsn, Embedded, Json, Schema, number

MOST_ID = 2**63 - 1
_MOST_DIGITS = 100  # Python reads no endless numbers
NOTE_CHARS = 120  # of an error or of progress, in a table
ESTIMATED_FROM = 10_000  # below that every count is exact, see sql/functions/queue_stats.sql
ADDRESSES = ("dsn", "listen_dsn")
NOT_SHOWN = "(set; not shown, it may hold a password)"
STATE_STYLES = {"failed": "red", "cancelled": "yellow", "retryable": "yellow", "running": "green"}


def job_number(text: str) -> int:
    """Read a job's number. Errors: ConfigError."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ConfigError(f"ID: {text[:80]!r} is no job's number; write one such as 17")
    return int(text)


JobId = Annotated[
    int, typer.Argument(metavar="ID", help="The job's number", show_default=False, parser=job_number)
]
JobIds = Annotated[
    list[int], typer.Argument(metavar="ID", help="Jobs by number", show_default=False, parser=job_number)
]


@contextlib.contextmanager
def store_of(**given: object) -> Iterator[Store]:
    """Connect to the database that the flags, variables, pyproject.toml or the app name."""
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    with with_database(config, sources) as settled:
        store = connect(str(settled.dsn), settled.schema, "cli")
        try:
            yield store
        finally:
            store.close()


def status(
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Show the pools of the last day, what waits in each queue or for callbacks, and what holds the ring back."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        runtimes, queues, settings_of = store.runtimes(), store.queue_stats(), store.queues()
        ring = store.ring_status()
        waiting = store.run(list_waits(waits.MOST_TOLD)) if any(row.waiting for row in queues) else []
    if as_json:
        shown: dict[str, list[Any]] = {"pools": runtimes, "queues": queues, "ring": ring}
        shown["settings"] = list(settings_of)
        told: dict[str, list[Any]] = {name: [row._asdict() for row in rows] for name, rows in shown.items()}
        told["waits"] = [{"job_id": w.job_id, "kind": w.kind, **w.callback._asdict()} for w in waiting]
        render.print_json(told | {"unserved": unserved(runtimes, queues)})
        return
    out = render.console()
    for part in _pools(runtimes):
        out.print(part)
    out.print()
    out.print(queue_table(queues) if queues else Text("No queue has jobs."))
    for name in unserved(runtimes, queues):
        out.print(Text(f"{render.plain(name)}: jobs are available, and no pool serves it"))
    for line in _own_settings(settings_of):
        out.print(Text(line))
    for line in waits.told(waiting, (row.waiting for row in queues)):
        out.print(Text(line))
    out.print()
    for line in rings.told(ring):
        out.print(Text(render.plain(line)))


def show_job(
    job_id: JobId, as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Show everything about one job, its arguments and errors included."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        row = store.run(inspecting.job(checked_id(job_id)))
        key = store.run(key_state(job_id))
        callback = store.run(callback_of(job_id))
    if row is None:
        raise JobNotFound(f"there is no job {job_id}; finished jobs are kept for the retention time only")
    print_job(row, key, callback, as_json=as_json)


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


def list_jobs(
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help=f"One of {', '.join(State)}")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind")] = None,
    limit: Annotated[int, number("--limit", "N", 1, 10_000, "How many at most, 1 to 10000")] = 50,
    before: Annotated[
        int | None, number("--before", "ID", 0, MOST_ID, "Only jobs older than this one: the next page")
    ] = None,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """List jobs, the newest first."""
    if state is not None and state not in list(State):
        raise ConfigError(f"--state: {state[:80]!r} is no state; write one of {', '.join(State)}")
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        # A table shows no args: they stay in the database, whatever their size.
        rows = store.run(inspecting.list_jobs(state, queue, kind, limit, before, with_args=as_json))
    if as_json:
        for row in rows:
            render.print_json(row)
        return
    if not rows:
        print("No such jobs.")
        return
    cells = [
        (r.id, r.kind, r.queue, _state(r), f"{r.attempt}/{r.max_attempts}", render.moment(r.run_at or r.created_at),
         _note(r))
        for r in rows
    ]  # fmt: skip
    columns = ("id", "kind", "queue", "state", "attempt", "due", "last error or progress")
    render.console().print(render.table("", columns, cells, right=("id", "attempt")))
    if any(str(row[-1] or "").endswith("…") for row in cells):
        print("…: awa-pool job ID shows all of it")
    if len(rows) == limit:
        print(f"There may be more: --before {rows[-1].id}")


def cancel(
    ids: JobIds, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> int:  # fmt: skip
    """Cancel jobs; a running one is told, and its result no longer counts."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        return _each(store, do.cancel, ids)


def retry(
    ids: JobIds, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> int:  # fmt: skip
    """Make failed, cancelled or waiting jobs available now."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        return _each(store, do.retry, ids)


def _each(store: Store, act: Callable[[int], Call[Any]], ids: list[int]) -> int:
    """Act on one job after the other, with a line for each; returns the exit status."""
    status = OK
    for job_id in ids:
        try:
            print(f"job {job_id} is {store.run(act(checked_id(job_id)))}")
        except (JobNotFound, TransitionRefused, UniqueConflict) as refusal:
            status = refuse(str(refusal), FAILED)
    return status


def settings(
    as_json: Json = False, app: App = None, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None,
) -> None:  # fmt: skip
    """Show each setting, its value and where it came from."""
    given = {"app": app, "dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir}
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    if as_json:
        for name, source in sources.items():
            render.print_json(
                {"setting": _as_written(name), "field": name, "value": _value(config, name), "source": source}
            )
        return
    rows = [(_as_written(name), _setting(config, name), source) for name, source in sources.items()]
    render.console().print(render.table("", ("setting", "value", "source"), rows))


def _as_written(name: str) -> str:
    """Return a setting's name as pyproject.toml and, but for case and prefix, flag and variable have it."""
    return SETTINGS[name].key.replace("_", "-")


def _value(config: PoolConfig, name: str) -> Any:
    """Return a setting's value for programs: null where nothing is set, numbers in the unit that the field's name ends with."""
    value = getattr(config, name)
    if name in ADDRESSES and value is not None:
        return NOT_SHOWN
    return [queue._asdict() for queue in value] if name == "queues" else value


def _setting(config: PoolConfig, name: str) -> str:
    value = getattr(config, name)
    if name in ADDRESSES and value is not None:
        return NOT_SHOWN
    if name == "queues":
        return ", ".join(q.name if q.max is None else f"{q.name}:{q.max}" for q in value) or "–"
    if name.endswith("_s"):
        return write_duration(value)
    if name.endswith("_bytes"):
        return render.size(value)
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def checked_id(job_id: int) -> int:
    """Return a number that can be a job's. Errors: JobNotFound."""
    if not 0 < job_id <= MOST_ID:
        raise JobNotFound(f"there is no job {job_id}")
    return job_id


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


def _parent(row: JobRow) -> int | None:
    """Return the job whose end put this one in; other software may have written anything there."""
    parent = row.metadata.get(PARENT)
    return parent if type(parent) is int and 0 < parent <= MOST_ID else None


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


def _own_settings(rows: list[inspecting.QueueRow]) -> Iterator[str]:
    """Say of each queue what it was told; most were told nothing."""
    for row in rows:
        told = [
            *([f"deadline {write_duration(row.deadline_s)}"] if row.deadline_s is not None else []),
            *([] if row.dlq else ["keeps no dead jobs"]),
            *(
                [f"keeps dead jobs {write_duration(row.dlq_retention_s)}"]
                if row.dlq_retention_s is not None
                else []
            ),
        ]
        if told:
            yield f"{render.plain(row.queue)}: {', '.join(told)}"


def unserved(pools: list[inspecting.RuntimeRow], queues: list[inspecting.QueueStats]) -> list[str]:
    """Name the queues with available jobs that no living pool serves. One that does not say what it serves may serve them."""
    living = [
        pool.info.get("queues")
        for pool in pools
        if pool_state(pool) == "alive" and pool.info.get("workers") != 0
    ]
    if not all(isinstance(names, list) for names in living):
        return []
    served = {name for names in living if isinstance(names, list) for name in names}
    return [row.queue for row in queues if row.available and not row.paused and row.queue not in served]


def queue_table(rows: list[inspecting.QueueStats]) -> Any:
    """Build the table of jobs per queue and state."""
    capped = any(row.counts_are_capped for row in rows)
    cells = [
        (r.queue + (" (paused)" if r.paused else ""), *(_count(n, r.counts_are_capped) for n in r[1:10]),
         render.span(r.oldest_available_s))
        for r in rows
    ]  # fmt: skip
    names = (
        "available",
        "running",
        "waiting",
        "scheduled",
        "retryable",
        "failed",
        "cancelled",
        "completed",
        "dead",
    )
    made = render.table("", ("queue", *names, "oldest"), cells, right=(*names, "oldest"))
    if capped:
        made.caption = "~: estimated, or counted up to a cap"
    return made


def _count(number: int, capped: bool) -> str:
    return ("~" if capped and number >= ESTIMATED_FROM else "") + f"{number:,}"


def pool_state(row: inspecting.RuntimeRow) -> str:
    """Return `alive`, `gone`, or `silent` of a pool that nobody has rescued yet although its heartbeat is overdue."""
    stale_s = row.info.get("stale_s")
    overdue = row.heartbeat_age_s > (stale_s if isinstance(stale_s, int | float) else PoolConfig.stale_s)
    return "silent" if row.state == "alive" and overdue else row.state


def _pools(rows: list[inspecting.RuntimeRow]) -> Iterator[Any]:
    """Tell the pools: those that live in a table, the gone ones, which deploys add up, in one line."""
    present = [row for row in rows if row.state != "gone"]
    gone = [row for row in rows if row.state == "gone"]
    if present:
        yield _pool_table(present)
    elif not gone:
        yield Text("No pool has been seen lately.")
    if gone:
        counted = "1 pool is gone," if len(gone) == 1 else f"{len(gone):,} pools are gone, the last"
        yield Text(f"{counted} {render.span(min(row.heartbeat_age_s for row in gone))} ago")


def _pool_table(rows: list[inspecting.RuntimeRow]) -> Any:
    cells = [
        (r.host, r.pid, pool_state(r), r.info.get("workers", "–"), render.span(r.heartbeat_age_s) + " ago",
         render.moment(r.started_at), r.runtime_id)
        for r in rows
    ]  # fmt: skip
    columns = ("host", "pid", "state", "workers", "heartbeat", "started", "runtime")
    return render.table("", columns, cells, right=("pid", "workers"))
