"""Stop signals of the supervisor as something to poll, and children that are born deaf to them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2)  # would end the process, and with it what its workers run


class SignalPipe:
    """Catches stop signals; use as a context manager in the main thread. Elsewhere (a notebook's thread) it is deaf.

    A handler of its own is also what makes signals work as process 1, where the default action is not applied.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before: dict[signal.Signals, Any] = {}
        self._before_fd = -1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            for number in STOP_SIGNALS:
                if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup: a terminal that goes away is no reason to stop
                self._before[number] = signal.signal(number, _noted)
            for number in _MEANINGLESS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, _noted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._before:
            signal.set_wakeup_fd(self._before_fd)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Descriptor that is readable when a signal has come."""
        return self._reader.fileno()

    def take(self) -> list[signal.Signals]:
        """Return the stop signals that have come since."""
        try:
            data = self._reader.recv(64)
        except BlockingIOError:
            return []
        return [signal.Signals(number) for number in data if number in STOP_SIGNALS]


def _noted(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor carries the news."""


@contextlib.contextmanager
def children_deaf() -> Iterator[None]:
    """Start children with stop signals blocked: one sent to the whole group while they boot must not end them."""
    from multiprocess import resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    # The first child brings `multiprocess`'s tracker along, whose start ends with SIGINT and SIGTERM unblocked here.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_nothing() -> None:
    """In an actor: only the supervisor acts on stop signals, whoever is signalled."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
