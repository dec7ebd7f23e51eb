"""An app whose hooks write down what they hear, one line an event, into the file that the args name."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

import orjson

from awa_pool import Cancel, Client, TerminalError
from awa_pool.hooks import JobEvent
from awa_pool.job import Job

client = Client()


@dataclass
class Work:
    """End as `how` says; hooks write to `file`."""

    file: str
    how: str = "complete"
    on: str = "sync"


@dataclass
class AsyncWork(Work): ...


@dataclass
class Unheard:
    """A kind without hooks."""

    file: str = ""


def _end(how: str) -> object:
    match how:
        case "raise":
            raise ValueError("no")
        case "terminal":
            raise TerminalError("never")
        case "cancel":
            return Cancel("not wanted")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            sum(range(10**12))  # in native code, deaf to signals
    return None


@client.task(Work, max_attempts=2, backoff=3600.0)
def work(job: Job[Work]) -> object:
    return _end(job.args.how)


@client.task(AsyncWork, max_attempts=2, backoff=3600.0)
async def async_work(job: Job[AsyncWork]) -> object:
    await asyncio.sleep(0)
    return _end(job.args.how)


@client.task(Unheard)
def unheard(job: Job[Unheard]) -> None: ...


@client.on_event(Work)
def broken(event: JobEvent) -> None:
    """Fail on each event: the hooks after this one are called all the same."""
    raise ValueError(f"secret {event.args.file}")


@client.on_event(Work)
@client.on_event_kind("async_work")
def write_down(event: JobEvent) -> None:
    facts = {
        name: getattr(event, name)
        for name in ("error", "attempt", "reason", "duration_s", "next_run_at")
        if hasattr(event, name)
    }
    line = (
        orjson.dumps({"event": type(event).__name__, "id": event.job.id, "pid": os.getpid(), **facts}) + b"\n"
    )
    with open(event.args.file, "ab", buffering=0) as file:
        file.write(line)
