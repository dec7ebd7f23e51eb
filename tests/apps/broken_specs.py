"""An app whose specs all fail: they raise, or what they ask for cannot be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from awa_pool import Cancel, Client, EnqueueRequest, TerminalError
from awa_pool.job import Job

client = Client()


@dataclass
class Told:
    """A follow-up; the test's own trigger refuses it."""

    of: int


@dataclass
class Raising:
    """End as `how` says; the specs of this kind raise."""

    how: str


@dataclass
class Refused(Raising):
    """The same; the specs of this kind return what the database refuses."""


@client.task(Told, queue="parked")
def told(job: Job[Told]) -> None: ...


def end(job: Job[Any]) -> object:
    """Come to the outcome that the args name."""
    match job.args.how:
        case "raise" | "raise at last":
            raise ValueError("no")
        case "terminal":
            raise TerminalError("never")
        case "cancel":
            return Cancel("not wanted")
        case "hang":
            sum(range(10**12))  # in native code, deaf to signals
    return None


client.task(Raising, max_attempts=2, backoff=lambda attempt: 3600.0)(end)
client.task(Refused, max_attempts=2, backoff=lambda attempt: 3600.0)(end)


def broken(args: Raising, job: Job[Any], *more: Any) -> EnqueueRequest:
    """The spec that raises."""
    raise RuntimeError("the spec is broken")


def refused(args: Refused, job: Job[Any], *more: Any) -> EnqueueRequest:
    """The spec whose follow-up no database takes."""
    return EnqueueRequest(Told(job.id))


for door in ("completed", "retried", "exhausted", "cancelled", "rescued", "waiting_for_callback"):
    getattr(client, f"on_{door}_enqueue")(Raising, broken)
    getattr(client, f"on_{door}_enqueue")(Refused, refused)
