"""Drive procrastinate as its documentation says; runs in that package's own environment.

Orders: install; load (batched defer); work (a worker process); produce (single inserts).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import procrastinate
from conversation import Bell, burn, receive, say

LOAD_BATCH = 1000
bells: list[Bell] = []


def app_of(order: dict[str, Any]) -> procrastinate.App:
    """Build the app with its three tasks."""
    server = order["server"]
    arguments = {
        "host": server["host"],
        "port": server["port"],
        "user": server["user"],
        "dbname": server["database"],
    }
    if server.get("password"):
        arguments["password"] = server["password"]
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(kwargs=arguments))

    @app.task(name="noop")
    async def noop(i: int, payload: str) -> None:
        return None

    @app.task(name="burn")
    async def burning(cpu_s: float) -> None:
        burn(cpu_s)

    @app.task(name="ping")
    async def ping(sent_ns: int) -> None:
        bells[0].ring(sent_ns)

    return app


def arguments_of(order: dict[str, Any], number: int) -> dict[str, Any]:
    """Make one job's arguments."""
    return {"cpu_s": order["cpu_s"]} if order["kind"] == "burn" else {"i": number, "payload": "a" * 30}


async def install(order: dict[str, Any]) -> None:
    """Create the schema."""
    app = app_of(order)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def load(order: dict[str, Any]) -> None:
    """Defer `jobs` jobs in batches, and say how fast that was."""
    app = app_of(order)
    async with app.open_async():
        started = time.monotonic()
        for first in range(0, order["jobs"], LOAD_BATCH):
            numbers = range(first, min(first + LOAD_BATCH, order["jobs"]))
            await app.configure_task(order["kind"]).batch_defer_async(
                *(arguments_of(order, i) for i in numbers)
            )
        say(per_s=order["jobs"] / (time.monotonic() - started))


async def work(order: dict[str, Any]) -> None:
    """Work the queue: until it is empty with `drain`, else until the benchmark ends this process."""
    app = app_of(order)
    if order.get("bell"):
        bells.append(Bell(order["bell"]))
    async with app.open_async():
        say(ready=True)
        await asyncio.to_thread(receive)
        await app.run_worker_async(
            concurrency=order["max_workers"], wait=not order["drain"], install_signal_handlers=False
        )
        say(done=True)


async def produce(order: dict[str, Any]) -> None:
    """Defer one `ping` for each order that arrives; it carries the time just before the call."""
    app = app_of(order)
    async with app.open_async():
        say(ready=True)
        while receive():
            await app.configure_task("ping").defer_async(sent_ns=time.monotonic_ns())
            say(sent=True)


async def singles(order: dict[str, Any]) -> None:
    """Defer one job a call for `seconds`, and say how fast that was."""
    app = app_of(order)
    async with app.open_async():
        count, started = 0, time.monotonic()
        while time.monotonic() - started < order["seconds"]:
            await app.configure_task(order["kind"]).defer_async(**arguments_of(order, count))
            count += 1
        say(per_s=count / (time.monotonic() - started))


if __name__ == "__main__":
    first_order = receive()
    asyncio.run(globals()[first_order["role"]](first_order))
