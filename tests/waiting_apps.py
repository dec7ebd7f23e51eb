"""Handlers that wait for callbacks where they are, for tests of worker processes without a database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from awa_pool.errors import AwaError
from awa_pool.job import Job
from awa_pool.registry import Registry

registry = Registry()
threadless = Registry()


@dataclass
class Ask:
    """Wait `times` times and write each payload, or the name of what was raised, as a line into `path`."""

    path: str = ""
    times: int = 1
    then: str = ""


@dataclass
class AskAsync(Ask):
    """The same, by an async handler."""


@dataclass
class AskBare(Ask):
    """The same, by a plain handler that was not declared to wait."""


def note(path: str, text: object) -> None:
    if path:
        with open(path, "a") as file:
            file.write(f"{text}\n")


def spin(until_s: float) -> None:
    """Use the interpreter, as a handler that computes does."""
    while time.monotonic() < until_s:
        sum(range(100))


def ask(job: Job[Ask]) -> None:
    path = job.args.path
    try:
        match job.args.then:
            case "say":
                print("printed line")
                logging.getLogger("shop").warning("logged line of %s", threading.current_thread().name)
            case "spin":
                spin(time.monotonic() + 30.0)
            case "pool":
                from multiprocess import get_context

                with get_context("fork").Pool(2) as pool:
                    assert sorted(pool.map(abs, [-1, -2])) == [1, 2]
            case "exit":
                raise SystemExit(3)
        for _ in range(job.args.times):
            note(path, job.wait_for_callback(job.register_callback(60)))
        if job.args.then == "from another thread":
            token = job.register_callback(60)
            thread = threading.Thread(target=waits_there, args=(job, token))
            thread.start()
            thread.join()
    except AwaError as problem:
        note(path, type(problem).__name__)
        raise


def waits_there(job: Job[Ask], token: Any) -> None:
    try:
        job.wait_for_callback(token)
    except AwaError as problem:
        note(job.args.path, f"{type(problem).__name__}: {problem}")


mine: ContextVar[str] = ContextVar("mine", default="unset")


async def ask_async(job: Job[AskAsync]) -> None:
    path = job.args.path
    if job.args.then == "context":
        note(path, mine.get())
        mine.set("set")
    try:
        if job.args.then == "leave":
            token = await job.register_callback(60)
            left.append(asyncio.create_task(leave_waiting(job, token)))
            await asyncio.sleep(0.05)
            return
        if job.args.then.startswith("abandon"):
            wait = asyncio.shield(job.wait_for_callback(await job.register_callback(60)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wait, 3600 if job.args.then == "abandon at the deadline" else 0.1)
            if job.args.then == "abandon and raise":
                raise ValueError("given up")
            return
        if job.args.then == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(job.wait_for_callback(await job.register_callback(60)))
                group.create_task(asyncio.sleep(3600))
        for _ in range(job.args.times):
            note(path, await job.wait_for_callback(await job.register_callback(60)))
        if job.args.then == "twice at once":
            token = await job.register_callback(60)
            found = await asyncio.gather(
                *(job.wait_for_callback(token) for _ in range(2)), return_exceptions=True
            )
            note(path, sorted(str(each) for each in found))
    except AwaError as problem:
        note(path, type(problem).__name__)
        raise


left: list[asyncio.Task[None]] = []


async def leave_waiting(job: Job[AskAsync], token: Any) -> None:
    try:
        await job.wait_for_callback(token)
    except AwaError as problem:
        note(job.args.path, f"{type(problem).__name__}: {problem}")


def no_threads() -> None:
    """Let the system be out of threads, three times, for handlers."""
    start = threading.Thread.start
    refused = iter(range(3))

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("awa-pool job") and next(refused, None) is not None:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse  # type: ignore[method-assign]


registry.add(Ask, ask, waits=True)
registry.add(AskAsync, ask_async)
registry.add(AskBare, ask)
threadless.add(Ask, ask, waits=True)
threadless.add_hook(threadless.process_start, no_threads)
