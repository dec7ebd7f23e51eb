"""The command `rebase`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from awa_pool.config.layers import load

from . import render
from .database import with_database
from .options import App, DataDir, Dsn, Embedded, Json, Schema

if TYPE_CHECKING:
    from awa_pool.store.housekeeping import RebasePlan


def rebase(
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this the plan is shown and nothing changed")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also when none is needed, or while a pool seems to work on it")
    ] = False,
    as_json: Json = False, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None, app: App = None,
) -> None:  # fmt: skip
    """Make a restored or copied database this cluster's own; without --yes only say what would be done."""
    from awa_pool.store import rebase as rebases

    given = {"dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir, "app": app}
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    with with_database(config, sources) as settled:
        address = str(settled.dsn)
        if yes:
            plan = rebases.rebase(address, settled.schema, force=force)
        else:
            plan = rebases.plan(address, settled.schema)
        done = yes and (force or plan.reason is not None)
        if as_json:
            render.print_json(plan._asdict() | {"done": done})
            return
        for line in _told(plan, settled.schema, done=done, asked=yes, forced=force):
            print(render.plain(line))


def _told(plan: RebasePlan, schema: str, *, done: bool, asked: bool, forced: bool) -> list[str]:
    """Say what was or would be done, a line each."""
    if plan.reason is None and not forced:
        return [f"schema {schema} belongs to this cluster: there is nothing to do"]
    lines = [f"schema {schema} {plan.reason or 'belongs to this cluster'}"]
    would = "" if done else "would be "
    lines.append(f"{plan.unclaimed:,} unclaimed jobs {would}entered anew, in the order of their ids")
    lines.append(
        f"{plan.open_attempts:,} attempts that pools of another cluster held {would}left to the next rescue"
    )
    lines.append(f"sequences {would}set beyond job {plan.top_job} and receipt {plan.top_receipt}")
    if plan.alive and not done:
        lines.append(f"a pool works on it: {', '.join(plan.alive)}; stop it first, or write --force")
    if not asked:
        lines.append("nothing was changed; --yes does it")
    return lines
