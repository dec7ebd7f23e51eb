"""An app whose handlers stage follow-ups and then end in every way there is."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from awa_pool import Cancel, Client, EnqueueRequest, RetryAfter, Snooze, TerminalError
from awa_pool.errors import StagingError
from awa_pool.job import Job

client = Client()


@dataclass
class Follow:
    """A follow-up; nobody runs its queue, so that it can be looked at."""

    of: str
    n: int = 0


@dataclass
class Stage:
    """Stage `count` follow-ups named `name`, write the file `mark`.staged, then end as `how` says."""

    name: str
    how: str = "complete"
    count: int = 1
    keys: list[str] = field(default_factory=list)
    mark: str = ""


@dataclass
class StageAsync(Stage):
    """The same, by an async handler."""


@client.task(Follow, queue="parked")
def follow(job: Job[Follow]) -> None: ...


def act(job: Job[Stage] | Job[StageAsync]) -> object:
    """Stage, then do what the args say."""
    args = job.args
    for n in range(args.count):
        job.enqueue_on_completion(Follow(args.name, n))
    for key in args.keys:
        job.follow_ups().enqueue_on_completion(
            EnqueueRequest(Follow(key)).unique(by_args=True).metadata({"by": args.name})
        )
    if args.mark:
        Path(f"{args.mark}.staged").touch()
    return END[args.how](job)


def raise_it(problem: BaseException) -> object:
    raise problem


def swallow(job: Job[Stage]) -> object:
    try:
        job.enqueue_on_completion(Follow(job.args.name), priority=9)
    except StagingError:
        return None
    return None


def swallow_and(job: Job[Stage], answer: object) -> object:
    swallow(job)
    return answer


def hear_nothing_until(path: str) -> None:
    """Go on until a file is there, whatever is raised."""
    until_s = time.monotonic() + 60.0
    while not os.path.exists(path):
        assert time.monotonic() < until_s
        with contextlib.suppress(Exception):
            time.sleep(0.01)


def rest(job: Job[Stage]) -> object:
    """Go on for ever, as long as nothing is raised; once in all, if there is a mark."""
    if job.args.mark and os.path.exists(f"{job.args.mark}.go"):
        return None
    return asyncio.sleep(600) if isinstance(job.args, StageAsync) else time.sleep(600)


def die(job: Job[Stage]) -> object:
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return None


def from_threads(job: Job[Stage]) -> object:
    handle = job.follow_ups()
    threads = [
        threading.Thread(target=handle.enqueue_on_completion, args=(Follow(job.args.name, n),))
        for n in (10, 11)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return None


END = {
    "complete": lambda job: None,
    "value": lambda job: 7,
    "raise": lambda job: raise_it(ValueError("no")),
    "terminal": lambda job: raise_it(TerminalError("never")),
    "retry_after": lambda job: RetryAfter(3600),
    "snooze": lambda job: Snooze(3600),
    "cancel": lambda job: Cancel("not wanted"),
    "swallow": swallow,
    "swallow_retry": lambda job: swallow_and(job, RetryAfter(3600)),
    "swallow_snooze": lambda job: swallow_and(job, Snooze(3600)),
    "swallow_cancel": lambda job: swallow_and(job, Cancel("not wanted")),
    "swallow_raise": lambda job: (swallow(job), raise_it(ValueError("no"))),
    "rest": rest,
    "deaf": lambda job: hear_nothing_until(f"{job.args.mark}.go"),
    "die": die,
    "threads": from_threads,
}


@client.task(Stage, grace=0.5, cancel_kill=False, max_attempts=2, backoff=lambda attempt: 3600.0)
def stage(job: Job[Stage]) -> object:
    """Stage in a sync handler."""
    return act(job)


@client.task(StageAsync, grace=0.5, max_attempts=2, backoff=lambda attempt: 3600.0)
async def stage_async(job: Job[StageAsync]) -> object:
    """Stage in an async handler."""
    came = act(job)
    return await came if inspect.isawaitable(came) else came
