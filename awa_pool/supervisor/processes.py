"""The children as processes: start, watch, kill. No decisions here.

Processes are started by one thread that lives as long as the fleet: starting a fork server waits for the import of the
user's app, and nothing else may wait with it. (One thread also because the kernel ends children with the very
thread that started them.)
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from awa_pool.control import ControlPipe
from awa_pool.errors import WireError
from awa_pool.messages import Message
from awa_pool.store.mailbox import Mailbox

from .entry import run_actor
from .events import WORKER
from .families import kill_family, kill_orphans, terminate_group
from .procfs import Memory, oom_kills, read_memory
from .signals import children_deaf

JOIN_S = 5.0


class Process(Protocol):
    """What is used of `multiprocess.Process`."""

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    @property
    def sentinel(self) -> int: ...

    def join(self, timeout: float | None = None) -> None: ...


StartProcess = Callable[[str, int, str], tuple[Process, Any]]
"""(role, number, incarnation) -> (started process, our end of the control pipe or its `ControlPipe`)."""


@dataclass(slots=True)
class Handle:
    """A child we started and have not yet seen dead."""

    role: str
    number: int
    incarnation: str
    process: Process
    pid: int
    pipe: ControlPipe
    started_s: float
    peak_bytes: int = 0
    rss_bytes: int = 0
    memory_kills: int = 0  # the kernel's count when last seen alive


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A child that the system refused."""

    incarnation: str
    cause: str


@dataclass(slots=True)
class Expected:
    """A child that is being started, and what it is to be told when it is there."""

    messages: list[Message] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Death:
    """A child that is gone, with what the last sample said of it."""

    handle: Handle
    exit_code: int | None
    memory_kills: int  # kernel's kills for memory since the last sample


def start_actor(role: str, number: int, incarnation: str) -> tuple[Process, Any]:
    """Spawn an actor without user code."""
    import multiprocess

    context = multiprocess.get_context("spawn")
    ours, theirs = context.Pipe(duplex=True)
    process = context.Process(
        target=run_actor, args=(role, theirs, os.getpid()), name=f"awa-pool {role}", daemon=True
    )
    with _plain_main():
        process.start()
    theirs.close()
    return process, ours


@contextlib.contextmanager
def _plain_main() -> Iterator[None]:
    """Hide `__main__` while a process is spawned: a spawned child imports the program that started it, which costs time,
    and where that program builds a pool without a main guard, another pool."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


class Fleet:
    """All living children, their pipes and sentinels in one selector.

    `start_worker` and `start_actor` make the processes; tests pass their own.
    """

    def __init__(
        self,
        start_worker: StartProcess,
        start_actor: StartProcess = start_actor,
        keep_going: Callable[[], None] = lambda: None,
    ) -> None:
        self._keep_going = keep_going
        self.selector = selectors.DefaultSelector()
        self._start = {True: start_worker, False: start_actor}
        self._handles: dict[str, Handle] = {}
        self._expected: dict[str, Expected] = {}
        self._orders: queue.SimpleQueue[tuple[str, int, str] | None] = queue.SimpleQueue()
        self._started = Mailbox()
        self._closing = False
        self.selector.register(self._started.fileno(), selectors.EVENT_READ, ("started", ""))
        self._thread = threading.Thread(target=self._launch, name="awa-pool starter", daemon=True)
        self._thread.start()

    def handles(self) -> list[Handle]:
        """Return everybody who lives."""
        return list(self._handles.values())

    def handle(self, incarnation: str) -> Handle | None:
        """Return one who lives."""
        return self._handles.get(incarnation)

    def start(self, role: str, number: int, incarnation: str) -> None:
        """Have a child started; the news comes by `take_started`."""
        self._expected[incarnation] = Expected()
        self._orders.put((role, number, incarnation))

    def take_started(self) -> list[NotStarted]:
        """Take in those who are there now, tell them what has waited, and return those who are not."""
        refused: list[NotStarted] = []
        for news in self._started.take():
            expected = self._expected.pop(news.incarnation, None)
            if isinstance(news, NotStarted):
                refused.append(news)
                continue
            self._handles[news.incarnation] = news
            self.selector.register(news.pipe.fileno(), selectors.EVENT_READ, ("said", news.incarnation))
            self.selector.register(news.process.sentinel, selectors.EVENT_READ, ("gone", news.incarnation))
            if expected is None:  # given up meanwhile
                self.kill(news.incarnation)
                continue
            for message in expected.messages:
                self.tell(news.incarnation, message)
        return refused

    def tell(self, incarnation: str, message: Message) -> None:
        """Send; whoever is gone or does not read for megabytes hears nothing more."""
        if (expected := self._expected.get(incarnation)) is not None:
            expected.messages.append(message)
        elif (handle := self._handles.get(incarnation)) is not None:
            with contextlib.suppress(WireError):
                handle.pipe.send(message)

    def flush(self) -> None:
        """Push on what full pipes have kept."""
        for handle in self._handles.values():
            handle.pipe.flush()

    def heard(self, incarnation: str) -> list[Message]:
        """Return what a child has said; a child that talks nonsense is killed."""
        handle = self._handles.get(incarnation)
        if handle is None:
            return []
        said: list[Message] = []
        try:
            while (message := handle.pipe.receive()) is not None:
                said.append(message)
        except WireError:
            self.kill(incarnation)
        if handle.pipe.closed:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(handle.pipe.fileno())
        return said

    def kill(self, incarnation: str) -> None:
        """SIGKILL a child, a worker with all that it has started; one not yet there counts as gone at once.

        The start of a fork server may hang in the import of the user's app: nobody waits for it to say no.
        """
        if self._expected.pop(incarnation, None) is not None:
            self._started.put(NotStarted(incarnation, "was given up before it was started"))
        handle = self._handles.get(incarnation)
        if handle is None or handle.process.exitcode is not None:
            return
        if handle.role == WORKER:
            kill_family(handle.pid)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(handle.pid, signal.SIGKILL)

    def terminate(self, incarnation: str) -> None:
        """SIGTERM a worker's process group: for the programs that its handlers run, as it disregards the signal itself."""
        handle = self._handles.get(incarnation)
        if handle is not None and handle.process.exitcode is None:
            terminate_group(handle.pid)

    def bury(self, incarnation: str) -> Death | None:
        """Take in a child whose sentinel is ready: collect its status, end what it started, close its pipe.

        Call `heard` before, for its last words.
        """
        handle = self._handles.pop(incarnation, None)
        if handle is None:
            return None
        self.selector.unregister(handle.process.sentinel)
        if not handle.pipe.closed:
            with contextlib.suppress(KeyError, ValueError):
                self.selector.unregister(handle.pipe.fileno())
        handle.process.join(JOIN_S)
        exit_code = handle.process.exitcode
        handle.peak_bytes = max(handle.peak_bytes, getattr(handle.process, "peak_bytes", 0))
        if handle.role == WORKER:
            kill_orphans(handle.pid)
        handle.pipe.close()
        close = getattr(handle.process, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):
                close()
        return Death(handle, exit_code, oom_kills() - handle.memory_kills)

    def sample(self) -> None:
        """Note everybody's memory, for the live view and for the news of a death.

        And call `keep_going`: a fork server that stands still would hide those deaths.
        """
        self._keep_going()
        kills = oom_kills()
        for handle in self._handles.values():
            self._measure(handle, kills)

    def measure(self, incarnation: str) -> None:
        """Note one child's memory now."""
        if (handle := self._handles.get(incarnation)) is not None:
            self._measure(handle, oom_kills())

    def _measure(self, handle: Handle, kills: int) -> None:
        memory: Memory | None = read_memory(handle.pid)
        if memory is not None and memory.rss_bytes:
            handle.rss_bytes = memory.rss_bytes
            handle.peak_bytes = max(handle.peak_bytes, memory.peak_bytes)
            handle.memory_kills = kills

    def close(self) -> None:
        """Kill whoever is left and close everything; for the end, also an unexpected one."""
        self._closing = True
        self._orders.put(None)
        self._thread.join(JOIN_S)
        self._expected.clear()
        self.take_started()
        for incarnation in list(self._handles):
            self.kill(incarnation)
            self.bury(incarnation)
        self.selector.close()
        self._started.close()

    def _launch(self) -> None:
        """The starter thread."""
        while (order := self._orders.get()) is not None:
            role, number, incarnation = order
            if self._closing or incarnation not in self._expected:
                continue
            try:
                with children_deaf():
                    process, pipe = self._start[role == WORKER](role, number, incarnation)
                if not isinstance(pipe, ControlPipe):
                    pipe = ControlPipe(pipe)
            except Exception as error:  # noqa: BLE001 (the system's refusals, and whatever a start method raises)
                self._started.put(NotStarted(incarnation, f"could not be started: {error}"))
                continue
            handle = Handle(role, number, incarnation, process, process.pid or 0, pipe, time.monotonic())
            handle.memory_kills = oom_kills()
            self._started.put(handle)
