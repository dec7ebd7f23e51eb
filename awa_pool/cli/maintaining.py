"""The command `maintain`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from awa_pool.config.layers import load

from .database import with_database
from .options import LOOK, UPKEEP, App, DataDir, Dsn, Embedded, Schema, option


def maintain(
    dsn: Dsn = None,
    schema: Schema = None,
    embedded: Embedded = None,
    data_dir: DataDir = None,
    app: App = None,
    retention: Annotated[str | None, option("retention_s", "TIME", UPKEEP)] = None,
    history_size: Annotated[str | None, option("history_bytes", "SIZE", UPKEEP)] = None,
    dlq_retention: Annotated[str | None, option("dlq_retention_s", "TIME", UPKEEP)] = None,
    heartbeat: Annotated[str | None, option("heartbeat_s", "TIME", UPKEEP)] = None,
    stale_after: Annotated[str | None, option("stale_s", "TIME", UPKEEP)] = None,
    metrics_port: Annotated[str | None, option("metrics_port", "PORT", LOOK)] = None,
    metrics_host: Annotated[str | None, option("metrics_host", "ADDRESS", LOOK)] = None,
    log_level: Annotated[str | None, option("log_level", "debug|info|warning|error", LOOK)] = None,
    log_format: Annotated[str | None, option("log_format", "console|json", LOOK)] = None,
) -> int:
    """Run the housekeeping alone: promotion, rescue and the ring, on a host that runs no jobs."""
    from awa_pool.supervisor.main import run_maintenance

    given = {
        "dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir, "app": app,
        "retention_s": retention, "history_bytes": history_size, "dlq_retention_s": dlq_retention,
        "heartbeat_s": heartbeat, "stale_s": stale_after, "metrics_port": metrics_port, "metrics_host": metrics_host,
        "log_level": log_level, "log_format": log_format,
    }  # fmt: skip
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    with with_database(config, sources) as settled:
        return run_maintenance(settled)
