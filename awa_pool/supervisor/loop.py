"""The shell of the supervisor: turns what happens into events, carries out commands, blocks in one place only."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from awa_pool.config.readers import QueueSpec
from awa_pool.config.settings import PoolConfig
from awa_pool.messages import Configure, Message, Ready, Stats
from awa_pool.metrics import Figures

from . import events as ev
from .core import Supervisor
from .crash import describe_death, read_account
from .events import WORKER, Command, Event
from .heartbeat import DatabaseAway, DatabaseBack, DatabaseRefused, Heart, KnownQueues, RuntimeGone
from .limit_watch import LimitWatch
from .picture import Painter
from .places import Child
from .processes import Death, Fleet
from .procfs import read_state, reap_strangers
from .run_dir import RunDir
from .settings import App, queues_of, settings_for
from .signals import SignalPipe
from .snapshot import Observer

SAMPLE_EVERY_S = 1.0
SHOW_EVERY_S = 0.5
DEPTHS_WANTED_S = 30.0  # after the last scrape

_log = logging.getLogger("awa_pool.supervisor")


class PoolRun:
    """One run of a pool, from the first child to the last."""

    def __init__(
        self,
        config: PoolConfig,
        app: App,
        core: Supervisor,
        fleet: Fleet,
        run_dir: RunDir,
        signals: SignalPipe,
        make_heart: Callable[[str], Heart],
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.figures = Figures()
        self.runtime_id = str(uuid4())
        self.painter = Painter(core, fleet, run_dir, self.figures, app.title, clock())
        self._limit_watch = LimitWatch(core.limits, fleet, self.painter)
        self._asked_at_s: Callable[[], float | None] | None = None  # the endpoint's, where there is one
        self.heart: Heart | None = None
        self._config = config
        self._app = app
        self._core = core
        self._fleet = fleet
        self._run_dir = run_dir
        self._signals = signals
        self._make_heart = make_heart
        self._observer = observer
        self._clock = clock
        self._queues: tuple[QueueSpec, ...] = config.queues
        self._status: int | None = None
        self._dropping: set[str] = set()
        self._sample_due_s = self._show_due_s = 0.0

    def paint_for(self, asked_at_s: Callable[[], float | None]) -> None:
        """Keep `painter.latest` fresh for an endpoint; `asked_at_s` tells when metrics were last asked for."""
        self._asked_at_s = asked_at_s

    def run(self) -> int:
        """Run until nobody is left; returns the exit status."""
        self._fleet.selector.register(self._signals.fileno(), selectors.EVENT_READ, ("signal", ""))
        self._step(ev.Began(facts_known=bool(self._config.queues) or not self._core.rules.workers))
        # Only now: the import of the driver then overlaps with the children's boot.
        self.heart = self.painter.heart = self._make_heart(self.runtime_id)
        self._fleet.selector.register(self.heart.fileno(), selectors.EVENT_READ, ("heart", ""))
        while self._status is None:
            self._regular()
            if self._status is None:
                for key, _ in self._fleet.selector.select(self._pause_s()):
                    self._happened(*key.data)
        self._show(force=True)
        if not self.heart.say_goodbye(5.0):
            _log.warning(
                "could not say good-bye to the database: the jobs left are rescued when the heartbeat is stale"
            )
        return self._status

    # --- waiting ------------------------------------------------------------------------------------------------

    def _pause_s(self) -> float:
        now_s = self._clock()
        due = [self._core.next_due_s(now_s), self._sample_due_s - now_s, self._limit_watch.due_s() - now_s]
        if self._observer is not None:
            due.append(self._show_due_s - now_s)
        return max(0.001, min(due))

    def _regular(self) -> None:
        """Do what time alone brings."""
        now_s = self._clock()
        if now_s >= self._sample_due_s:
            self._sample_due_s = now_s + SAMPLE_EVERY_S
            self._sample()
        if now_s >= self._limit_watch.due_s():
            for seen in self._limit_watch.look(now_s):
                self._step(seen)
        if self.heart is not None:
            self.heart.want_depths = self._want_depths(now_s)
        self._step(ev.Tick())
        self._fleet.flush()
        self.painter.note(self._clock())
        self._show()

    def _want_depths(self, now_s: float) -> bool:
        asked_at_s = None if self._asked_at_s is None else self._asked_at_s()
        return self._observer is not None or (asked_at_s is not None and now_s - asked_at_s < DEPTHS_WANTED_S)

    def _show(self, force: bool = False) -> None:
        now_s = self._clock()
        if self._observer is not None and (force or now_s >= self._show_due_s):
            self._show_due_s = now_s + SHOW_EVERY_S
            try:
                self._observer.show(self.painter.paint(now_s))
            except Exception:  # noqa: BLE001 (whatever a view raises, jobs go on)
                _log.exception("the live picture failed; the pool goes on without it")
                self._observer = None

    def _sample(self) -> None:
        self._fleet.sample()
        reap_strangers({handle.pid for handle in self._fleet.handles()})
        handles = [handle for handle in self._fleet.handles() if handle.role == WORKER]
        states = {handle.incarnation: read_state(handle.pid) for handle in self._fleet.handles()}
        self.painter.stopped = {incarnation for incarnation, state in states.items() if state in ("T", "t")}
        self._step(ev.ChildrenStopped(frozenset(name for name, state in states.items() if state == "T")))
        if self._asked_at_s is not None:
            self.painter.paint(self._clock())
        if self._config.max_jobs_per_worker or self._config.max_rss_bytes:
            for handle in handles:
                jobs = self.painter.jobs_done(handle)
                busy = self.painter.is_busy(handle)
                self._step(ev.WorkerMeasured(handle.incarnation, jobs, handle.rss_bytes, busy))

    # --- events -------------------------------------------------------------------------------------------------

    def _happened(self, what: str, incarnation: str) -> None:
        if what == "said":
            self._heard(incarnation)
        elif what == "gone":
            self._heard(incarnation)
            death = self._fleet.bury(incarnation)
            if death is not None:
                self._step(self._exit_event(death))
        elif what == "started":
            for refused in self._fleet.take_started():
                self._step(ev.ChildExited(refused.incarnation, refused.cause))
        elif what == "signal":
            for number in self._signals.take():
                self._step(ev.SignalCame(number, number.name))
        elif self.heart is not None:
            for news in self.heart.take():
                self._database_said(news)

    def _heard(self, incarnation: str) -> None:
        for message in self._fleet.heard(incarnation):
            self._said(incarnation, message)

    def _said(self, incarnation: str, message: Message) -> None:
        if isinstance(message, Stats):
            self.figures.take(message.role, incarnation, message.figures)
            self._tell_of_dropped_values(message)
        elif isinstance(message, Ready):
            self._fleet.measure(incarnation)  # it may die before the next regular sample
            if self.heart is not None and "outcomes" in message.facts:
                self.heart.tell({"outcomes": message.facts["outcomes"]})
        self._step(ev.ChildSaid(incarnation, message))

    def _tell_of_dropped_values(self, message: Stats) -> None:
        """Warn once a kind, however many workers come and go: a handler's value that nobody keeps is a misunderstanding."""
        dropped = message.figures.get("dropped")
        if message.role == WORKER and isinstance(dropped, dict):
            for kind, (type_name, job_id) in dropped.items():
                if kind not in self._dropping:
                    self._dropping.add(kind)
                    _log.warning(
                        "job %s, kind %s, is completed, but its handler returned a value of type %s, which is dropped (said once)",
                        job_id, kind, type_name,
                    )  # fmt: skip

    def _database_said(self, news: object) -> None:
        match news:
            case DatabaseRefused(reason=reason):
                self._step(ev.Refused(reason))
            case DatabaseAway(reason=reason):
                _log.warning("the database is away, the pool goes on trying: %s", reason)
            case DatabaseBack():
                _log.info("connected to the database")
            case KnownQueues(names=names):
                self._step(ev.QueuesKnown(names))
            case RuntimeGone():
                self._step(ev.RuntimeLost())

    def _exit_event(self, death: Death) -> ev.ChildExited:
        handle = death.handle
        self.figures.bury(handle.incarnation)
        child = self._core.child(handle.incarnation)
        killed_for = child.killed_for if child is not None else ""
        cause, signal, status = describe_death(
            death.exit_code,
            peak_bytes=handle.peak_bytes,
            killed_for=killed_for,
            memory_kills=death.memory_kills,
        )
        if handle.role != WORKER:
            return ev.ChildExited(handle.incarnation, cause, signal, status)
        path = self._run_dir.page_path(handle.number, handle.incarnation)
        account, view = read_account(path, handle.number, handle.incarnation, cause)
        self.painter.forget(handle.incarnation)
        self._run_dir.remove_page(handle.number, handle.incarnation)
        running = sorted({running.kind for running in view.running}) if view is not None else []
        worked = view is not None and bool(account.started or view.jobs_done)
        return ev.ChildExited(handle.incarnation, cause, signal, status, worked, ", ".join(running), account)

    # --- commands -----------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        for command in self._core.step(event, self._clock()):
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case ev.Start():
                self._fleet.start(command.role, command.number, command.incarnation)
            case ev.Instruct(incarnation=incarnation):
                child = self._core.child(incarnation)
                if child is not None:
                    self._fleet.tell(incarnation, Configure(self._settings(child)))
            case ev.Tell(incarnation=incarnation, message=message):
                self._fleet.tell(incarnation, message)
            case ev.Kill(incarnation=incarnation):
                self._fleet.kill(incarnation)
            case ev.Terminate(incarnation=incarnation, attempt=attempt):
                if self._limit_watch.shows(incarnation, (attempt,), alone=True):
                    self._fleet.terminate(incarnation)
            case ev.KillFor(incarnation=incarnation, attempts=attempts):
                if self._limit_watch.shows(incarnation, attempts):
                    self._fleet.kill(incarnation)
                else:
                    self._step(ev.Spared(incarnation))
            case ev.Settle(facts=facts):
                self._queues = queues_of(self._config, facts)
                names = [queue.name for queue in self._queues]
                _log.info("serving %s", ", ".join(names))
                if self.heart is not None:
                    self.heart.tell({"queues": names})
                self._step(ev.FactsSettled())
            case ev.AskKnownQueues():
                if self.heart is not None:
                    self.heart.ask_known_queues()
            case ev.TakeNewRuntime():
                self.runtime_id = str(uuid4())
                if self.heart is not None:
                    self.heart.take_new_runtime(self.runtime_id)
            case ev.Log(level=level, text=text):
                _log.log(logging.getLevelName(level.upper()), text)
            case ev.Finish(status=status, reason=reason):
                _log.info("the pool has ended: %s", reason)
                self._status = status

    def _settings(self, child: Child) -> dict[str, Any]:
        return settings_for(
            self._config, self._app, self._run_dir, role=child.role, number=child.number,
            incarnation=child.incarnation, runtime_id=self.runtime_id, queues=self._queues,
            stopping=self._core.stopping is not None, first=not child.successor,
            unbroken=None if self.heart is None else self.heart.unbroken,
        )  # fmt: skip
