"""Where a pool begins: `run_pool` for the command line, `run_client` for `client.run()`."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from awa_pool import faults
from awa_pool.config.layers import load
from awa_pool.config.settings import PoolConfig
from awa_pool.errors import ConfigError
from awa_pool.logs import flush_logs, set_up_logging
from awa_pool.metrics import Exporter
from awa_pool.store.connection import check_address, shown_address

from .core import Supervisor
from .events import ExitStatus
from .gauges import gauges
from .heartbeat import Heart, Pulse
from .loop import PoolRun
from .patience import Rules
from .processes import Fleet
from .procfs import check_descriptors
from .run_dir import RunDir, make_run_dir
from .settings import App
from .signals import SignalPipe
from .snapshot import Observer

if TYPE_CHECKING:  # imported when a worker is started: on the starter's thread
    from awa_pool.worker.start import WorkerStarter

    from .endpoint import Endpoint

_log = logging.getLogger("awa_pool.supervisor")


def run_pool(config: PoolConfig, app: App | str, *, observer: Observer | None = None) -> int:
    """Run a pool until it is stopped, drained or has to give up; returns the exit status.

    0: stopped or drained, everything stored. 1: gave up, or could not store everything. 2: a flag, app, address,
    schema or limit is wrong (also raised as ConfigError before anything is started). 128 + n: cut short by a second
    signal n. `config.dsn` must be settled; what workers print goes to this process's own output.
    """
    app = app if isinstance(app, App) else App(name=app)
    return _supervise(config, app, config.workers, observer)


def run_maintenance(config: PoolConfig) -> int:
    """Run the housekeeping alone until stopped: no workers, no dispatcher; returns the exit status, as `run_pool`.

    Takes part in the election like the maintenance of any pool, beats as a runtime without workers.
    """
    return _supervise(config, App(label="maintenance"), 0)


def _supervise(config: PoolConfig, app: App, workers: int, observer: Observer | None = None) -> int:
    set_up_logging("supervisor", config.log_level, config.log_format)
    if config.dsn is None:
        raise ConfigError(
            "no database given: write --dsn (dsn=), set AWA_POOL_DSN, give the Client one, or use --embedded (embedded=True)"
        )
    if (warning := faults.warning()) is not None:
        _log.warning("%s", warning)
    check_descriptors(workers)
    run_dir = make_run_dir(config.run_dir)
    starter = _Starter(config, app)
    with SignalPipe() as signals:
        fleet = Fleet(starter.start, keep_going=starter.keep_going)
        try:
            return _run(config, app, workers, fleet, run_dir, signals, observer)
        finally:
            fleet.close()
            starter.close()
            run_dir.remove()
            flush_logs()


def run_client(client: Any, **options: Any) -> int:
    """Run a pool for the tasks of `client` (`client.run(workers=4, drain=True)`); returns the exit status.

    `options` are `PoolConfig` fields; pyproject.toml and AWA_POOL_* count too. With `embedded=True` the embedded server
    runs, or is joined, for as long as the pool does. Errors: ConfigError; EmbeddedError.
    """
    from awa_pool.worker.app import MAIN, check_tasks, pack_app
    from awa_pool.worker.guard import check_may_run

    check_may_run()
    given = {"dsn": getattr(client, "dsn", None), "schema": getattr(client, "schema", None)} | options
    environ = {name: value for name, value in os.environ.items() if name != "AWA_POOL_APP"}
    config, sources = load(given, environ=environ, start=Path.cwd(), in_python=True)
    check_tasks(client.registry, MAIN)
    app = App(blob=pack_app(client))
    if not config.embedded:
        if config.dsn is None and environ.get("DATABASE_URL"):
            config, sources["dsn"] = dataclasses.replace(config, dsn=environ["DATABASE_URL"]), "DATABASE_URL"
        _check_addresses(config, sources)
        return run_pool(config, app)
    from awa_pool.embedded.migrated import migrated_server

    with migrated_server(config.data_dir, config.schema) as dsn:
        return run_pool(dataclasses.replace(config, dsn=dsn, embedded=False), app)


def _check_addresses(config: PoolConfig, sources: Mapping[str, str]) -> None:
    """Refuse an address that cannot be read before anything is started. Errors: ConfigError naming where it was written."""
    for name, dsn in (("dsn", config.dsn), ("listen_dsn", config.listen_dsn)):
        if dsn is not None:
            check_address(dsn, sources[name])


def _run(
    config: PoolConfig,
    app: App,
    workers: int,
    fleet: Fleet,
    run_dir: RunDir,
    signals: SignalPipe,
    observer: Observer | None,
) -> int:
    rules = Rules(
        workers=workers,
        app=app.title,
        boot_timeout_s=config.boot_timeout_s,
        drain_timeout_s=config.drain_timeout_s,
        frozen_s=config.stale_s,
        max_rss_bytes=config.max_rss_bytes,
        queues=tuple(queue.name for queue in config.queues) if workers else (),
    )
    core = Supervisor(rules, os.urandom(3).hex() + ".")
    pool = PoolRun(
        config,
        app,
        core,
        fleet,
        run_dir,
        signals,
        lambda runtime: _heart(config, app, workers, runtime),
        observer,
    )
    endpoint = _endpoint(config, pool)
    _name_this_process(app)
    started = f"{workers} worker{'s' * (workers > 1)} for {app.title}" if workers else app.title
    _log.info("starting %s", started)
    _log.info("the database is at %s", shown_address(config.dsn or ""))
    try:
        return pool.run()
    finally:
        if endpoint is not None:
            endpoint.close()


def _heart(config: PoolConfig, app: App, workers: int, runtime_id: str) -> Heart:
    queues = [queue.name for queue in config.queues]
    info = {"app": app.title, "workers": workers, "queues": queues, "stale_s": config.stale_s}

    def make() -> Pulse:
        from awa_pool.store.connection import connect
        from awa_pool.store.patience import ANSWER_S

        answer_s = min(ANSWER_S, max(2.0, config.stale_s / 3))  # soon enough to try again before others act
        return Pulse(
            lambda: connect(str(config.dsn), config.schema, "supervisor", answer_s=answer_s, owner=True), runtime_id,
            heartbeat_s=config.heartbeat_s, info=info,
        )  # fmt: skip

    return Heart(make)


def _endpoint(config: PoolConfig, pool: PoolRun) -> Endpoint | None:
    if config.metrics_port is None:
        return None
    from .endpoint import Endpoint  # an HTTP server is not worth its import where nobody asks

    exporter = Exporter(pool.figures, lambda: gauges(pool.painter.latest, pool.figures))
    endpoint = Endpoint(config.metrics_host, config.metrics_port, exporter.render, lambda: pool.painter.seen)
    pool.paint_for(lambda: endpoint.asked_at_s)
    _log.info("metrics and health on http://%s:%d", config.metrics_host, endpoint.port)
    return endpoint


def _name_this_process(app: App) -> None:
    import setproctitle

    setproctitle.setproctitle(f"awa-pool: supervisor of {app.title}")


class _Starter:
    """Starts workers; on the fleet's starter thread, where the fork server's parent has to live on."""

    def __init__(self, config: PoolConfig, app: App) -> None:
        self.app = app
        self._method = config.start_method
        self._starter: WorkerStarter | None = None

    def start(self, role: str, number: int, incarnation: str) -> tuple[Any, Any]:
        """Start worker `number`."""
        if self._starter is None:
            from awa_pool.worker.start import WorkerStarter, declare_lasting_thread

            declare_lasting_thread()
            self._starter = WorkerStarter(self._method, self.app.name)
        return self._starter.start(number)

    def keep_going(self) -> None:
        """Wake a fork server that a signal has stopped."""
        starter = self._starter
        if starter is not None:
            starter.keep_going()

    def close(self) -> None:
        """End the fork server."""
        if self._starter is not None:
            self._starter.close()


__all__ = ["App", "ExitStatus", "run_client", "run_maintenance", "run_pool"]
