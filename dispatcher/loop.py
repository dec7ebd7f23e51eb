"""The dispatcher's shell: sockets, pipe, database thread and listener around the core; blocks in one place only."""

from __future__ import annotations

import logging
import time
from collections import deque

from awa_pool.control import ControlPipe
from awa_pool.errors import WireError
from awa_pool.events import Exit, Note, SupervisorSaid, Tick, ToSupervisor
from awa_pool.faults import reach
from awa_pool.messages import Stats
from awa_pool.store.mailbox import Mailbox
from awa_pool.wire import Dealer, Poller, Router

from .core import Dispatcher
from .database import Database
from .events import (
    Claimed,
    Command,
    Event,
    FinalizerSaid,
    Heard,
    ReadPage,
    ReadPages,
    ReadRunning,
    Send,
    ToFinalizer,
    Undeliverable,
)
from .pages import look, look_at_running, look_everywhere

STATS_EVERY_S = 1.0
LEAST_NAP_S = 0.002
ROLE = "dispatcher"
_log = logging.getLogger("awa_pool.dispatcher")


class Loop:
    """Feeds the core what comes and carries out what it says, until it exits or the supervisor is gone."""

    def __init__(
        self,
        core: Dispatcher,
        pipe: ControlPipe,
        workers: Router,
        finalizer: Dealer,
        mailbox: Mailbox,
        database: Database,
        run_dir: str,
    ) -> None:
        self._core = core
        self._pipe = pipe
        self._workers = workers
        self._finalizer = finalizer
        self._mailbox = mailbox
        self._database = database
        self._run_dir = run_dir
        self._back: deque[Event] = deque()  # answers that are known while a command is carried out
        self._running = True

    def run(self) -> bool:
        """Work until all is done; False when the supervisor is gone."""
        poller = Poller([self._pipe, self._workers, self._finalizer, self._mailbox])
        sleeper = Poller([self._pipe, self._mailbox])
        stats_s = time.monotonic()
        self._step(Tick())
        while self._running and not self._pipe.closed:
            now_s = time.monotonic()
            if now_s >= stats_s:
                stats_s = now_s + STATS_EVERY_S
                self._pipe.send(Stats(ROLE, self._core.settings.incarnation, self._core.figures(now_s)))
            due_s = self._core.next_tick_s()
            wait_s = max(0.0, min(stats_s, stats_s if due_s is None else due_s) - now_s)
            deaf_s = self._core.deaf_until_s()
            if deaf_s is not None and deaf_s - now_s > LEAST_NAP_S:
                ready = sleeper.wait(min(wait_s, deaf_s - now_s))
                self._read(self._workers)
                self._read(self._finalizer)
            else:
                ready = poller.wait(wait_s)
            if not ready:
                self._step(Tick())
            for source in ready:
                self._read(source)
        return not self._pipe.closed

    def _read(self, source: object) -> None:
        if source is self._workers:
            heard = self._workers.receive()
            while heard is not None and self._running:
                following = self._workers.receive()
                self._step(Heard(heard[0], heard[1]), more=following is not None)
                heard = following
        elif source is self._finalizer:
            while self._running and (said := self._finalizer.receive()) is not None:
                self._step(FinalizerSaid(said[1]))
        elif source is self._mailbox:
            for answer in self._mailbox.take():
                if (event := self._database.event(answer)) is not None:
                    if isinstance(event, Claimed) and event.receipts:
                        reach("dispatcher.claimed")
                    self._step(event)
        else:
            while (spoken := self._pipe.receive()) is not None:
                self._step(SupervisorSaid(spoken))

    def _step(self, event: Event, *, more: bool = False) -> None:
        self._back.append(event)
        while self._back and self._running:
            for command in self._core.step(self._back.popleft(), time.monotonic(), more=more):
                self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Send(peer, message, payload):
                try:
                    sent = self._workers.send(peer, message, *(() if payload is None else (payload,)))
                except WireError as error:
                    _log.error("%s cannot be sent: %s", type(message).__name__, error)
                    sent = False
                if not sent:
                    self._back.append(Undeliverable(peer, message))
                elif payload is not None:
                    reach("dispatcher.handed")
            case ToFinalizer(message):
                self._finalizer.send(message)
            case ToSupervisor(message):
                self._pipe.send(message)
            case ReadPage():
                self._back.append(look(self._run_dir, command, time.monotonic()))
            case ReadPages():
                self._back.append(look_everywhere(self._run_dir))
            case ReadRunning():
                self._back.append(look_at_running(self._run_dir))
            case Note(level, event, fields):
                if _log.isEnabledFor(level):
                    text = " ".join(f"{name}={value}" for name, value in fields.items())
                    _log.log(level, "%s %s", event, text, extra={"event": event, **fields})
            case Exit():
                self._running = False
            case _:
                self._database.ask(command)
