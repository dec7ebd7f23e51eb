"""An app whose jobs die in every way until a file says that the world is well again."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from awa_pool import Client, Job, RetryAfter, TerminalError

client = Client()


@dataclass
class Mortal:
    how: str
    well: str  # the file


@client.task(Mortal, max_attempts=1, backoff=0.01)
def mortal(job: Job[Mortal]) -> RetryAfter | None:
    if os.path.exists(job.args.well):
        return None
    match job.args.how:
        case "raise":
            raise ValueError("no")
        case "terminal":
            raise TerminalError("never")
        case "ask":
            return RetryAfter(0.01)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)
    return None
