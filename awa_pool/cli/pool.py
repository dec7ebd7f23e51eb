"""The pool's own command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from awa_pool.config.layers import load
from awa_pool.config.settings import PoolConfig, variable_of
from awa_pool.errors import ConfigError

from .app_facts import check_app_name
from .database import with_database
from .options import DATABASE, LOOK, POOL, STOPPING, UPKEEP, DataDir, Dsn, Embedded, Schema, option, switch

NO_APP = (
    "no app given: write MODULE:CLIENT, such as awa-pool shop.jobs:client, "
    'or set AWA_POOL_APP, or app = "…" under [tool.awa-pool] (awa-pool --help says more, awa-pool demo shows it)'
)


def pool(
    app: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:CLIENT", help="The Client whose tasks are run", show_default=False),
    ] = None,
    app_flag: Annotated[str | None, option("app", "MODULE:CLIENT", POOL)] = None,
    workers: Annotated[str | None, option("workers", "N", POOL, "-w")] = None,
    queues: Annotated[list[str] | None, option("queues", "NAME[:MAX]", POOL, "-q")] = None,
    concurrency: Annotated[str | None, option("concurrency", "N", POOL)] = None,
    max_waiting: Annotated[str | None, option("max_waiting", "N", POOL)] = None,
    start_method: Annotated[str | None, option("start_method", "forkserver|spawn", POOL)] = None,
    boot_timeout: Annotated[str | None, option("boot_timeout_s", "TIME", POOL)] = None,
    max_jobs_per_worker: Annotated[str | None, option("max_jobs_per_worker", "N", POOL)] = None,
    max_rss: Annotated[str | None, option("max_rss_bytes", "SIZE", POOL)] = None,
    run_dir: Annotated[str | None, option("run_dir", "FOLDER", POOL)] = None,
    dsn: Dsn = None,
    schema: Schema = None,
    embedded: Embedded = None,
    data_dir: DataDir = None,
    listen: Annotated[bool | None, switch("listen", DATABASE, "--no-listen")] = None,
    listen_dsn: Annotated[str | None, option("listen_dsn", "DSN", DATABASE)] = None,
    poll_interval: Annotated[str | None, option("poll_interval_s", "TIME", DATABASE)] = None,
    drain: Annotated[bool | None, switch("drain", STOPPING)] = None,
    drain_timeout: Annotated[str | None, option("drain_timeout_s", "TIME", STOPPING)] = None,
    kill_grace: Annotated[str | None, option("kill_grace_s", "TIME", STOPPING)] = None,
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
    """Run the tasks of an app in worker processes: awa-pool shop.jobs:client --workers 8"""
    if app is not None and app_flag is not None and app != app_flag:
        raise ConfigError(f"two apps given, {app!r} and --app {app_flag!r}; leave one of the two out")
    given = {
        "app": app or app_flag, "workers": workers, "queues": queues or None, "concurrency": concurrency,
        "max_waiting": max_waiting,
        "start_method": start_method, "boot_timeout_s": boot_timeout, "max_jobs_per_worker": max_jobs_per_worker,
        "max_rss_bytes": max_rss, "run_dir": run_dir, "dsn": dsn, "schema": schema, "embedded": embedded,
        "data_dir": data_dir, "listen": listen, "listen_dsn": listen_dsn, "poll_interval_s": poll_interval,
        "drain": drain, "drain_timeout_s": drain_timeout, "kill_grace_s": kill_grace, "retention_s": retention,
        "history_bytes": history_size,
        "dlq_retention_s": dlq_retention, "heartbeat_s": heartbeat, "stale_s": stale_after, "metrics_port": metrics_port,
        "metrics_host": metrics_host, "log_level": log_level, "log_format": log_format,
    }  # fmt: skip
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    if config.app is None:
        raise ConfigError(NO_APP)
    check_app_name(config.app)
    return run(config, sources)


def run(config: PoolConfig, sources: Mapping[str, str]) -> int:
    """Settle the database and run the pool until it ends; returns its exit status."""
    from .running import run_and_show

    # An app's Client that names no schema is for the pool's.
    os.environ[variable_of("schema")] = config.schema
    with with_database(config, sources) as settled:
        return run_and_show(settled)
