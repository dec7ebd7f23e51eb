"""The app whose jobs the benchmarks run: `awa-pool benchmarks.apps:client`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from awa_pool import Client, Job

from .asking import Line
from .programs.conversation import Bell, burn

QUEUE = "bench"
READY_VARIABLE, BELL_VARIABLE = "AWA_BENCH_READY", "AWA_BENCH_BELL"

client = Client()
CALLBACK_TIMEOUT_S = 3600
_bells: list[Bell] = []
_lines: dict[str, Line] = {}


@dataclass
class Noop:
    """The empty job; the payload gives it the size that every contender's job has."""

    i: int
    payload: str


@dataclass
class Burn:
    """A job that uses `cpu_s` seconds of CPU."""

    cpu_s: float


@dataclass
class Ping:
    """A job that reports how long it waited since `sent_ns` on the host's monotonic clock."""

    sent_ns: int


@dataclass
class Mark:
    """A job that writes into the file at `path` when it starts, and then lets nothing else of its worker run for `hold_s` seconds."""

    path: str
    hold_s: float = 0.0


@dataclass
class MarkOther(Mark):
    """The same, of another kind."""


@dataclass
class Stage:
    """A job that stages an empty job into `queue`."""

    i: int
    payload: str
    queue: str


@dataclass
class Converse:
    """A job that asks again and again, while the answers say that there is more; it writes its callbacks to the pipe `line`."""

    i: int
    line: str


@dataclass
class ConverseBlocking(Converse):
    """The same in a plain function."""


@client.task(Noop, queue=QUEUE)
def noop(job: Job[Noop]) -> None:
    """Do nothing."""


@client.task(Burn, queue=QUEUE)
def burning(job: Job[Burn]) -> None:
    """Use CPU."""
    burn(job.args.cpu_s)


@client.task(Ping, queue=QUEUE)
def ping(job: Job[Ping]) -> None:
    """Ring the benchmark's bell."""
    _bells[0].ring(job.args.sent_ns)


def mark(job: Job[Mark]) -> None:
    """Leave a line, and hold the interpreter's lock as native code may."""
    with open(job.args.path, "a") as file:
        file.write(f"{time.monotonic()} {job.args.hold_s}\n")
    if job.args.hold_s:
        ctypes.PyDLL(None).usleep(int(job.args.hold_s * 1e6))


client.task(Mark, queue=QUEUE)(mark)
client.task(MarkOther, queue=QUEUE)(mark)


@client.task(Stage, queue=QUEUE)
def stage(job: Job[Stage]) -> None:
    """Stage one follow-up."""
    job.enqueue_on_completion(Noop(job.args.i, job.args.payload), queue=job.args.queue)


@client.task(Converse, queue=QUEUE)
async def converse(job: Job[Converse]) -> None:
    """Register, wait, and go on."""
    line, resumed_ns, more = line_to(job.args.line), 0, True
    while more:
        token = await job.register_callback(CALLBACK_TIMEOUT_S)
        line.say(job.args.i, resumed_ns, token.id)
        more = (await job.wait_for_callback(token))["more"]
        resumed_ns = time.monotonic_ns()


@client.task(ConverseBlocking, queue=QUEUE, waits=True)
def converse_blocking(job: Job[ConverseBlocking]) -> None:
    """Register, wait, and go on."""
    line, resumed_ns, more = line_to(job.args.line), 0, True
    while more:
        token = job.register_callback(CALLBACK_TIMEOUT_S)
        line.say(job.args.i, resumed_ns, token.id)
        more = job.wait_for_callback(token)["more"]
        resumed_ns = time.monotonic_ns()


def line_to(path: str) -> Line:
    """Return this worker's end of a pipe to the benchmark."""
    return _lines.get(path) or _lines.setdefault(path, Line(path))


@client.process_start
def report_in() -> None:
    """Write this worker's process id where the benchmark waits for it."""
    if path := os.environ.get(BELL_VARIABLE):
        _bells.append(Bell(path))
    if path := os.environ.get(READY_VARIABLE):
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")


@contextlib.contextmanager
def client_for(dsn: str) -> Iterator[Client]:
    """Give a client of that database which knows this app's kinds and queues."""
    producer = Client(dsn)
    producer.registry = client.registry
    try:
        yield producer
    finally:
        producer.close()
