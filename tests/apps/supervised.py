"""A small app for whole pools: jobs that count, last, crash and die as told."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass

from awa_pool import Client
from awa_pool.job import Job

client = Client()


@dataclass
class Act:
    what: str = "pass"
    s: float = 0.0
    path: str = ""


@client.task(Act, max_attempts=2, backoff=lambda attempt: 0.1)
def act(job: Job[Act]) -> None:
    """Do what the args say; `path` is touched at the start."""
    if job.args.path:
        with open(job.args.path, "a") as file:
            file.write(f"{job.id} {job.attempt} {os.getpid()}\n")
    if job.args.what == "sleep":
        time.sleep(job.args.s)
    elif job.args.what == "spin":
        until = time.monotonic() + job.args.s
        while time.monotonic() < until:
            pass
    elif job.args.what == "hold":  # the interpreter, until somebody makes that file
        until = time.monotonic() + job.args.s
        while not os.path.exists(f"{job.args.path}.go") and time.monotonic() < until:
            sum(range(1000))
    elif job.args.what == "kill" and job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    elif job.args.what == "segfault" and job.attempt == 1:
        ctypes.string_at(0)
    elif job.args.what == "child":
        os.system(f"sleep {job.args.s} &")
        time.sleep(job.args.s)


@dataclass
class Rest:
    path: str
    s: float


@client.task(Rest)
def rest(job: Job[Rest]) -> None:
    """Take long, by another kind: as long as the file that `Act` would wait for is not there."""
    until = time.monotonic() + job.args.s
    while not os.path.exists(f"{job.args.path}.go") and time.monotonic() < until:
        sum(range(1000))


@dataclass
class Relay:
    """Put a job in from a handler, through the app's own client."""


@client.task(Relay)
def relay(job: Job[Relay]) -> None:
    client.insert(Act())
    client.close()
