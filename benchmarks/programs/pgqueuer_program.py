"""Drive pgqueuer as its documentation says; runs in that package's own environment.

Orders: install; load (enqueue in batches); work (a worker process, drains or stays); produce (single inserts).
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from conversation import Bell, burn, receive, say
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

LOAD_BATCH = 5000


async def install(order: dict[str, Any]) -> None:
    """Create the schema."""
    connection = await asyncpg.connect(**order["server"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def load(order: dict[str, Any]) -> None:
    """Enqueue `jobs` jobs in batches, and say how fast that was."""
    connection = await asyncpg.connect(**order["server"])
    queries = Queries(AsyncpgDriver(connection))
    payload = order["payload"].encode()
    started = time.monotonic()
    for first in range(0, order["jobs"], LOAD_BATCH):
        count = min(LOAD_BATCH, order["jobs"] - first)
        await queries.enqueue([order["kind"]] * count, [payload] * count, [0] * count)
    say(per_s=order["jobs"] / (time.monotonic() - started))
    await connection.close()


async def work(order: dict[str, Any]) -> None:
    """Work the queue: until it is empty with `drain`, else until the benchmark ends this process."""
    connection = await asyncpg.connect(**order["server"])
    queue = PgQueuer.from_asyncpg_connection(connection)
    bell = Bell(order["bell"]) if order.get("bell") else None

    @queue.entrypoint("noop")
    async def noop(job: Job) -> None:
        return None

    @queue.entrypoint("burn")
    async def burning(job: Job) -> None:
        burn(json.loads(job.payload or b"{}")["cpu_s"])

    @queue.entrypoint("ping")
    async def ping(job: Job) -> None:
        bell.ring(json.loads(job.payload or b"{}")["sent_ns"])  # type: ignore[union-attr]

    say(ready=True)
    receive()
    mode = QueueExecutionMode.drain if order["drain"] else QueueExecutionMode.continuous
    await queue.run(batch_size=order["batch"], mode=mode, dequeue_timeout=timedelta(seconds=30))
    say(done=True)


async def produce(order: dict[str, Any]) -> None:
    """Insert one `ping` for each order that arrives; it carries the time just before the call."""
    connection = await asyncpg.connect(**order["server"])
    queries = Queries(AsyncpgDriver(connection))
    say(ready=True)
    while receive():
        await queries.enqueue("ping", json.dumps({"sent_ns": time.monotonic_ns()}).encode())
        say(sent=True)


async def singles(order: dict[str, Any]) -> None:
    """Insert one job a call for `seconds`, and say how fast that was."""
    connection = await asyncpg.connect(**order["server"])
    queries = Queries(AsyncpgDriver(connection))
    payload, count, started = order["payload"].encode(), 0, time.monotonic()
    while time.monotonic() - started < order["seconds"]:
        await queries.enqueue(order["kind"], payload)
        count += 1
    say(per_s=count / (time.monotonic() - started))


if __name__ == "__main__":
    first_order = receive()
    uvloop.run(globals()[first_order["role"]](first_order))
