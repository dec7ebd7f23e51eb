"""Many threads put events in, one reader takes them out, woken through a file descriptor it can poll."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Any


class Mailbox:
    """A deque with a pipe: `fileno()` is readable while events may lie in it. Put from any thread, take from one."""

    def __init__(self) -> None:
        self._events: deque[Any] = deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._reader

    def put(self, event: Any) -> None:
        """Add an event and wake the reader."""
        self._events.append(event)
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is awake already; closed: nobody reads
            os.write(self._writer, b"\0")

    def take(self) -> list[Any]:
        """Return everything that lies in the box, oldest first; never blocks."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 65536)  # before the deque is emptied, so that a late put wakes again
        events = []
        with contextlib.suppress(IndexError):
            while True:
                events.append(self._events.popleft())
        return events

    def close(self) -> None:
        """Close the pipe; what is put later is kept but wakes nobody."""
        reader, writer, self._reader, self._writer = self._reader, self._writer, -1, -1
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)
