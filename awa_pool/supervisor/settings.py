"""What each child is told when it starts: plain values for `Configure`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from awa_pool.config.readers import QueueSpec
from awa_pool.config.settings import PoolConfig
from awa_pool.errors import ConfigError

from .events import WORKER
from .run_dir import RunDir

WINDOW_JOBS = 4096
WINDOW_BYTES = 64 << 20
DEFAULT_QUEUE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The user's app: a name to import, or the Client itself, packed, when it was defined in `__main__`."""

    name: str | None = None
    blob: str | None = None
    label: str = "the app of __main__"

    @property
    def title(self) -> str:
        """How people call it."""
        return self.name or self.label


def queues_of(config: PoolConfig, facts: dict[str, Any]) -> tuple[QueueSpec, ...]:
    """Return the queues to serve: those asked for, else those that the app's tasks name."""
    if config.queues:
        return config.queues
    names = facts.get("queues") or [DEFAULT_QUEUE]
    return tuple(QueueSpec(str(name)) for name in names)


def settings_for(
    config: PoolConfig,
    app: App,
    run_dir: RunDir,
    *,
    role: str,
    number: int,
    incarnation: str,
    runtime_id: str,
    queues: tuple[QueueSpec, ...],
    stopping: bool = False,
    first: bool = False,
    unbroken: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return the settings of one child. Workers run user code: they get the app, and the address for its own Client.

    `unbroken`: since when this host's heartbeat has been answered without a gap, and when last (monotonic clock).
    """
    if config.dsn is None:
        raise ConfigError(
            "no database given: write --dsn (dsn=), set AWA_POOL_DSN, give the Client one, or use --embedded (embedded=True)"
        )
    settings: dict[str, Any] = {
        "role": role,
        "incarnation": incarnation,
        "runtime_id": runtime_id,
        "schema": config.schema,
        "run_dir": str(run_dir.path),
        "dispatcher_path": run_dir.dispatcher_path,
        "finalizer_path": run_dir.finalizer_path,
        "log_level": config.log_level,
        "log_format": config.log_format,
        "drain": config.drain,
        "stopping": stopping,
        "first": first,
        "workers": config.workers,
    }
    if role == WORKER:
        return settings | {
            "worker": number,
            "dsn": config.dsn,
            "app": app.name,
            "app_blob": app.blob,
            "concurrency": config.concurrency,
            "max_waiting": config.max_waiting,
            "kill_grace_s": config.kill_grace_s,
            "max_jobs": config.max_jobs_per_worker,
            "page_path": run_dir.page_path(number, incarnation),
        }
    return settings | {
        "dsn": config.dsn,
        "listen_dsn": config.listen_dsn,
        "queues": [[queue.name, queue.max] for queue in queues],
        "poll_interval_s": config.poll_interval_s,
        "listen": config.listen,
        "retention_s": config.retention_s,
        "history_bytes": config.history_bytes,
        "dlq_retention_s": config.dlq_retention_s,
        "stale_s": config.stale_s,
        "heartbeat_s": config.heartbeat_s,
        "unbroken": unbroken,
        "window_jobs": WINDOW_JOBS,
        "window_bytes": WINDOW_BYTES,
    }
