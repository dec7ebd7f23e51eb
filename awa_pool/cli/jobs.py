"""`awa-pool jobs`, `job`, `cancel` and `retry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from awa_pool.body import INT64
from awa_pool.errors import ConfigError, JobNotFound, TransitionRefused, UniqueConflict
from awa_pool.states import State
from awa_pool.store import inspecting
from awa_pool.store import statements as do
from awa_pool.store.callbacks import callback_of
from awa_pool.store.calls import Call
from awa_pool.store.store import Store
from awa_pool.store.unique import key_state

from . import render
from .entry import FAILED, OK, refuse
from .job_view import jobs_table, print_job
from .options import App, DataDir, Dsn, Embedded, Json, Schema, number
from .stores import store_of
from .unknown_queues import warn_of_unheard_queue

_MOST_DIGITS = 100  # Python reads no endless numbers


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


def checked_id(job_id: int) -> int:
    """Return a number that can be a job's. Errors: JobNotFound."""
    if not 0 < job_id <= INT64[1]:
        raise JobNotFound(f"there is no job {job_id}")
    return job_id


def list_jobs(
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help=f"One of {', '.join(State)}")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue")] = None,
    kind: Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind")] = None,
    limit: Annotated[int, number("--limit", "N", 1, 10_000, "How many at most, 1 to 10000")] = 50,
    before: Annotated[
        int | None, number("--before", "ID", 0, INT64[1], "Only jobs older than this one: the next page")
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
        if not rows and queue is not None:
            warn_of_unheard_queue(store, queue)
    if as_json:
        for row in rows:
            render.print_json(row)
        return
    if not rows:
        print("No such jobs.")
        return
    out = render.console()
    for part in jobs_table(rows):
        out.print(part)
    if len(rows) == limit:
        print(f"There may be more: --before {rows[-1].id}")


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
