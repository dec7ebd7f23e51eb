"""An app whose handlers say how far they are, and end as a file says."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass

from awa_pool import Client, Job, RetryAfter

client = Client()


@dataclass
class Step:
    """Say 40 %, wait until `go` exists, and end as it says; an attempt that finds progress completes."""

    go: str
    on: str = "main"


@dataclass
class AsyncStep(Step): ...


def _told(job: Job[Step]) -> str | None:
    path = job.args.go
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return file.read() or None


def _end(how: str) -> object:
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise ValueError("stopped")
    return RetryAfter(0.1) if how == "retry" else None


def _begin(job: Job[Step]) -> bool:
    """Say something; True where an attempt before has done so."""
    if job.progress is not None:
        with open(job.args.go + ".found", "w") as file:
            file.write(repr(job.progress))
        job.set_progress(99)
        return True
    job.set_progress(40, "reading")
    job.update_metadata({"page": 3})
    return False


@client.task(Step, backoff=0.1)
def step(job: Job[Step]) -> object:
    if _begin(job):
        return None
    job.flush_progress()
    while (how := _told(job)) is None:
        time.sleep(0.01)
    return _end(how)


@client.task(AsyncStep, backoff=0.1)
async def async_step(job: Job[AsyncStep]) -> object:
    if _begin(job):
        return None
    while (how := _told(job)) is None:
        await asyncio.sleep(0.01)
    return _end(how)
