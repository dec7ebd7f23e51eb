"""Everything a pool can be told, a field each: how it is read, its flag, variable and key."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from awa_pool.errors import ConfigError

from .readers import (
    QueueSpec,
    duration,
    one_of,
    read_at,
    read_flag,
    read_queues,
    read_schema,
    read_text,
    size,
    whole,
)

PREFIX = "AWA_POOL_"
MIN_BEATS = 3  # heartbeats that must fit into one stale threshold


def _setting(
    read: Callable[[object], Any],
    default: Any,
    about: str,
    *,
    flag: str = "",
    key: str = "",
    file: bool = True,
) -> Any:
    about_it = {"read": read, "about": about, "flag": flag, "key": key, "file": file}
    return field(default=default, repr=file, metadata=about_it)  # an address may hold a password: not in repr


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Everything a pool is told. Each field checks itself, then the cross-field rules; errors: ConfigError."""

    app: str | None = _setting(read_text, None, "module:attribute of the Client whose tasks are run")
    dsn: str | None = _setting(
        read_text, None, "address of the database; None: the app's own, then DATABASE_URL", file=False
    )
    schema: str = _setting(read_schema, "awa_pool", "schema that holds the queue")
    listen_dsn: str | None = _setting(read_text, None, "address for LISTEN, around a pooler", file=False)
    embedded: bool = _setting(read_flag, False, "use the embedded server")
    data_dir: str | None = _setting(read_text, None, "where the embedded server keeps its data")
    workers: int = _setting(whole(1, 1024), os.cpu_count() or 1, "worker processes")
    concurrency: int = _setting(whole(1, 10_000), 100, "async jobs that one worker runs at once")
    max_waiting: int = _setting(
        whole(0, 10_000), 1000, "handlers of one worker that may wait for callbacks without holding a slot"
    )
    queues: tuple[QueueSpec, ...] = _setting(
        read_queues, (), "queues to serve, NAME[:MAX]; none: those that the app's tasks name", flag="--queue"
    )
    drain: bool = _setting(read_flag, False, "end when nothing is available or running")
    drain_timeout_s: float = _setting(
        duration(0, 86_400, "25s"), 25.0, "how long running jobs may go on after a stop signal"
    )
    kill_grace_s: float = _setting(
        duration(0, 86_400, "5s"),
        5.0,
        "from an attempt's deadline, or its cancel, to the kill of its worker",
    )
    start_method: str = _setting(one_of("forkserver", "spawn"), "forkserver", "how workers are started")
    boot_timeout_s: float = _setting(
        duration(1, 3600, "30s"), 30.0, "a process not ready after this is replaced"
    )
    poll_interval_s: float = _setting(
        duration(0.01, 60, "1s"), 1.0, "longest pause between two looks at a queue"
    )
    listen: bool = _setting(
        read_flag, True, "wake up on notifications; otherwise by polling only", flag="--listen"
    )
    retention_s: float = _setting(duration(0, 3.2e9, "24h"), 86_400.0, "how long finished jobs are kept")
    history_bytes: int = _setting(
        size(1 << 20, "1GiB"),
        1 << 30,
        "most room for finished jobs",
        flag="--history-size",
        key="history_size",
    )
    dlq_retention_s: float = _setting(
        duration(1, 3.2e9, "30d"), 2_592_000.0, "how long dead jobs are kept, where their queue does not say"
    )
    max_jobs_per_worker: int = _setting(whole(0, 2**53), 0, "replace a worker after so many jobs; 0: never")
    max_rss_bytes: int | None = _setting(
        size(1 << 20, "512MiB"),
        None,
        "replace a worker above this memory, between jobs",
        flag="--max-rss",
        key="max_rss",
    )
    heartbeat_s: float = _setting(
        duration(0.05, 3600, "5s"),
        5.0,
        "pause between two signs of life",
        flag="--heartbeat",
        key="heartbeat",
    )
    stale_s: float = _setting(
        duration(0.2, 86_400, "30s"), 30.0, "silence after which a host's jobs are rescued", flag="--stale-after",
        key="stale_after",
    )  # fmt: skip
    metrics_port: int | None = _setting(
        whole(0, 65_535), None, "serve /metrics, /healthz, /readyz; 0: any free port"
    )
    metrics_host: str = _setting(read_text, "127.0.0.1", "address the endpoint listens on")
    log_level: str = _setting(one_of("debug", "info", "warning", "error"), "info", "least severe line to log")
    log_format: str = _setting(one_of("console", "json"), "console", "how log lines look")
    run_dir: str | None = _setting(
        read_text, None, "private folder for sockets and pages; a fresh one by default"
    )

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            value = getattr(self, setting.name)
            if value is not None:
                object.__setattr__(self, setting.name, read_setting(setting, setting.name, value))
        self._check_together()

    def _check_together(self) -> None:
        if self.stale_s < MIN_BEATS * self.heartbeat_s:
            raise ConfigError(
                f"--stale-after {self.stale_s:g}s holds fewer than {MIN_BEATS} heartbeats of {self.heartbeat_s:g}s; "
                f"write --stale-after {MIN_BEATS * self.heartbeat_s:g}s or more, or a shorter --heartbeat"
            )
        if self.listen_dsn is not None and not self.listen:
            raise ConfigError("--listen-dsn has no use with --no-listen; leave one of the two out")
        if self.embedded and self.dsn is not None:
            raise ConfigError(
                "--embedded and an address exclude each other (--dsn or AWA_POOL_DSN; for client.run() also the Client's "
                "own); leave one of the two out"
            )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of `PoolConfig` as people write it."""

    name: str  # field of PoolConfig
    key: str  # name in pyproject.toml and, in capitals, after AWA_POOL_
    flag: str
    about: str
    read: Callable[[object], Any]
    in_file: bool


def _settings() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for item in dataclasses.fields(PoolConfig):
        plain = item.name.removesuffix("_s")
        flag = item.metadata["flag"] or "--" + plain.replace("_", "-")
        found[item.name] = Setting(
            name=item.name, key=item.metadata["key"] or plain, flag=flag, about=item.metadata["about"],
            read=item.metadata["read"], in_file=item.metadata["file"],
        )  # fmt: skip
    return found


SETTINGS: Mapping[str, Setting] = _settings()
BY_KEY = {setting.key: setting for setting in SETTINGS.values()}
WITH_UNIT = {
    "drain_timeout_s",
    "kill_grace_s",
    "boot_timeout_s",
    "poll_interval_s",
    "retention_s",
    "dlq_retention_s",
    "heartbeat_s",
    "stale_s",
} | {
    "history_bytes",
    "max_rss_bytes",
}


def flag_of(name: str) -> str:
    """Return the command line flag of a `PoolConfig` field."""
    return SETTINGS[name].flag


def variable_of(name: str) -> str:
    """Return the environment variable of a `PoolConfig` field."""
    return PREFIX + SETTINGS[name].key.upper()


def read_setting(setting: Setting, label: str, value: object) -> Any:
    """Read one value. Errors: ConfigError that begins with the label, the place where it was written."""
    return read_at(label, setting.read, value)
