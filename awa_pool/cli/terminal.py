"""The terminal while a live picture stands at its foot: what processes write appears above it.

Workers write to the descriptors they inherited, which no library of this process sees. So, where standard output and
error are the terminal, they are exchanged for a pipe before the pool starts, and a thread prints what comes out.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Self

from rich.console import Console
from rich.text import Text

READ_BYTES = 1 << 16
JOIN_S = 2.0


class Terminal:
    """Use as a context manager; `console` draws on the real terminal meanwhile."""

    def __init__(self) -> None:
        self._kept = {fd: os.dup(fd) for fd in (1, 2) if os.isatty(fd)}
        shown = self._kept.get(2, self._kept.get(1, 2))
        self._file = os.fdopen(os.dup(shown), "w", encoding="utf-8", errors="replace")
        self.console = Console(file=self._file, force_terminal=True, highlight=False)
        self._reader, writer = os.pipe()
        self._writer = writer
        self._pump = threading.Thread(target=self._print_all, name="terminal", daemon=True)

    def __enter__(self) -> Self:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for fd in self._kept:
            os.dup2(self._writer, fd, inheritable=True)
        os.close(self._writer)
        self._pump.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for fd, kept in self._kept.items():
            os.dup2(kept, fd, inheritable=True)
            os.close(kept)
        # The pipe ends with its last writer; a stray grandchild of a job may hold it open for ever.
        self._pump.join(JOIN_S)
        if not self._pump.is_alive():
            os.close(self._reader)
            self._file.close()

    def _print_all(self) -> None:
        """Print whole lines as they come, as many at a time as are there."""
        rest = b""
        while chunk := os.read(self._reader, READ_BYTES):
            whole, newline, tail = (rest + chunk).rpartition(b"\n")
            if newline:
                self._print(whole)
                rest = tail
            else:
                rest = whole + tail
            if len(rest) > READ_BYTES:
                self._print(rest)
                rest = b""
        if rest:
            self._print(rest)

    def _print(self, text: bytes) -> None:
        self.console.print(Text.from_ansi(text.decode(errors="replace")), soft_wrap=True)
