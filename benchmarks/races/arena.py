"""Where the races are held: a pool of the real command line, and the ear at which its handlers tell their callbacks."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.ours import ROOT, PoolFailed

from .app import EAR_VARIABLE, READY
from .ledger import VARIABLE

READY_S, STOP_S = 60.0, 60.0
ROOM_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Told:
    """A handler has registered a callback."""

    number: int
    job_id: int
    callback_id: str
    at_s: float


class Arena:
    """The pool; one that does not start, or stops by itself, raises PoolFailed with the end of its log."""

    def __init__(self, dsn: str, workers: int, folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.log_path = folder / "log"
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self._ear.bind(str(folder / "ear"))
        environ = {
            **os.environ, "AWA_POOL_DSN": dsn, "PYTHONPATH": str(ROOT), VARIABLE: str(self.ledger),
            EAR_VARIABLE: str(folder / "ear"),
        }  # fmt: skip
        command = [
            str(Path(sys.executable).parent / "awa-pool"), "benchmarks.races.app:client", "--workers", str(workers),
        ]  # fmt: skip
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environ, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )  # fmt: skip
        try:
            for _ in range(workers):
                if self._heard(READY_S) != [READY]:
                    raise self._failed("the pool did not start")
        except BaseException:
            self.close()
            raise

    def await_told(self, most_s: float) -> Told | None:
        """Return the next callback that a handler has registered; None when none comes in time."""
        while (words := self._heard(most_s)) is not None:
            if words != [READY]:  # a worker that was replaced
                return Told(int(words[0]), int(words[1]), str(words[2]), time.monotonic())
        if self._process.poll() is not None:
            raise self._failed("the pool has ended")
        return None

    def _heard(self, most_s: float) -> list[Any] | None:
        if not select.select([self._ear], [], [], most_s)[0]:
            return None
        words = orjson.loads(self._ear.recv(4096))
        assert isinstance(words, list)
        return words

    def _failed(self, what: str) -> PoolFailed:
        return PoolFailed(f"{what}: {self.log_path.read_text(errors='replace')[-2000:]}")

    def close(self) -> None:
        """Stop the pool, by force when it does not end."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._ear.close()
