"""An app whose handlers complete their jobs in transactions of their own, beside a row of the app's in `shipped`."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from awa_pool import Client, DeadlineExceeded, EnqueueRequest
from awa_pool.hooks import JobEvent
from awa_pool.job import Job

client = Client()
leaked: list[psycopg.Connection] = []
TABLE = "create table shipped (job_id bigint, attempt int, run_lease bigint)"


@dataclass
class Ship:
    """End as `how` says; `note` is a file to write what happened."""

    how: str = ""
    note: str = ""


@dataclass
class ShipAsync(Ship):
    """The same, by an async handler."""


@dataclass
class Carry:
    """Register a callback, write its id into `note`, wait for its answer, and complete."""

    note: str


@dataclass
class Plain:
    """Nothing."""


@dataclass
class Sorry:
    """A follow-up; nobody runs its queue."""

    of: int


def add(job: Job[Ship]) -> tuple[str, tuple[int, ...]]:
    return "insert into shipped values (%s, %s, %s)", (job.id, job.attempt, job.run_lease)


def await_file(path: str) -> None:
    """Wait until somebody has made this file."""
    until_s = time.monotonic() + 30.0
    while not os.path.exists(path):
        assert time.monotonic() < until_s
        select.select([], [], [], 0.01)


@client.task(Ship, caller_completes=True, max_attempts=2, backoff=3600.0)
def ship(job: Job[Ship]) -> None:
    """Ship, synchronously."""
    how, note = job.args.how, job.args.note
    if how == "nothing":
        return
    conn = psycopg.connect(client._found_dsn())
    if how in ("outer", "forget", "leak"):
        conn.execute("select 1")
    try:
        with job.completing(conn):
            conn.execute(*add(job))
            if how == "slow":
                Path(f"{note}.begun").touch()
                await_file(f"{note}.go")
            if how == "late":
                Path(f"{note}.begun").touch()
                await_file(f"{note}.never")
        if how == "outer":
            conn.commit()
    except DeadlineExceeded:
        Path(f"{note}.late").touch()
        raise
    finally:
        if how == "leak":
            leaked.append(conn)
        else:
            conn.close()
    if how == "raise":
        raise ValueError("too late")


@client.task(ShipAsync, caller_completes=True, max_attempts=2, backoff=3600.0)
async def ship_async(job: Job[ShipAsync]) -> None:
    """Ship, asynchronously."""
    async with await psycopg.AsyncConnection.connect(client._found_dsn()) as conn, job.completing(conn):
        await conn.execute(*add(job))


@client.task(Carry, caller_completes=True, waits=True, max_attempts=2)
def carry(job: Job[Carry]) -> None:
    """Ask, wait, ship."""
    token = job.register_callback(60)
    Path(f"{job.args.note}.new").write_text(token.id)
    os.rename(f"{job.args.note}.new", job.args.note)
    payload = job.wait_for_callback(token)
    with psycopg.connect(client._found_dsn()) as conn, job.completing(conn):
        conn.execute("insert into shipped values (%s, %s, %s)", (job.id, payload, 0))


@client.task(Plain)
def plain(job: Job[Plain]) -> None: ...


@client.task(Sorry, queue="looked_at")
def sorry(job: Job[Sorry]) -> None: ...


@client.on_retried_enqueue(Ship)
def say_sorry(args: Ship, job: Job[Ship], error: str, attempt: int, next_run_at: object) -> EnqueueRequest:
    """Follow a failed attempt up."""
    return EnqueueRequest(Sorry(job.id))


@client.on_event(Ship)
def hear(event: JobEvent) -> None:
    """Write down what was told."""
    if event.args.note:
        with open(f"{event.args.note}.told", "a") as file:
            file.write(type(event).__name__ + "\n")
