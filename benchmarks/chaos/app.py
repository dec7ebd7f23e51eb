"""The app that is struck: `awa-pool benchmarks.chaos.app:client`. Every handler writes its start and its end down."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from dataclasses import dataclass

from awa_pool import Client, Job
from benchmarks.programs.conversation import burn

from .ledger import VARIABLE, Pen

QUEUE = "chaos"
BURN_S = 0.005

client = Client()
_pens: list[Pen] = []


class Planned(Exception):
    """A failure that belongs to the load."""


@dataclass
class Step:
    """A job of the load; `n` is its number in the ledger."""

    n: int


@dataclass
class Nap:
    """A job that waits without using CPU."""

    n: int
    s: float


@client.process_start
def open_ledger() -> None:
    """Open this worker's way to the ledger."""
    _pens.append(Pen(os.environ[VARIABLE]))


def soon(attempt: int) -> float:
    """Return the pause before the next attempt; short, as a storm is."""
    return 0.2


@client.task(Step, kind="instant", queue=QUEUE, backoff=soon)
def instant(job: Job[Step]) -> None:
    """Do nothing."""
    with _pens[-1].entry(job.id, job.attempt):
        pass


@client.task(Step, kind="burn", queue=QUEUE, backoff=soon)
def burning(job: Job[Step]) -> None:
    """Use CPU."""
    with _pens[-1].entry(job.id, job.attempt):
        burn(BURN_S)


@client.task(Nap, kind="nap", queue=QUEUE, backoff=soon)
async def nap(job: Job[Nap]) -> None:
    """Wait in the event loop."""
    with _pens[-1].entry(job.id, job.attempt):
        await asyncio.sleep(job.args.s)


@client.task(Step, kind="flaky", queue=QUEUE, backoff=soon)
def flaky(job: Job[Step]) -> None:
    """Fail at the first attempt."""
    with _pens[-1].entry(job.id, job.attempt):
        if job.attempt == 1:
            raise Planned("fails once")


@client.task(Step, kind="deadly", queue=QUEUE, backoff=soon)
def deadly(job: Job[Step]) -> None:
    """Take the worker down at the first attempt, in one of four ways."""
    with _pens[-1].entry(job.id, job.attempt):
        if job.attempt == 1:
            _die(job.args.n)


@client.task(Step, kind="doomed", queue=QUEUE, max_attempts=2, backoff=soon)
def doomed(job: Job[Step]) -> None:
    """Fail every time."""
    with _pens[-1].entry(job.id, job.attempt):
        raise Planned("fails for ever")


def _die(n: int) -> None:
    match n % 4:
        case 0:
            os.kill(os.getpid(), signal.SIGKILL)
        case 1:
            os._exit(3)
        case 2:
            os.abort()
        case _:
            ctypes.string_at(0)
