"""Lines on their way to a descriptor whose reader may rest: a full pipe or a terminal that was stopped (Ctrl-S) holds up a
thread here, and not the process that has something to say."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

MOST_LINES = 2000
"""What waits at most; what comes beyond is counted and left out."""
RETRY_S = 0.05


class LineWriter:
    """Writes lines in order, from a thread that starts with the first of them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._left_out = 0

    def write(self, line: str) -> None:
        """Have a line written, soon; never waits."""
        with self._changed:
            if len(self._lines) >= MOST_LINES:
                self._left_out += 1
                return
            self._lines.append(line.encode(errors="backslashreplace") + b"\n")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="awa-pool log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take_left_out(self) -> int:
        """Return how many lines were left out since this was asked last; 0 while there is no room to say so."""
        with self._changed:
            if len(self._lines) >= MOST_LINES // 2:
                return 0
            count, self._left_out = self._left_out, 0
            return count

    def flush(self, within_s: float) -> bool:
        """Wait until all is written, for so long at most; whether it was."""
        until_s = time.monotonic() + within_s
        with self._changed:
            while self._lines or self._busy:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                line = self._lines.popleft()
                self._busy = True
            self._write(line)

    def _write(self, line: bytes) -> None:
        while line:
            try:
                line = line[os.write(self._fd, line) :]
            except BlockingIOError:  # somebody else has made the descriptor so
                time.sleep(RETRY_S)
            except OSError:  # nobody will ever read it
                return
