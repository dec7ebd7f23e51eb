"""A virtual environment for each peer, made at first use, and the conversation with programs in it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS_DIR = HERE / ".peers"
REQUIREMENTS = {
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.*",),
    "awa-pg": ("awa-pg==0.6.9",),
    "procrastinate": ("procrastinate==3.10.*", "psycopg[binary]"),
}
PROGRAMS = {
    "pgqueuer": "pgqueuer_program.py",
    "awa-pg": "awa_program.py",
    "procrastinate": "procrastinate_program.py",
}


class PeerFailed(Exception):
    """A peer could not be installed, or its program ended with an error."""


def python_of(peer: str) -> Path:
    """Return the interpreter of the peer's environment, made now if need be."""
    home = PEERS_DIR / peer
    python, installed = home / "bin" / "python", home / "installed.json"
    wanted = list(REQUIREMENTS[peer])
    if installed.exists() and json.loads(installed.read_text()) == wanted:
        return python
    print(f"installing {', '.join(wanted)} into {home}", file=sys.stderr)
    venv.create(home, with_pip=True, clear=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise PeerFailed(f"pip could not install {peer}: {done.stderr[-500:]}")
    installed.write_text(json.dumps(wanted))
    return python


class Program:
    """One running program of a peer; orders and answers are JSON lines."""

    def __init__(self, peer: str, role: str, **order: Any) -> None:
        self.peer = peer
        # A file: a pipe that nobody reads would stop a chatty program.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the program)
        self._process = subprocess.Popen(
            [python_of(peer), HERE / "programs" / PROGRAMS[peer]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self.tell(role=role, **order)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, **order: Any) -> None:
        """Send one order."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """Wait for the next answer.

        Errors: PeerFailed with what the program wrote when it ended instead.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def finish(self) -> None:
        """Wait for the program to end by itself.

        Errors: PeerFailed when it ends with an error.
        """
        self._process.communicate()
        if self._process.returncode:
            raise self._failure()

    def _failure(self) -> PeerFailed:
        self._errors.seek(0)
        return PeerFailed(f"{self.peer}: {self._errors.read()[-1500:]}")

    def end(self) -> None:
        """End the program now."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def program(peer: str, role: str, **order: Any) -> Iterator[Program]:
    """Run a program of the peer for the length of a block."""
    running = Program(peer, role, **order)
    try:
        yield running
    finally:
        running.end()


def run(peer: str, role: str, **order: Any) -> dict[str, Any]:
    """Run a program of the peer to its end and return its last answer."""
    with program(peer, role, **order) as running:
        answer: dict[str, Any] = {}
        if role not in ("install",):
            answer = running.hear()
        running.finish()
        return answer
