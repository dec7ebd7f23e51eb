"""Whole pools as processes of their own, for tests that signal and kill them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
DEADLINE_S = 60.0


def wait_until(what: str, check: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """Return what `check` returns as soon as it is true; fail naming `what` at the deadline."""
    until = time.monotonic() + deadline_s
    while not (value := check()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.02)
    return value


class PoolProcess:
    """`python -m pool_runner` with its log in a file."""

    def __init__(
        self, folder: Path, dsn: str, prefix: tuple[str, ...] = (), faults: str = "", **options: Any
    ) -> None:
        defaults = {
            "dsn": dsn,
            "app": "apps.supervised:client",
            "workers": 2,
            "log_level": "debug",
            "drain_timeout_s": 20.0,
        }
        self.log_path = folder / f"pool-{time.monotonic_ns()}.log"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AWA_POOL_")}
        environ["PYTHONPATH"] = str(Path(__file__).parent)
        if faults:
            environ["AWA_POOL_FAULTS"] = faults
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "pool_runner", json.dumps(defaults | options)],
                stdout=log, stderr=subprocess.STDOUT, env=environ, start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def logged(self, text: str, count: int = 1) -> None:
        """Wait for a line with that text."""
        try:
            wait_until(
                f"the line {text!r}", lambda: self.log.count(text) >= count or self.process.poll() is not None
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        assert self.log.count(text) >= count, self.log

    def ready(self, workers: int = 2) -> None:
        """Wait until all workers and actors are ready."""
        for role in ("dispatcher", "finalizer", "maintenance"):
            self.logged(f"{role} is ready")
        for number in range(1, workers + 1):
            self.logged(f"worker {number} is ready")

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        if group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def ended(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the end; returns the exit status."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {deadline_s:g} s\n{self.log}") from None

    def children(self, title: str = "") -> list[int]:
        """Return the living processes below this one whose title holds that text."""
        return [pid for pid in descendants(self.pid) if title in title_of(pid)]

    def fetch(self, path: str) -> tuple[int, str]:
        """Ask the endpoint."""
        self.logged("metrics and health on http://")
        address = self.log.split("metrics and health on ")[1].split()[0]
        try:
            with urllib.request.urlopen(address + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def close(self) -> None:
        below = descendants(self.pid)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        wait_until(
            "the children of a killed pool are gone", lambda: not any(alive(pid) for pid in below), 20.0
        )


@contextlib.contextmanager
def pool(folder: Path, dsn: str, **options: Any) -> Iterator[PoolProcess]:
    """A pool for the time of a block."""
    running = PoolProcess(folder, dsn, **options)
    try:
        yield running
    finally:
        running.close()


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def title_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def named(title: str) -> list[int]:
    """Return every living process with that text in its command line."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if title in title_of(pid) and alive(pid)]


def descendants(pid: int) -> list[int]:
    """Return everybody below a process, living ones only."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))) and fields[0] not in "ZX":
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found
