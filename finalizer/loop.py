"""The finalizer's shell: socket, pipe and two database threads around the core; blocks in one place only."""

from __future__ import annotations

import logging
import time

from awa_pool.control import ControlPipe
from awa_pool.events import Exit, Note, SupervisorSaid, Tick, ToSupervisor
from awa_pool.faults import reach
from awa_pool.messages import AttemptsEnded, Stats
from awa_pool.store.mailbox import Mailbox
from awa_pool.wire import Poller, Router

from .core import Finalizer
from .database import Database
from .events import (
    CallbacksRegistered,
    Command,
    Completed,
    Event,
    Finished,
    Heard,
    Send,
    StagedAnswered,
    Tell,
    WaitsRead,
)

STATS_EVERY_S = 1.0
BURST = 512
"""Messages read in one go, so that answers of the database are not kept waiting by a flood."""
LEAST_NAP_S = 0.002
ROLE = "finalizer"
COMMITTED = (Completed, Finished, StagedAnswered, CallbacksRegistered, WaitsRead)
_log = logging.getLogger("awa_pool.finalizer")


class Loop:
    """Feeds the core what comes and carries out what it says, until it exits or the supervisor is gone."""

    def __init__(
        self, core: Finalizer, pipe: ControlPipe, peers: Router, mailbox: Mailbox, database: Database
    ) -> None:
        self._core = core
        self._pipe = pipe
        self._peers = peers
        self._mailbox = mailbox
        self._database = database
        self._running = True

    def run(self) -> bool:
        """Work until all is done; False when the supervisor is gone."""
        open_ears = Poller([self._pipe, self._mailbox, self._peers])
        busy_ears = Poller([self._pipe, self._mailbox])
        stats_s = time.monotonic()
        while self._running and not self._pipe.closed:
            now_s = time.monotonic()
            if now_s >= stats_s:
                stats_s = now_s + STATS_EVERY_S
                self._say_figures()
            due_s = self._core.next_tick_s()
            wait_s = max(0.0, min(stats_s, stats_s if due_s is None else due_s) - now_s)
            deaf_s = None if self._core.saturated else self._core.deaf_until_s()
            if deaf_s is not None and deaf_s - now_s > LEAST_NAP_S:
                ready = busy_ears.wait(min(wait_s, deaf_s - now_s))
                self._read(self._peers)
            else:
                ready = (busy_ears if self._core.saturated else open_ears).wait(wait_s)
            if not ready:
                self._step(Tick())
            for source in ready:
                self._read(source)
        if not self._pipe.closed:
            self._say_figures()
        return not self._pipe.closed

    def _read(self, source: object) -> None:
        if source is self._peers:
            for _ in range(BURST):
                heard = None if self._core.saturated else self._peers.receive()
                if heard is None:
                    break
                if isinstance(heard[1], AttemptsEnded):
                    reach("finalizer.heard")
                self._step(Heard(*heard))
        elif source is self._mailbox:
            for answer in self._mailbox.take():
                if (event := self._database.event(answer)) is not None:
                    if isinstance(event, COMMITTED):
                        reach("finalizer.committed")
                    self._step(event)
        else:
            while (spoken := self._pipe.receive()) is not None:
                self._step(SupervisorSaid(spoken))

    def _say_figures(self) -> None:
        self._pipe.send(Stats(ROLE, self._core.settings.incarnation, self._core.figures()))

    def _step(self, event: Event) -> None:
        for command in self._core.step(event, time.monotonic()):
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Send(peer, message, payload):
                self._peers.send(peer, message, *payload)
            case ToSupervisor(message):
                self._say_figures()  # the last word before what may end this process
                self._pipe.send(message)
            case Note(level, event, fields):
                if _log.isEnabledFor(level):
                    text = " ".join(f"{name}={value}" for name, value in fields.items())
                    _log.log(level, "%s %s", event, text, extra={"event": event, **fields})
            case Tell(level, text, tag):
                _log.log(level, "%s", text, extra=tag)
            case Exit():
                self._running = False
            case _:
                self._database.ask(command)
