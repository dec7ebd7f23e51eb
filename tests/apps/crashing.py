"""Handlers that take their worker with them, wait, burn and leave; and, when told so, an app that no longer starts."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from awa_pool import Client
from awa_pool.job import Job

STARTS = "AWA_TEST_STARTS"
"""Names a folder: the import counts its processes there, and obeys the files `hang` and `fail`."""

if (folder := os.environ.get(STARTS)) and "pytest" not in sys.modules:
    Path(folder, f"start-{os.getpid()}").touch()
    while Path(folder, "hang").exists():
        time.sleep(0.05)
    if Path(folder, "fail").exists():
        raise RuntimeError("the licence has run out")

client = Client()


@dataclass
class Crash:
    how: str
    path: str
    mib: int = 0


@dataclass
class Stay:
    path: str
    s: float = 600.0


def note(path: str, job: Job[Crash] | Job[Stay]) -> None:
    """Append a line: job, attempt, process."""
    with open(path, "a") as file:
        file.write(f"{job.id} {job.attempt} {os.getpid()}\n")


def go(path: str) -> bool:
    return os.path.exists(f"{path}.go")


@client.task(Crash, max_attempts=2, backoff=lambda attempt: 0.05)
def crash(job: Job[Crash]) -> None:
    """End the process, at the first attempt or (`always`) at each."""
    note(job.args.path, job)
    how, _, when = job.args.how.partition(" ")
    ballast = bytearray(b"x") * (job.args.mib << 20)
    if job.attempt > 1 and when != "always":
        return
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(7)
    assert ballast is not None


@client.task(Stay, kind="doze", max_attempts=3)
async def doze(job: Job[Stay]) -> None:
    """Wait in the event loop until somebody makes the file."""
    note(job.args.path, job)
    until = time.monotonic() + job.args.s
    while not go(job.args.path) and time.monotonic() < until:
        await asyncio.sleep(0.05)


@client.task(Stay, kind="stay", max_attempts=3, backoff=lambda attempt: 0.05)
def stay(job: Job[Stay]) -> None:
    """Sleep until somebody makes the file."""
    note(job.args.path, job)
    until = time.monotonic() + job.args.s
    while not go(job.args.path) and time.monotonic() < until:
        time.sleep(0.02)


@client.task(Stay, kind="spin", max_attempts=3)
def spin(job: Job[Stay]) -> None:
    """Burn in plain Python."""
    note(job.args.path, job)
    until = time.monotonic() + job.args.s
    while time.monotonic() < until:
        pass


@client.task(Stay, kind="grip", max_attempts=3)
def grip(job: Job[Stay]) -> None:
    """Hold the interpreter for ever, at the first attempt."""
    note(job.args.path, job)
    if job.attempt == 1:
        sum(range(1 << 62))


@dataclass
class Leave:
    value: int | str


@client.task(Leave, max_attempts=1)
def leave(job: Job[Leave]) -> None:
    """Ask the interpreter to end."""
    sys.exit(job.args.value)


@dataclass
class Plain:
    path: str


@client.task(Plain, max_attempts=3)
def plain(job: Job[Plain]) -> None:
    """Nothing out of the ordinary."""
