"""The worker process from its first message to its exit status; `run` is the target that `start` launches."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import threading
import time
from typing import Any

import setproctitle

from awa_pool import wire
from awa_pool.control import Connection, ControlPipe
from awa_pool.errors import AwaError, ConfigError
from awa_pool.messages import Configure, Drained, Fatal, Ready
from awa_pool.page.layout import KillRule
from awa_pool.page.writing import Page
from awa_pool.registry import Registry

from . import guard, owed
from .app import check_tasks, load_app, title_of
from .asynchronous import AsyncLane
from .core import LaneCore
from .endings import Endings
from .failing import Failures
from .lane import Lane
from .limits import Alarm
from .loop import WorkerLoop
from .output import TaggedStream, Tags, finish_lines, install
from .process import become_worker, reseed, resident_bytes
from .quota import Quota
from .registering import NOT_TO_BREAK, Registrar
from .reporting import Reporter
from .spec_failures import SpecFailures
from .sync import SyncExecutor
from .telling import Teller

ROLE = "worker"
EXIT_FATAL = 1
EXIT_ORPHANED = 3
_CONFIGURE_S = 60.0
_HOOKS_S = 2.0  # for events that hooks have not been told when a worker ends
_LEAVE_S = 2.0  # threads and processes that handlers left behind delay the exit for at most this long

_log = logging.getLogger(__name__)


def run(connection: Connection, parent_pid: int | None = None) -> None:
    """Be a worker until told to stop; exits 0 after a drain, 1 when it cannot work, 3 when the supervisor is gone.

    `parent_pid` is the process whose death must end this one.
    """
    guard.mark_child()
    become_worker(parent_pid)
    pipe = ControlPipe(connection)
    configure = pipe.wait(_CONFIGURE_S)
    if not isinstance(configure, Configure):
        os._exit(EXIT_ORPHANED)
    settings = configure.settings
    tags = install(settings)
    try:
        drained = _work(pipe, settings, tags)
    except Exception as error:  # noqa: BLE001 (top of the process: the supervisor has to know why it ends)
        reason = str(error) if isinstance(error, AwaError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, AwaError):  # a refusal is the supervisor's to say, once for all workers
            _log.exception("worker %s cannot go on: %s", settings.get("worker"), reason)
        pipe.send(Fatal(ROLE, reason))
        _leave(pipe, EXIT_FATAL)
    if not drained:
        os._exit(EXIT_ORPHANED if pipe.closed else 0)
    pipe.send(Drained(ROLE, str(settings["incarnation"])))
    _leave(pipe, 0)


def _work(pipe: ControlPipe, settings: dict[str, Any], tags: Tags) -> bool:
    """Boot, work, and run the app's stop hooks; True when it was a drain that ended it."""
    number, incarnation = int(settings["worker"]), str(settings["incarnation"])
    title = f"awa-pool: worker {number}"
    setproctitle.setproctitle(title)
    reseed()
    registry = load_app(settings)
    if what := title_of(settings):
        check_tasks(registry, what)
    for hook in registry.process_start:
        _call_hook(hook, "process_start")
    kinds = {kind: task.beside_others for kind, task in registry.tasks.items()}
    sync_kinds = [kind for kind, beside in kinds.items() if not beside]
    async_kinds = [kind for kind, beside in kinds.items() if beside]
    facts = _facts(registry, sync_kinds, async_kinds)
    registry.tasks[owed.KIND] = owed.outcome_task(registry, spec_failures := SpecFailures())
    kinds[owed.KIND] = False
    (async_kinds if async_kinds and not sync_kinds else sync_kinds).append(owed.KIND)  # no lane for it alone
    capacity = max(1, int(settings.get("concurrency") or 1))
    rules = _kill_rules(registry, float(settings.get("kill_grace_s") or 0.0))
    places = capacity + int(settings.get("max_waiting") or 0) if async_kinds else 1
    page = Page.create(str(settings["page_path"]), places, list(kinds), rules=rules)
    teller, reporter, registrar = Teller(registry, tags), Reporter(settings), Registrar(settings)
    failures, name = Failures(tags, registry.tasks), str(settings.get("app") or "__main__")
    endings = Endings(
        registry, name, random.Random(), teller.tell, reporter, registrar, failures, spec_failures
    )
    quota = Quota(int(settings.get("max_jobs") or 0), time.monotonic())
    loop = WorkerLoop(pipe, ROLE, incarnation, quota, endings, registrar)
    if sync_kinds:
        core = LaneCore(number, incarnation, "sync", 1, sync_kinds)
        lane = Lane(core, page.sync, settings, "sync", teller.tell)

        def show_title(kind: str | None) -> None:
            setproctitle.setproctitle(f"{title}: {kind}" if kind else title)

        executor = SyncExecutor(
            endings, page.sync, page.kind_numbers, tags, loop.is_cancelled, core.cancelled, show_title,
            Alarm([WorkerLoop.is_cancelled.__code__, TaggedStream.write.__code__, *NOT_TO_BREAK]), quota,
        )  # fmt: skip
        loop.add_sync(lane, executor)
    pipe.send(Ready(ROLE, incarnation, facts))
    if async_kinds:
        core = LaneCore(number, incarnation, "async", capacity, async_kinds)
        async_lane = AsyncLane(
            core, page.async_, page.kind_numbers, endings, tags, settings, capacity, quota, registrar
        )
        async_lane.start()
        loop.add_async(async_lane)
    gc.freeze()  # what boot has made stays: collections look at what jobs make
    drained = loop.run()
    if drained:
        loop.tell_figures()
        failures.flush(all=True)
        teller.close(_HOOKS_S)
        _stop(registry)
        reporter.close()
        registrar.close()
        if loop.close():
            wire.terminate()
    return drained


def _kill_rules(registry: Registry, grace_s: float) -> dict[str, KillRule]:
    """Say of each kind when the supervisor may kill for it; `grace_s` is the pool's own."""
    return {
        kind: KillRule(grace_s if task.grace_s is None else task.grace_s, task.cancel_kill)
        for kind, task in registry.tasks.items()
    }


def _facts(registry: Registry, sync_kinds: list[str], async_kinds: list[str]) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "kinds": [*sync_kinds, *async_kinds],
        "async_kinds": list(async_kinds),
        "queues": registry.queues(),
        "rss_bytes": resident_bytes(),
        "outcomes": registry.triggers.wanted((task.kind, task.args_type) for task in registry.tasks.values()),
    }


def _call_hook(hook: Any, when: str) -> None:
    try:
        hook()
    except (Exception, SystemExit) as error:
        name = getattr(hook, "__qualname__", repr(hook))
        raise ConfigError(f"{when} hook {name} raised {type(error).__name__}: {error}") from error


def _stop(registry: Registry) -> None:
    for hook in registry.process_stop:
        try:
            _call_hook(hook, "process_stop")
        except ConfigError as error:
            _log.error("%s", error)


def _leave(pipe: ControlPipe, status: int) -> None:
    """Exit in the usual way (hooks of the interpreter and of multiprocessing run), but within `_LEAVE_S`."""

    def cut() -> None:
        time.sleep(_LEAVE_S)
        os._exit(status)

    pipe.flush(1.0)
    finish_lines()
    threading.Thread(target=cut, daemon=True).start()
    sys.exit(status)
