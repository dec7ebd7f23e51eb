"""Drive awa-pg as its documentation says; runs in that package's own environment.

Orders: install; load (COPY into its queue storage); work (a worker process); produce (single inserts).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import awa
from conversation import Bell, Counter, burn, receive, say

LOAD_BATCH = 5000


@dataclass
class Noop:
    """The empty job; the payload gives it the size that every contender's job has."""

    i: int
    payload: str


@dataclass
class Burn:
    """A job that uses CPU."""

    cpu_s: float


@dataclass
class Ping:
    """A job that reports how long it waited."""

    sent_ns: int


def url(server: dict[str, Any]) -> str:
    """Write the connection as the URL this client takes."""
    password = f":{server['password']}" if server.get("password") else ""
    return f"postgres://{server['user']}{password}@{quote(server['host'], safe='')}:{server['port']}/{server['database']}"


def queue_of(order: dict[str, Any]) -> awa.PartitionedQueue:
    """Spread the logical queue over the physical queues asked for."""
    return awa.PartitionedQueue("bench", order["partitions"])


def job_of(order: dict[str, Any], number: int) -> Noop | Burn:
    """Make one job of the kind asked for."""
    if order["kind"] == "burn":
        return Burn(order["cpu_s"])
    return Noop(number, "a" * 30)


async def install(order: dict[str, Any]) -> None:
    """Create the schema."""
    client = awa.AsyncClient(url(order["server"]))
    await client.migrate()
    await (
        client.install_queue_storage()
    )  # a fresh database has no jobs to carry over: choose the fast engine now
    await client.close()


async def load(order: dict[str, Any]) -> None:
    """Enqueue `jobs` jobs by COPY, and say how fast that was."""
    client = awa.AsyncClient(url(order["server"]))
    queue = queue_of(order)
    started = time.monotonic()
    for first in range(0, order["jobs"], LOAD_BATCH):
        numbers = range(first, min(first + LOAD_BATCH, order["jobs"]))
        await client.enqueue_many_copy(
            [job_of(order, i) for i in numbers], opts=[queue.route_by_index(i) for i in numbers]
        )
    say(per_s=order["jobs"] / (time.monotonic() - started))
    await client.close()


async def work(order: dict[str, Any]) -> None:
    """Work the queue until the benchmark ends this process."""
    client = awa.AsyncClient(url(order["server"]), max_connections=order["connections"])
    queue = queue_of(order)
    bell = Bell(order["bell"]) if order.get("bell") else None
    counter = Counter(order.get("counter"))

    @client.task(Noop, queue=queue.physical_queues[0])
    async def noop(job: awa.Job) -> None:
        counter.add()

    @client.task(Burn, queue=queue.physical_queues[0])
    async def burning(job: awa.Job) -> None:
        burn(job.args.cpu_s)
        counter.add()

    @client.task(Ping, queue=queue.physical_queues[0])
    async def ping(job: awa.Job) -> None:
        bell.ring(job.args.sent_ns)  # type: ignore[union-attr]

    say(ready=True)
    await asyncio.to_thread(receive)
    settings: dict[str, Any] = {"max_workers_per_partition": order["max_workers"]}
    if order.get("claimers"):
        settings["claimers"] = order["claimers"]
    if order.get("batch"):
        settings["claim_batch_size"] = order["batch"]
    await client.start(queue.queue_configs(**settings), poll_interval_ms=order.get("poll_ms", 50))
    say(started=True)
    await asyncio.to_thread(receive)
    await client.shutdown()


async def produce(order: dict[str, Any]) -> None:
    """Insert one `Ping` for each order that arrives; it carries the time just before the call."""
    client = awa.AsyncClient(url(order["server"]))
    queue = queue_of(order)
    say(ready=True)
    while receive():
        await client.insert(Ping(time.monotonic_ns()), queue=queue.physical_queues[0])
        say(sent=True)


async def singles(order: dict[str, Any]) -> None:
    """Insert one job a call for `seconds`, and say how fast that was."""
    client = awa.AsyncClient(url(order["server"]))
    queue = queue_of(order)
    count, started = 0, time.monotonic()
    while time.monotonic() - started < order["seconds"]:
        await client.insert(job_of(order, count), queue=queue.physical_queues[0])
        count += 1
    say(per_s=count / (time.monotonic() - started))


if __name__ == "__main__":
    first_order = receive()
    asyncio.run(globals()[first_order["role"]](first_order))
