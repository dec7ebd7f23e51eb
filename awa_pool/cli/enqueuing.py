"""The command `enqueue`: one job from a shell, checked by the app as its own client would."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from awa_pool import validation as gate
from awa_pool.client import Client
from awa_pool.config.layers import load
from awa_pool.errors import ConfigError, DecodeError
from awa_pool.registry import Registry, Task
from awa_pool.store.connection import connect

from . import render
from .app_facts import check_app_name
from .database import with_database
from .dlq import instant
from .options import DataDir, Dsn, Embedded, Json, Schema, number
from .unknown_queues import warn_of_unknown_queue


def enqueue(
    app: Annotated[str, typer.Argument(metavar="APP", help="MODULE:CLIENT, the app that knows the kind", show_default=False)],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of the job", show_default=False)],
    args: Annotated[str, typer.Argument(metavar="[ARGS]", help="Its arguments, a JSON object", show_default=False)] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="Its queue; else as the task says")] = None,
    priority: Annotated[int | None, number("--priority", "N", *gate.PRIORITIES, "Its priority, 1 to 4; else as the task says")] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="When it runs: 2026-01-31T12:00Z, or in such as 10m; now by default")
    ] = None,
    max_attempts: Annotated[
        int | None, number("--max-attempts", "N", *gate.ATTEMPTS, "How often it is tried; else as the task says")
    ] = None,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None, data_dir: DataDir = None,
) -> None:  # fmt: skip
    """Put one job in: awa-pool enqueue shop:client render_invoice '{"order_id": 7}'"""
    from awa_pool.worker.app import load_app

    check_app_name(app)
    document = _document(args)
    due = None if run_at is None else gate.checked_run_at(instant(run_at, "--run-at", ahead=True))
    given = {"app": app, "dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir}
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with with_database(config, sources) as settled:
        registry = load_app({"app": app, "schema": settled.schema, "dsn": settled.dsn})
        task = _task(registry, kind, app)
        made = _checked(registry, task, document)
        if queue is not None and queue not in registry.queues():
            with contextlib.closing(connect(str(settled.dsn), settled.schema, "cli")) as store:
                warn_of_unknown_queue(store, queue, registry.queues())
        with Client(settled.dsn, schema=settled.schema) as client:
            client.registry = registry
            job_id = client.insert(
                made, kind=kind, queue=queue, priority=priority,
                max_attempts=max_attempts, run_at=due,
            )  # fmt: skip
    if as_json:
        render.print_json({"id": job_id})
    else:
        print(f"job {job_id}")


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"ARGS: no JSON ({problem}); write an object, such as '{{\"order_id\": 7}}'"
        ) from None
    if not isinstance(document, dict):
        raise ConfigError("ARGS: write a JSON object, such as '{\"order_id\": 7}'")
    return document


def _task(registry: Registry, kind: str, app: str) -> Task:
    """Return the task of a kind: a pool of this app would fail a job of any other."""
    if (task := registry.tasks.get(kind)) is not None:
        return task
    near = difflib.get_close_matches(kind, registry.tasks, 1)
    names = ", ".join(sorted(registry.tasks)[:20]) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"it knows {names}"
    raise ConfigError(f"app {app!r} has no task of kind {kind[:80]!r}; {hint}")


def _checked(registry: Registry, task: Task, document: dict[str, Any]) -> Any:
    """Return the args as the handler would get them. Errors: ConfigError naming the field."""
    try:
        return registry.decode_args(task, document)
    except DecodeError as problem:
        raise ConfigError(f"ARGS: {problem}") from None
