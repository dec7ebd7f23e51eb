"""The command `migrate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from awa_pool.config.layers import load

from .database import with_database
from .options import App, DataDir, Dsn, Embedded, Schema


def migrate(
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL of a fresh install; touch no database")
    ] = False,
    accept_system_id: Annotated[
        bool,
        typer.Option("--accept-system-id", help="After pg_upgrade: take this cluster as the schema's own"),
    ] = False,
    dsn: Dsn = None,
    schema: Schema = None,
    embedded: Embedded = None,
    data_dir: DataDir = None,
    app: App = None,
) -> None:
    """Install or upgrade the schema; safe to run again, and by several hosts at once."""
    from awa_pool.store import migrate as migrations

    given = {"dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir, "app": app}
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    if sql:
        print(migrations.migration_sql(config.schema), end="")
        return
    with with_database(config, sources) as settled:
        print(migrations.migrate(str(settled.dsn), settled.schema, accept_system_id))
