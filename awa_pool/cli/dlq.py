"""The commands `dlq …`: look at dead jobs, give them another life, delete them, move jobs there by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from awa_pool import validation as gate
from awa_pool.dead_letters import (
    ENDED_STATES,
    BulkResult,
    DeadCount,
    DeadFilter,
    DeadJob,
    bulk_filter,
    checked_reason,
    filter_of,
)
from awa_pool.errors import ConfigError, JobNotFound, TransitionRefused, ValidationError
from awa_pool.store import dead, inspecting
from awa_pool.store.store import Store
from awa_pool.store.unique import key_state
from awa_pool.units import parse_duration

from . import render
from .app_facts import declared_queues
from .database import at_a_terminal
from .entry import FAILED, OK
from .job_view import print_job
from .jobs import JobId, checked_id, job_number
from .options import App, DataDir, Dsn, Embedded, Json, Schema, number
from .stores import store_of
from .unknown_queues import warn_of_unheard_queue, warn_of_unknown_queue

SAMPLE_JOBS = 5
SHOWN_REFUSALS = 20
PROGRESS_JOBS = 10_000

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="[ID]...", help="Jobs by number", show_default=False, parser=job_number),
]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only of this kind")]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Only of this queue")]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only with this tag")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only that ended for this reason")
]
After = Annotated[
    str | None, typer.Option("--after", metavar="TIME", help="Only that ended since: 2026-01-31T12:00Z, or an age such as 2h")
]  # fmt: skip
Before = Annotated[
    str | None, typer.Option("--before", metavar="TIME", help="Only that ended before: an instant or an age, as --after")
]  # fmt: skip
All = Annotated[bool, typer.Option("--all", help="Every one, without any filter")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show how many and which")]


def list_dead(
    kind: Kind = None, queue: Queue = None, tag: Tag = None, reason: Reason = None, after: After = None,
    before: Before = None,
    limit: Annotated[int, number("--limit", "N", 1, 1000, "How many at most, 1 to 1000")] = 100,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="TIME,ID", help="Where the next page starts, as told by the last one")
    ] = None,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """List dead jobs, the newest death first."""
    chosen = _filter(filter_of, None, kind, queue, tag, reason, after, before)
    start = None if cursor is None else _cursor(cursor)
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        rows = store.run(dead.list_dead(chosen, limit, start))
        if not rows and queue is not None:
            warn_of_unheard_queue(store, queue)
    if as_json:
        for row in rows:
            render.print_json(row)
        return
    if not rows:
        print("No such dead jobs.")
        return
    render.console().print(_table(rows))
    if len(rows) == limit:
        print(f"There may be more: --cursor {rows[-1].died_at.isoformat()},{rows[-1].id}")


def show(
    job_id: JobId, as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Show everything about one dead job, its arguments and errors included."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        row = store.run(inspecting.job(checked_id(job_id)))
        key = store.run(key_state(job_id))
    if row is None:
        raise JobNotFound(f"there is no job {job_id}")
    if not row.dead:
        raise TransitionRefused(
            f"job {job_id} is {row.state}, and not in the dead letter queue: awa-pool job {job_id}"
        )
    print_job(row, key, as_json=as_json)


def retry(
    ids: Ids = None, kind: Kind = None, queue: Queue = None, tag: Tag = None, reason: Reason = None, after: After = None,
    before: Before = None, every: All = False, yes: Yes = False, dry_run: DryRun = False,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="When they run: 2026-01-31T12:00Z, or in such as 10m; now by default")
    ] = None,
    priority: Annotated[int | None, number("--priority", "N", *gate.PRIORITIES, "Give them this priority, 1 to 4")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", metavar="NAME", help="Put them into this queue")] = None,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> int:  # fmt: skip
    """Give dead jobs all their attempts again: by number, by a filter, or --all of them."""
    chosen = _filter(bulk_filter, ids, kind, queue, tag, reason, after, before, every)
    due = None if run_at is None else gate.checked_run_at(instant(run_at, "--run-at", ahead=True))
    change: dict[str, Any] = {
        "run_at": due,
        "priority": priority,
        "queue": None if to_queue is None else gate.checked_name(to_queue, "--to-queue"),
    }
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        agreed = _agreed(store, chosen, "Retry", yes=yes, dry_run=dry_run, as_json=as_json)
        if agreed is not None and to_queue is not None:
            warn_of_unknown_queue(store, to_queue, declared_queues(app))
        result = BulkResult()
        return OK if agreed is None else _carry_out(
            store, dead.retry_dead(agreed, result, **change), result, "retried", as_json
        )  # fmt: skip


def purge(
    ids: Ids = None, kind: Kind = None, queue: Queue = None, tag: Tag = None, reason: Reason = None, after: After = None,
    before: Before = None, every: All = False, yes: Yes = False, dry_run: DryRun = False,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> int:  # fmt: skip
    """Delete dead jobs for good: by number, by a filter, or --all of them."""
    chosen = _filter(bulk_filter, ids, kind, queue, tag, reason, after, before, every)
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        agreed = _agreed(store, chosen, "Delete", yes=yes, dry_run=dry_run, as_json=as_json)
        result = BulkResult()
        return OK if agreed is None else _carry_out(
            store, dead.purge_dead(agreed, result), result, "deleted", as_json
        )  # fmt: skip


def move(
    ids: Ids = None,
    state: Annotated[
        str, typer.Option("--state", metavar="STATE", help="With a filter: jobs that ended failed, or cancelled")
    ] = "failed",
    kind: Kind = None, queue: Queue = None, tag: Tag = None, reason: Reason = None, after: After = None,
    before: Before = None, every: All = False, yes: Yes = False, dry_run: DryRun = False,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason they get")] = "manual",
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> int:  # fmt: skip
    """Move jobs into the dead letter queue by hand: any that does not run by number, ended ones by a filter."""
    if state not in ENDED_STATES:
        raise ConfigError(f"--state: {state[:80]!r} is not possible; write one of {', '.join(ENDED_STATES)}")
    chosen = _filter(bulk_filter, ids, kind, queue, tag, reason, after, before, every)
    checked_reason(why)
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        agreed = _agreed(store, chosen, "Move", yes=yes, dry_run=dry_run, as_json=as_json, state=state)
        result = BulkResult()
        return OK if agreed is None else _carry_out(
            store, dead.move_many_to_dead(agreed, state, why, result), result, "moved", as_json
        )  # fmt: skip


# --- choosing --------------------------------------------------------------------------------------------------


def _filter(
    make: Callable[..., DeadFilter], ids: list[int] | None, kind: str | None, queue: str | None, tag: str | None,
    reason: str | None, after: str | None, before: str | None, every: bool | None = None,
) -> DeadFilter:  # fmt: skip
    """Read a filter. Errors: ConfigError that names flags."""
    more = {} if every is None else {"all": every}
    try:
        return make(
            ids or None, kind=kind, queue=queue, tag=tag, reason=reason,
            after=None if after is None else instant(after, "--after"),
            before=None if before is None else instant(before, "--before"), **more,
        )  # fmt: skip
    except ValidationError as error:
        if error.path == "filter":
            raise ConfigError(
                "which jobs? Write their numbers, a filter (--kind, --queue, --tag, --reason, --after, --before), or --all"
            ) from None
        if error.path == "all":
            raise ConfigError("--all takes every job: leave it out, or the filter") from None
        raise


def instant(text: str, flag: str, *, ahead: bool = False) -> datetime:
    """Read `2026-01-31T12:00Z`, or a duration: an age, or with `ahead` a time from now."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            span = timedelta(seconds=parse_duration(text))
            now = datetime.now(UTC)
            return now + span if ahead else now - span
        except (ConfigError, OverflowError):
            raise ConfigError(
                f"{flag}: {text[:80]!r} is no time; write 2026-01-31T12:00Z, or such as 2h"
            ) from None
    if at.utcoffset() is None:
        raise ConfigError(f"{flag}: {text[:80]!r} has no time zone; write {at.isoformat()}Z for UTC")
    return at


def _cursor(text: str) -> tuple[datetime, int]:
    at, comma, job_id = text.rpartition(",")
    if not comma or not job_id.isdecimal() or not 0 < int(job_id) < 2**63:
        raise ConfigError(f"--cursor: {text[:80]!r} is not possible; copy it from the end of the page before")
    return instant(at, "--cursor"), int(job_id)


# --- asking ------------------------------------------------------------------------------------------------------


def _agreed(
    store: Store,
    chosen: DeadFilter,
    verb: str,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    state: str | None = None,
) -> DeadFilter | None:
    """Show how many jobs are meant, and some of them, and ask; None: leave them. Jobs named by number need no question.

    A dry run for programs is the count alone, as an object on standard output.
    """
    if chosen.ids is not None and not dry_run:
        return chosen
    count = store.run(dead.count_dead(chosen) if state is None else dead.count_ended(state, chosen))
    if dry_run and as_json:
        render.print_json(count)
        return None
    print(_counted(count, "dead" if state is None else state), file=sys.stderr)
    if not count.jobs:
        if chosen.queue is not None:
            warn_of_unheard_queue(store, chosen.queue)
        if as_json:
            _print_result(BulkResult())
        return None
    if state is None and chosen.ids is None:
        sample = store.run(dead.list_dead(chosen, SAMPLE_JOBS, None))
        render.console(sys.stderr).print(_table(sample))
    if dry_run:
        return None
    if not yes:
        question = f"{verb} {count.jobs:,} job{'s' * (count.jobs != 1)}?"
        if not at_a_terminal():
            raise ConfigError(f"{question} Nobody can be asked here: add --yes")
        if not typer.confirm(question, err=True):
            print("Nothing was changed.", file=sys.stderr)
            return None
    return chosen.until(count.counted_at)


def _counted(count: DeadCount, what: str) -> str:
    parts = ", ".join(f"{jobs:,} {render.plain(reason)}" for reason, jobs in list(count.reasons.items())[:10])
    fit = "job fits" if count.jobs == 1 else "jobs fit"
    return f"{count.jobs:,} {what} {fit}" + (f": {parts}" if parts else "")


# --- doing -------------------------------------------------------------------------------------------------------


def _carry_out(store: Store, steps: dead.Steps, result: BulkResult, verb: str, as_json: bool) -> int:
    """Run the steps and tell what became of the jobs; 1 when one stayed where it was."""
    shown = 0

    def run(call: Any) -> Any:
        nonlocal shown
        if result.done - shown >= PROGRESS_JOBS:
            shown = result.done
            print(f"{shown:,} {verb} so far", file=sys.stderr)
        return store.run(call)

    try:
        dead.run_steps(steps, run)
    except BaseException:
        print(
            f"Cut short after {result.done:,} jobs were {verb}; the same command goes on with the rest.",
            file=sys.stderr,
        )
        raise
    if as_json:
        _print_result(result)
    else:
        print(f"{result.done:,} job{'s' * (result.done != 1)} {verb}")
        for each in result.refused[:SHOWN_REFUSALS]:
            why = each.why.replace(f"job {each.job_id} ", "it ", 1)  # named already
            print(f"job {each.job_id} stays: {render.plain(why)}")
        if result.refused_jobs > SHOWN_REFUSALS:
            print(f"… and {result.refused_jobs - SHOWN_REFUSALS:,} more stay")
    return FAILED if result.refused_jobs else OK


def _print_result(result: BulkResult) -> None:
    refused = [each._asdict() for each in result.refused]
    render.print_json({"done": result.done, "refused_jobs": result.refused_jobs, "refused": refused})


def _table(rows: list[DeadJob]) -> Any:
    cells = [
        (r.id, r.kind, r.queue, f"{r.attempt}/{r.max_attempts}", render.moment(r.died_at), r.reason,
         Text(render.shortened(r.error, 100)), r.args_preview[:60] + ("…" if r.args_bytes > 60 else ""))
        for r in rows
    ]  # fmt: skip
    columns = ("id", "kind", "queue", "attempt", "died", "reason", "error", "args")
    return render.table(
        columns, cells, ("id", "attempt"), text=("error", "args"), spare=("attempt", "died", "reason")
    )
