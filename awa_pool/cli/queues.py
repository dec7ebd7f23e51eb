"""The commands `queue …`: pause, resume, count and set up queues."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer
from rich.text import Text

from awa_pool import validation as gate
from awa_pool.administration import RETENTION_S
from awa_pool.errors import ConfigError, ValidationError
from awa_pool.store import dead
from awa_pool.store import statements as do
from awa_pool.store.store import Store
from awa_pool.units import parse_duration, write_duration

from . import render
from .app_facts import declared_queues
from .options import App, DataDir, Dsn, Embedded, Json, Schema
from .status import queue_table
from .stores import store_of

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name", show_default=False)]
_NONE = ("none", "default")


def pause(
    queue: QueueName, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Stop claiming from a queue, on all hosts; running jobs go on."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        _of_a_known_queue(store, do.pause_queue, queue, app)
    print(f"queue {render.plain(queue)} is paused")


def resume(
    queue: QueueName, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Let a paused queue go on."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        paused = any(row.queue == queue and row.paused for row in store.queues())
        _of_a_known_queue(store, do.resume_queue, queue, app)
    print(f"queue {render.plain(queue)} {'is resumed' if paused else 'was not paused'}")


def stats(
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Show how many jobs each queue has in each state."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        rows = store.queue_stats()
    if as_json:
        for row in rows:
            render.print_json(row)
        return
    render.console().print(queue_table(rows) if rows else Text("No queue has jobs."))


def list_queues(
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Show each queue's settings, and whether it is paused."""
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        rows = store.queues()
    if as_json:
        for row in rows:
            render.print_json(row)
        return
    if not rows:
        print("There is no queue yet.")
        return
    cells = [
        (r.queue, f"since {render.moment(r.paused_at)}" if r.paused else "no", *_settings(r)) for r in rows
    ]
    columns = ("queue", "paused", "deadline", "dead letters", "kept for")
    render.console().print(render.table(columns, cells))


def set_queue(
    queue: QueueName,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="How long an attempt may take; none: as its task says")
    ] = None,
    dlq: Annotated[bool, typer.Option("--dlq", help="Failed jobs go to the dead letter queue, as they do by default")] = False,
    no_dlq: Annotated[bool, typer.Option("--no-dlq", help="Failed jobs do not go to the dead letter queue")] = False,
    dlq_retention: Annotated[
        str | None, typer.Option("--dlq-retention", metavar="TIME", help="How long dead jobs are kept; none: as the pool says")
    ] = None,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Change settings of a queue, which need not have any job yet; without flags, show them."""
    gate.checked_queue(queue)
    if dlq and no_dlq:
        raise ConfigError("--dlq and --no-dlq exclude each other; leave one of the two out")
    given: dict[str, Any] = {}
    if deadline is not None:
        given["deadline_s"] = _seconds(deadline, gate.DEADLINE_S, "--deadline", "30s")
    if dlq or no_dlq:
        given["dlq"] = dlq
    if dlq_retention is not None:
        given["dlq_retention_s"] = _seconds(dlq_retention, RETENTION_S, "--dlq-retention", "30d")
    with store_of(dsn=dsn, schema=schema, embedded=embedded, data_dir=data_dir, app=app) as store:
        new = all(row.queue != queue for row in store.queues())
        row = store.run(dead.set_queue(queue, given))
    if as_json:
        render.print_json(row)
        return
    told = zip(("deadline", "dead letters", "kept for"), _settings(row), strict=True)
    print(f"queue {render.plain(queue)}: " + ", ".join(f"{name} {value}" for name, value in told))
    if new:
        print("It is new: no job or setting has named it before.")


def _settings(row: Any) -> tuple[str, str, str]:
    return (
        "none" if row.deadline_s is None else write_duration(row.deadline_s),
        "yes" if row.dlq else "no",
        "as the pool says" if row.dlq_retention_s is None else write_duration(row.dlq_retention_s),
    )


def _seconds(text: str, bounds: tuple[float, float], flag: str, example: str) -> float | None:
    if text.strip().lower() in _NONE:
        return None
    try:
        return gate.checked_seconds(parse_duration(text), bounds, flag)
    except (ConfigError, ValidationError) as error:
        path = f"{flag}: "
        raise ConfigError(f"{path}{str(error).removeprefix(path)}; write {example}, or none") from None


def _of_a_known_queue(store: Store, act: Any, queue: str, app: str | None) -> None:
    """Pause or resume; a name that only the app's tasks know is vouched for, any other is refused with the nearest one."""
    gate.checked_queue(queue)
    try:
        store.run(act(queue))
    except ValidationError:
        declared = declared_queues(app)
        if queue in declared:
            store.run(act(queue, known=True))
            return
        known = sorted({*declared, *(row.queue for row in store.queues())})
        near = difflib.get_close_matches(queue, known, 1)
        names = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        hint = f" (did you mean {near[0]!r}?)" if near else f" (known: {names or 'none'})"
        raise ConfigError(
            f"no job, task or setting knows the queue {queue[:80]!r}{hint}; "
            "a new one is known by the app whose tasks name it (--app), or by a setting of its own (awa-pool queue set)"
        ) from None
