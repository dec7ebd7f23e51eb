"""The command line as a process of its own, with or without a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 90.0
APP = """
from dataclasses import dataclass
from awa_pool import Client, Job

client = Client()


@dataclass
class Add:
    n: int


@client.task(Add, queue="sums")
def add(job: Job[Add]) -> None:
    print(f"adding {job.args.n}")
"""


def environment(**more: str) -> dict[str, str]:
    """Return an environment that finds this package and says nothing about databases."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWA_POOL_", "DATABASE_URL"))
    }
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | more


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "awa_pool.cli", *words]


def run(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end, without a terminal."""
    return subprocess.run(
        command(words),
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@dataclass
class OnTerminal:
    """A command line on a terminal of its own; `shown` grows as it is drawn."""

    process: subprocess.Popen[bytes]
    shown: bytearray
    reader: threading.Thread
    terminal: int

    def finish(self) -> tuple[int, str]:
        """Wait for the end; return the status and everything that was shown."""
        status = self.process.wait(DEADLINE_S)
        self.reader.join(DEADLINE_S)
        os.close(self.terminal)
        return status, self.shown.decode(errors="replace")


def on_terminal(*words: str, cwd: Path, **more: str) -> OnTerminal:
    """Start a command line on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(words),
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"} | more),
        start_new_session=True,
    )
    os.close(theirs)
    shown = bytearray()
    reader = threading.Thread(target=_read, args=(ours, shown))
    reader.start()
    return OnTerminal(process, shown, reader, ours)


def _read(terminal: int, shown: bytearray) -> None:
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other end is closed
            return
        if not chunk:
            return
        shown.extend(chunk)
