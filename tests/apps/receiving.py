"""An app whose jobs are answered through a receiver: what it registers for answers fails while a file is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from awa_pool import Client
from awa_pool.hooks import Completed, JobEvent
from awa_pool.job import Job

client = Client()


@dataclass
class Order:
    """Waits for its payment; the file `broken` breaks the spec, `heard` is written by the hook."""

    broken: str
    heard: str


@dataclass
class Ship:
    """A follow-up."""

    order: int


@client.task(Order)
def order(job: Job[Order]) -> None: ...


@client.task(Ship, queue="looked_at")
def ship(job: Job[Ship]) -> None: ...


@client.on_completed_enqueue(Order)
def ship_it(args: Order, job: Job[Order]) -> Ship:
    """Ship what was paid."""
    if Path(args.broken).exists():
        raise ValueError("the stock is closed")
    return Ship(job.id)


@client.on_event(Order)
def hear(event: JobEvent) -> None:
    """Write down what was told."""
    if isinstance(event, Completed):
        Path(event.args.heard).write_text("completed")
