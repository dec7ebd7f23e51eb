"""The flags, each written once: name and text come from `config`, grouping and placeholder stand here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from awa_pool.config.readers import read_at, whole
from awa_pool.config.settings import SETTINGS

DATABASE, POOL, STOPPING, UPKEEP, LOOK = "Database", "Pool", "Stopping", "Upkeep", "Logs and metrics"


DEFAULTS: dict[str, str] = {
    "schema": "awa_pool",
    "workers": "one per core",
    "start_method": "forkserver",
    "concurrency": "100",
    "max_waiting": "1000",
    "queues": "those that the app's tasks name",
    "drain_timeout_s": "25s",
    "kill_grace_s": "5s",
    "boot_timeout_s": "30s",
    "poll_interval_s": "1s",
    "retention_s": "24h",
    "history_bytes": "1GiB",
    "dlq_retention_s": "30d",
    "max_jobs_per_worker": "never",
    "max_rss_bytes": "never",
    "heartbeat_s": "5s",
    "stale_s": "30s",
    "metrics_port": "off",
    "metrics_host": "127.0.0.1",
    "log_level": "info",
    "log_format": "console",
}


_ABOUT = {
    "dsn": "Address of the database; else AWA_POOL_DSN, the app's own Client(dsn), DATABASE_URL",
    "queues": "A queue to serve and the most of its jobs in flight on this host; may be repeated",
}


def about(name: str) -> str:
    """Return the help text of a `PoolConfig` field, with its default as people write it."""
    text = _ABOUT.get(name, SETTINGS[name].about)
    default = DEFAULTS.get(name)
    return text[0].upper() + text[1:] + (f" (default: {default})" if default else "")


def option(name: str, metavar: str, panel: str, *more: str) -> Any:
    """Return the typer option of one `PoolConfig` field; its text is read and checked by `config`, not here."""
    flag = SETTINGS[name].flag
    return typer.Option(
        flag, *more, help=about(name), metavar=metavar, rich_help_panel=panel, show_default=False
    )


def switch(name: str, panel: str, negative: str = "") -> Any:
    """Return the typer option of a yes-or-no field; without `negative` there is no flag that says no."""
    flag = SETTINGS[name].flag
    flags = f"{flag}/{negative}" if negative else flag
    return typer.Option(flags, help=about(name), rich_help_panel=panel, show_default=False)


def number(flag: str, metavar: str, low: int, high: int, text: str, *more: str) -> Any:
    """Return the typer option of a whole number; one out of range is refused in our words."""
    read = whole(low, high)

    def parse(value: object) -> int:  # a function: typer asks for its name
        return read_at(flag, read, value)

    return typer.Option(flag, *more, metavar=metavar, help=text, parser=parse)


Dsn = Annotated[str | None, option("dsn", "DSN", DATABASE)]
Schema = Annotated[str | None, option("schema", "NAME", DATABASE)]
Embedded = Annotated[bool | None, switch("embedded", DATABASE)]
DataDir = Annotated[str | None, option("data_dir", "FOLDER", DATABASE)]
App = Annotated[str | None, option("app", "MODULE:CLIENT", POOL)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line")]
