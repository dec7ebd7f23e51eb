"""An app whose handlers register callbacks with rules, park, and go on with what the rules let through."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from awa_pool import CallbackToken, Client, WaitForCallback
from awa_pool.job import Job

client = Client()
RULES = {
    "filter": "payload.order == 7", "on_fail": "payload.status == 'refused'", "on_complete": "payload.status == 'free'",
    "transform": "{'paid': payload.cents / 100}",
}  # fmt: skip
LIBRARY = "cel_expr_python"


@dataclass
class Pay:
    """Ask for the payment of order 7, and write the callback's id into the file `note`."""

    note: str


@dataclass
class PayAsync(Pay):
    """The same, by an async handler."""


@dataclass
class Wait(Pay):
    """The same, by a handler that waits."""


@dataclass
class WaitAsync(Wait):
    """The same, by an async handler."""


@dataclass
class Paid:
    """A follow-up: what the job went on with. Nobody runs its queue, so that it can be looked at."""

    of: int
    payload: object


@client.task(Paid, queue="looked_at")
def paid(job: Job[Paid]) -> None: ...


def go_on(job: Job[Pay] | Job[PayAsync]) -> None:
    """Stage what was answered."""
    assert job.resumed is not None
    job.enqueue_on_completion(Paid(job.id, job.resumed.payload))


def hand_over(note: str, token: CallbackToken) -> CallbackToken:
    """Tell the outside world, whole or not at all."""
    assert LIBRARY in sys.modules and token.rules == RULES
    Path(f"{note}.new").write_text(token.id)
    os.rename(f"{note}.new", note)
    return token


def park(job: Job[Pay] | Job[PayAsync], token: CallbackToken) -> WaitForCallback:
    """Wait with no handler alive."""
    return WaitForCallback(hand_over(job.args.note, token))


@client.task(Pay)
def pay(job: Job[Pay]) -> object:
    """Ask, or go on."""
    if job.resumed is not None:
        return go_on(job)
    job.register_callback(60)
    Path(f"{job.args.note}.before").write_text(str(LIBRARY in sys.modules))
    return park(job, job.register_callback(3600, **RULES))


@client.task(PayAsync)
async def pay_async(job: Job[PayAsync]) -> object:
    """Ask, or go on."""
    if job.resumed is not None:
        return go_on(job)
    return park(job, await job.register_callback(3600, **RULES))


@client.task(Wait, waits=True)
def wait(job: Job[Wait]) -> None:
    """Ask, and wait for what the rules let through."""
    token = hand_over(job.args.note, job.register_callback(3600, **RULES))
    job.enqueue_on_completion(Paid(job.id, job.wait_for_callback(token)))


@client.task(WaitAsync)
async def wait_async(job: Job[WaitAsync]) -> None:
    """Ask, and wait for what the rules let through."""
    token = hand_over(job.args.note, await job.register_callback(3600, **RULES))
    job.enqueue_on_completion(Paid(job.id, await job.wait_for_callback(token)))
