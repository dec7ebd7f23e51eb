"""`awa-pool status`: pools, queues, callbacks that are waited for, and the ring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from awa_pool.config.settings import PoolConfig
from awa_pool.store import inspecting
from awa_pool.store.callbacks import list_waits
from awa_pool.units import write_duration

from . import render, rings, waits
from .options import App, DataDir, Dsn, Embedded, Json, Schema
from .stores import store_of

ESTIMATED_FROM = 10_000  # below that every count is exact, see sql/functions/queue_stats.sql


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
    # On a narrow terminal: the states that no job is in, but for what everybody looks for.
    nowhere = [name for name in names[2:] if not any(getattr(row, name) for row in rows)]
    made = render.table(("queue", *names, "oldest"), cells, (*names, "oldest"), spare=nowhere)
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
    return render.table(columns, cells, ("pid", "workers"), spare=("runtime", "started"))
