"""Handlers at the edge of their deadlines, for workers without a pool around them."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass

from awa_pool.errors import DeadlineExceeded
from awa_pool.job import Job
from awa_pool.registry import Registry

registry = Registry()


@dataclass
class Spin:
    s: float = 0.0
    what: str = ""


def spin(job: Job[Spin]) -> None:
    """Compute, print, ask whether it is cancelled; or do something odd with the deadline."""
    until = time.monotonic() + job.args.s
    what = job.args.what
    if what == "wrap":
        try:
            time.sleep(60)
        except DeadlineExceeded:
            raise RuntimeError("in the midst of cleaning up") from None
    if what == "own alarm":
        signal.signal(signal.SIGALRM, own_alarm)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(0.05)
    while time.monotonic() < until:
        if what == "ask":
            job.is_cancelled()
        elif what == "print":
            print("x", end="")


def own_alarm(signum: int, frame: object) -> None:
    pass


@dataclass
class Wait:
    what: str = ""
    s: float = 60.0


async def wait(job: Job[Wait]) -> None:
    """Wait in one of the ways in which asyncio can."""
    match job.args.what:
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(job.args.s))
                group.create_task(asyncio.sleep(job.args.s))
        case "timeout":
            async with asyncio.timeout(50):
                await asyncio.sleep(job.args.s)
        case "swallow":
            inner = asyncio.create_task(swallow(job.args.s))
            await inner
            await asyncio.sleep(job.args.s)
        case "catch":
            try:
                await asyncio.sleep(job.args.s)
            except DeadlineExceeded:
                await asyncio.sleep(0.01)  # once only: cleaning up takes its time
        case _:
            await asyncio.sleep(job.args.s)


async def swallow(s: float) -> None:
    try:
        await asyncio.sleep(s)
    except asyncio.CancelledError:
        return


def bounded(job: Job[dict[str, float]]) -> None:
    """Say by its outcome which deadline it was given."""
    assert job.deadline_s == job.args["deadline_s"], job.deadline_s


registry.add(Spin, spin, kind="spin")
registry.add(dict, bounded, kind="bounded", deadline=3)
registry.add(Wait, wait, kind="wait")
