"""An app whose handlers ask the outside world and return to wait for the answer."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from awa_pool import CallbackToken, Client, EnqueueRequest, WaitForCallback
from awa_pool.hooks import JobEvent
from awa_pool.job import Job

client = Client()


@dataclass
class Answered:
    """A follow-up: what the job went on with. Nobody runs its queue, so that it can be looked at."""

    of: int
    number: int
    payload: object
    metadata: dict[str, object]


@dataclass
class Asked:
    """A follow-up: the job is parked."""

    of: int


@dataclass
class Gate:
    """Register a callback, write its id into the file `note`, and end as `how` says; resumed, stage what was answered."""

    note: str = ""
    how: str = "park"
    timeout_s: float = 3600.0


@dataclass
class GateAsync(Gate):
    """The same, by an async handler."""


@client.task(Answered, queue="looked_at")
def answered(job: Job[Answered]) -> None: ...


@client.task(Asked, queue="looked_at")
def asked(job: Job[Asked]) -> None: ...


def finish(job: Job[Gate] | Job[GateAsync]) -> None:
    """Go on with the answer."""
    assert job.resumed is not None
    number, payload = job.resumed
    job.enqueue_on_completion(Answered(job.id, number, payload, dict(job.metadata)))


def write(note: str, text: str) -> None:
    """Hand the id over, whole or not at all."""
    Path(f"{note}.new").write_text(text)
    os.rename(f"{note}.new", note)


def park(job: Job[Gate] | Job[GateAsync], token: CallbackToken) -> object:
    """End the attempt."""
    write(job.args.note, token.id)
    match job.args.how:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "staged":
            job.enqueue_on_completion(Asked(job.id))
        case "late":  # park once somebody says so
            until_s = time.monotonic() + 30.0
            while not os.path.exists(f"{job.args.note}.go"):
                assert time.monotonic() < until_s
                select.select([], [], [], 0.01)
    return WaitForCallback(token)


@client.task(Gate, max_attempts=2, backoff=lambda attempt: 3600.0)
def gate(job: Job[Gate]) -> object:
    """Ask, or go on."""
    if job.resumed is not None:
        return finish(job)
    token = job.register_callback(timeout_seconds=job.args.timeout_s)
    if job.args.how == "older":
        job.register_callback(60)
    return park(job, token)


@client.task(GateAsync, max_attempts=2, backoff=lambda attempt: 3600.0)
async def gate_async(job: Job[GateAsync]) -> object:
    """Ask, or go on."""
    if job.resumed is not None:
        return finish(job)
    return park(job, await job.register_callback(job.args.timeout_s))


@dataclass
class Watch:
    """Register a callback, and write down what came of that."""

    note: str


@dataclass
class WatchAsync(Watch):
    """The same, by an async handler."""


@client.task(Watch, backoff=lambda attempt: 3600.0)
def watch(job: Job[Watch]) -> None:
    """Ask."""
    Path(f"{job.args.note}.asked").touch()
    try:
        job.register_callback(60)
    except BaseException as problem:
        write(job.args.note, type(problem).__name__)
        raise


@client.task(WatchAsync, backoff=lambda attempt: 3600.0)
async def watch_async(job: Job[WatchAsync]) -> None:
    """Ask."""
    Path(f"{job.args.note}.asked").touch()
    try:
        await job.register_callback(60)
    except BaseException as problem:
        write(job.args.note, type(problem).__name__)
        raise


@client.on_waiting_for_callback_enqueue(Gate)
def ask(args: Gate, job: Job[Gate]) -> EnqueueRequest | None:
    """Follow a parking up."""
    if args.how == "bad spec":
        raise ValueError("no letter today")
    return EnqueueRequest(Asked(job.id)) if args.how in ("told", "staged") else None


@client.on_event(Gate)
def hear(event: JobEvent) -> None:
    """Write down what was told."""
    if event.args.how == "told":
        with open(f"{event.args.note}.told", "a") as file:
            file.write(type(event).__name__ + "\n")
