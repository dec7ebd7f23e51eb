"""An app whose handlers wait for callbacks where they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from dataclasses import dataclass, field
from pathlib import Path

from awa_pool import AwaError, Client, DeadlineExceeded
from awa_pool.job import Job

client = Client()


@dataclass
class Paid:
    """A follow-up: what the waits have brought. Nobody runs its queue, so that it can be looked at."""

    of: int
    payloads: list[object] = field(default_factory=list)


@dataclass
class Before:
    """A follow-up that is staged before the first wait."""

    of: int
    fill: str = ""


@dataclass
class Pay:
    """Stage `Before`; ask `times` times: write each callback's id into the file `note`.N, wait, and go on with the payload; then
    stage `Paid`.
    """

    note: str = ""
    times: int = 1
    how: str = ""
    timeout_s: float = 3600.0


@dataclass
class PayAsync(Pay):
    """The same, by an async handler."""


@dataclass
class Nothing:
    """A job with nothing to do."""


@dataclass
class Crash:
    """A job that ends its process."""


def write(path: str, text: str) -> None:
    """Write a file, whole or not at all."""
    Path(f"{path}.new").write_text(text)
    os.rename(f"{path}.new", path)


def began(job: Job[Pay] | Job[PayAsync]) -> None:
    """Note that a handler begins, and stage what does not depend on an answer."""
    stage(job)
    with open(f"{job.args.note}.began", "a") as file:
        file.write(f"{job.attempt} {job.run_lease} {os.getpid()}\n")


def stage(job: Job[Pay] | Job[PayAsync]) -> None:
    """Stage `Before`: once, or so much that the limits of an attempt allow it once and not twice."""
    count, fill = {"many": (9, ""), "large": (2, "x" * 20_000)}.get(job.args.how, (1, ""))
    for _ in range(count):
        job.enqueue_on_completion(Before(job.id, fill))


def stay(path: str) -> None:
    """Wait for a file."""
    until_s = time.monotonic() + 30.0
    while not os.path.exists(path):
        assert time.monotonic() < until_s
        select.select([], [], [], 0.01)


def hear_nothing() -> None:
    """Go on, whatever is raised."""
    while True:
        with contextlib.suppress(DeadlineExceeded):
            time.sleep(0.02)


def crash_if_asked(job: Job[Pay] | Job[PayAsync]) -> None:
    """End the process right after a wait."""
    if job.args.how == "crash":
        os._exit(3)


async def crash_soon() -> None:
    """End the process while the handler waits."""
    await asyncio.sleep(0.05)
    os._exit(3)


async def ask_others(job: Job[PayAsync]) -> list[object]:
    """Give up the wait for the first callback; then wait for it again, or ask another provider."""
    note = job.args.note
    first = await job.register_callback(job.args.timeout_s)
    write(f"{note}.1", first.id)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(job.wait_for_callback(first), 0.1)
    write(f"{note}.given_up", "")
    while not os.path.exists(f"{note}.go"):
        await asyncio.sleep(0.01)
    if job.args.how == "again":
        return [await job.wait_for_callback(first)]
    second = await job.register_callback(3600.0)
    write(f"{note}.2", second.id)
    return [await job.wait_for_callback(second)]


@client.task(Paid, queue="looked_at")
def paid(job: Job[Paid]) -> None: ...


@client.task(Before, queue="looked_at")
def before(job: Job[Before]) -> None: ...


@client.task(Nothing)
def nothing(job: Job[Nothing]) -> None: ...


@client.task(Crash, max_attempts=3, backoff=0.05)
def crash(job: Job[Crash]) -> None:
    """End the process, each time."""
    os._exit(7)


@client.task(Pay, waits=True, max_attempts=2, backoff=0.05)
def pay(job: Job[Pay]) -> None:
    """Ask, and go on."""
    began(job)
    note = job.args.note
    payloads = []
    for n in range(1, job.args.times + 1):
        token = job.register_callback(job.args.timeout_s)
        write(f"{note}.{n}", token.id)
        if job.args.how == "late":
            stay(f"{note}.go")
        if job.args.how == "deaf":
            hear_nothing()
        try:
            payloads.append(job.wait_for_callback(token))
            crash_if_asked(job)
        except AwaError as problem:
            write(f"{note}.raised", type(problem).__name__)
            raise
    if job.args.how in ("many", "large"):
        stage(job)
    job.enqueue_on_completion(Paid(job.id, payloads))


@client.task(PayAsync, max_attempts=2, backoff=0.05)
async def pay_async(job: Job[PayAsync]) -> None:
    """Ask, and go on."""
    began(job)
    note = job.args.note
    payloads = []
    if job.args.how in ("again", "another"):
        job.enqueue_on_completion(Paid(job.id, await ask_others(job)))
        return
    for n in range(1, job.args.times + 1):
        token = await job.register_callback(job.args.timeout_s)
        write(f"{note}.{n}", token.id)
        if job.args.how == "late":
            stay(f"{note}.go")
        try:
            if job.args.how == "crash_beside":
                await asyncio.gather(job.wait_for_callback(token), crash_soon())
            payloads.append(await job.wait_for_callback(token))
            crash_if_asked(job)
        except AwaError as problem:
            write(f"{note}.raised", type(problem).__name__)
            raise
    if job.args.how in ("many", "large"):
        stage(job)
    job.enqueue_on_completion(Paid(job.id, payloads))
