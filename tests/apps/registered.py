"""An app that registers a follow-up for every outcome, and whose handlers come to all of them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from awa_pool import Cancel, Client, EnqueueRequest, TerminalError
from awa_pool.job import Job

client = Client()


@dataclass
class Told:
    """A follow-up: of which job, by which outcome, with what."""

    of: int
    outcome: str
    more: list[str]


@dataclass
class Try:
    """End as `how` says."""

    how: str = "complete"
    mark: str = ""


@client.task(Told, queue="parked")
def told(job: Job[Told]) -> None: ...


@client.task(Try, max_attempts=2, backoff=lambda attempt: 3600.0)
def try_(job: Job[Try]) -> object:
    """Come to the outcome that the args name."""
    match job.args.how:
        case "raise":
            raise ValueError("no")
        case "terminal":
            raise TerminalError("never")
        case "cancel":
            return Cancel("not wanted")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            sum(range(10**12))  # in native code, deaf to signals
        case "wait":
            time.sleep(600)
    return None


def spec(outcome: str) -> Any:
    """A spec that writes down what it was told; with a mark it dies once in the evaluating worker."""

    def tell(args: Try, job: Job[Try], *more: Any) -> EnqueueRequest:
        if args.mark and not os.path.exists(args.mark):
            with open(args.mark, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        texts = [
            type(item).__name__ if item is not None and not isinstance(item, (str, int)) else str(item)
            for item in more
        ]
        return EnqueueRequest(Told(job.id, outcome, texts))

    return tell


client.on_completed_enqueue(Try, spec("completed"))
client.on_retried_enqueue(Try, spec("retried"))
client.on_exhausted_enqueue(Try, spec("exhausted"))
client.on_cancelled_enqueue(Try, spec("cancelled"))
client.on_rescued_enqueue(Try, spec("rescued"))
