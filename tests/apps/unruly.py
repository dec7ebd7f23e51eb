"""Handlers that draw, return, open and hold what a worker must be able to bear."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
import types
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from awa_pool import Client
from awa_pool.job import Job
from awa_pool.outcomes import RetryAfter, Snooze

client = Client()

if "pytest" not in sys.modules and "numpy" not in sys.modules:  # a library with a generator of its own
    stand_in = types.ModuleType("numpy.random")
    stand_in.generator = random.Random(1)  # type: ignore[attr-defined]
    stand_in.seed = stand_in.generator.seed  # type: ignore[attr-defined]
    sys.modules["numpy.random"] = stand_in


@dataclass
class Mark:
    """Leave a line behind: process, job, attempt."""

    path: str
    s: float = 0.0


def leave(job: Job[Mark]) -> None:
    with open(job.args.path, "a") as file:
        file.write(f"{os.getpid()} {job.id} {job.attempt}\n")


@client.task(Mark)
def mark(job: Job[Mark]) -> None:
    leave(job)
    time.sleep(job.args.s)


@client.task(Mark, kind="mark_async")
async def mark_async(job: Job[Mark]) -> None:
    await asyncio.sleep(job.args.s)
    leave(job)


@dataclass
class Draw:
    path: str


@client.task(Draw)
def draw(job: Job[Draw]) -> None:
    other = sys.modules["numpy.random"].generator.random()  # type: ignore[attr-defined]
    with open(job.args.path, "a") as file:
        file.write(f"{os.getpid()} {random.random()} {other} {uuid.uuid4()}\n")
    time.sleep(0.1)


class Spiteful:
    def __reduce__(self) -> str:
        raise RuntimeError("not to be serialised")

    __getstate__ = __repr__ = __reduce__


def numbers() -> Iterator[int]:
    yield 1


@dataclass
class Give:
    what: str


def give(job: Job[Give]) -> object:
    match job.args.what:
        case "lambda":
            return lambda: None
        case "file":
            return open(os.devnull)
        case "generator":
            return numbers()
    return Spiteful()


for what in ("lambda", "file", "generator", "spiteful"):
    client.task(Give, kind=f"give_{what}")(give)


@dataclass
class Talk:
    """Use the shared context of the library that the worker itself talks through."""

    then: str


@client.task(Talk)
def talk(job: Job[Talk]) -> None:
    import zmq

    context = zmq.Context.instance()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind(f"inproc://own-{job.id}")
    other.connect(f"inproc://own-{job.id}")
    one.send(b"x")
    assert other.recv() == b"x"
    if job.args.then == "destroy":
        context.destroy(linger=0)
    elif job.args.then == "close":
        one.close()
        other.close()
        context.term()  # "leave" leaves both open


@dataclass
class Weigh:
    size: int
    text: str


@client.task(Weigh)
def weigh(job: Job[Weigh]) -> None:
    assert len(job.args.text) == job.args.size


@dataclass
class Confide:
    """Carry a secret to whatever end is asked for."""

    then: str
    secret: str
    number: int = 0
    more: dict[str, str] = field(default_factory=dict)


@client.task(Confide, max_attempts=2, backoff=lambda attempt: 0.05)
def confide(job: Job[Confide]) -> object:
    match job.args.then if job.attempt == 1 else "":
        case "raise":
            raise ValueError("boom")
        case "retry":
            return RetryAfter(0.05)
        case "snooze" if job.snoozes == 0:
            return Snooze(0.05)
        case "die":
            os._exit(7)
        case "give":
            return job.args
        case "hang":
            time.sleep(600)
    return None


@dataclass
class Heed:
    """Run until cancelled."""

    path: str


@client.task(Heed)
def heed(job: Job[Heed]) -> None:
    with open(job.args.path, "a") as file:
        file.write(f"{job.id}\n")
    until = time.monotonic() + 30.0
    while not job.is_cancelled():
        if time.monotonic() > until:
            raise TimeoutError("never cancelled")
        time.sleep(0.001)
