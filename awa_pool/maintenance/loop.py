"""The shell of maintenance: asks the database on a thread, listens to the supervisor, blocks in one place only."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from awa_pool.control import ControlPipe
from awa_pool.errors import StoreConflict, StoreUnavailable
from awa_pool.events import reason_of
from awa_pool.faults import reach
from awa_pool.messages import Drained, Stats, Stop, StopNow
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.store import Store
from awa_pool.store.threads import StoreAnswered, StoreFailed, StoreLost, StoreThread

from .core import Ask, Command, Maintenance

ROLE = "maintenance"
STATS_EVERY_S = 1.0
CLOSE_S = 2.0

_log = logging.getLogger("awa_pool.maintenance")


class Loop:
    """Drives a core until the supervisor says stop or is gone."""

    def __init__(
        self,
        core: Maintenance,
        pipe: ControlPipe,
        mailbox: Mailbox,
        store: StoreThread,
        incarnation: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._pipe = pipe
        self._mailbox = mailbox
        self._store = store
        self._incarnation = incarnation
        self._clock = clock
        self._stopping = False
        self._stats_due_s = 0.0

    def run(self) -> None:
        """Work until told to stop; then give up the leadership and say so."""
        poll = select.poll()
        poll.register(self._pipe.fileno(), select.POLLIN)
        poll.register(self._mailbox.fileno(), select.POLLIN)
        while not self._stopping:
            now_s = self._clock()
            self._do(self._core.due(now_s))
            if now_s >= self._stats_due_s:
                self._stats_due_s = now_s + STATS_EVERY_S
                self._pipe.send(Stats(ROLE, self._incarnation, self.figures()))
            pause_s = min(self._stats_due_s - now_s, self._core.next_due_s(now_s))
            poll.poll(max(1, int(pause_s * 1000)))
            self._hear()
            self._take_answers()
        self._end()

    def figures(self) -> dict[str, Any]:
        """Return the cumulative figures of this incarnation."""
        core = self._core
        return {
            "leader": core.leads,
            "promoted": core.promoted,
            "rescued": core.rescued,
            "expired": core.expired,
            "errors": core.errors,
            "ring": core.ring.figures(),
            "runs": {name: branch.runs for name, branch in core.branches.items()},
        }

    def _hear(self) -> None:
        while (message := self._pipe.receive()) is not None:
            if isinstance(message, Stop | StopNow):
                self._stopping = True
        if self._pipe.closed:
            self._stopping = True

    def _take_answers(self) -> None:
        for event in self._mailbox.take():
            now_s = self._clock()
            if isinstance(event, StoreAnswered):
                reach("maintenance.answered")
                self._do(self._core.answered(event.token, event.value, now_s))
            elif isinstance(event, StoreFailed):
                passing = isinstance(event.error, StoreConflict | StoreUnavailable)
                self._do(self._core.failed(event.token, reason_of(event.error), now_s, passing=passing))
            elif isinstance(event, StoreLost):
                self._do(self._core.lost())

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Ask):
                self._store.submit(partial(_call, command), command.branch)
            else:
                _log.log(logging.getLevelName(command.level.upper()), command.text)

    def _end(self) -> None:
        if self._core.leads:
            holder = self._core.rules.holder
            self._store.submit(lambda store: store.step_down("maintenance", holder), "step_down")
        self._store.close(CLOSE_S)
        if not self._pipe.closed:
            self._pipe.send(Stats(ROLE, self._incarnation, self.figures()))
            self._pipe.send(Drained(ROLE, self._incarnation))
            self._pipe.flush(CLOSE_S)


def _call(ask: Ask, store: Store) -> Any:
    return getattr(store, ask.method)(*ask.arguments)
