"""Handlers that the tests of worker processes run: well behaved ones, and all the others."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass

from awa_pool.errors import TerminalError
from awa_pool.job import Job
from awa_pool.outcomes import Cancel, RetryAfter, Snooze
from awa_pool.registry import Registry

registry = Registry()
mixed = Registry()


@dataclass
class Noop:
    n: int = 0


@dataclass
class Do:
    what: str
    path: str = ""
    s: float = 0.0


def noop(job: Job[Noop]) -> None:
    pass


class Spiteful:
    def __reduce__(self) -> str:
        raise RuntimeError("not to be serialised")

    def __repr__(self) -> str:
        raise RuntimeError("not to be printed")

    __str__ = __repr__


class SpitefulError(Exception):
    def __str__(self) -> str:
        raise SystemExit("even this")


def wait_for_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.002)


def own_pool() -> None:
    from multiprocess import get_context

    with get_context("fork").Pool(2) as pool:
        assert sorted(pool.map(abs, range(-5, 5))) == sorted(map(abs, range(-5, 5)))


def own_executor() -> None:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]


def own_socket() -> None:
    import zmq

    context = zmq.Context.instance()
    with context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://own")
        other.connect("inproc://own")
        one.send(b"x")
        assert other.recv() == b"x"
    context.term()


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


def write_draws(path: str) -> None:
    with open(path, "w") as file:
        file.write(f"{random.random()} {uuid.uuid4()}")


def stray_fork() -> None:
    if os.fork() == 0:
        return
    time.sleep(0.05)


def child_signals(path: str) -> None:
    script = "import signal; print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    with open(path, "w") as file:
        file.write(out.stdout)


def leave_grandchild(path: str) -> None:
    child = subprocess.Popen(["sleep", "300"])
    with open(path, "w") as file:
        file.write(str(child.pid))


def say() -> None:
    print("printed line")
    print("no line end", end="")
    logging.getLogger("shop").warning("logged line")


def interrupted(path: str) -> None:
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(0.05)


def wait_until_cancelled(job: Job[Do]) -> None:
    open(job.args.path, "w").close()
    until = time.monotonic() + 20
    while not job.is_cancelled():
        if time.monotonic() > until:
            raise TerminalError("never cancelled")


def do(job: Job[Do]) -> object:
    what, path = job.args.what, job.args.path
    match what:
        case "raise":
            raise ValueError("boom")
        case "terminal":
            raise TerminalError("never again")
        case "spiteful error":
            raise SpitefulError
        case "exit 0":
            sys.exit(0)
        case "exit text":
            sys.exit("some text")
        case "interrupt":
            raise KeyboardInterrupt
        case "retry":
            return RetryAfter(7)
        case "snooze":
            return Snooze(8)
        case "cancel":
            return Cancel("no need")
        case "lambda":
            return lambda: None
        case "open file":
            return open("/dev/null")
        case "generator":
            return (n for n in range(3))
        case "spiteful":
            return Spiteful()
        case "coroutine":
            return asyncio.sleep(0)
        case "recursion":
            return recurse()
        case "os._exit":
            os._exit(3)
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "thread":
            threading.Thread(target=time.sleep, args=(60,)).start()
        case "hold the interpreter":
            open(path, "w").close()
            ctypes.PyDLL(None).usleep(int(job.args.s * 1e6))
        case "wait for file":
            open(path + ".started", "w").close()
            wait_for_file(path)
        case "wait for file, reading mail":
            open(path + ".started", "w").close()
            while not os.path.exists(path):
                job.is_cancelled()
                time.sleep(0.002)
        case "until cancelled":
            wait_until_cancelled(job)
        case _:
            return BY_NAME[what](path) if what in WITH_PATH else BY_NAME[what]()
    return None


BY_NAME = {
    "own pool": own_pool,
    "own socket": own_socket,
    "own executor": own_executor,
    "stray fork": stray_fork,
    "draws": write_draws,
    "child signals": child_signals,
    "grandchild": leave_grandchild,
    "say": say,
    "interrupted": interrupted,
}
WITH_PATH = {"draws", "child signals", "grandchild", "interrupted"}

registry.add(Noop, noop)
registry.add(Do, do)


@dataclass
class Rest:
    s: float
    then: str = ""


async def rest(job: Job[Rest]) -> None:
    if job.args.then == "cancel all":
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(60)
    await asyncio.sleep(job.args.s)
    print("rested")
    if job.args.then == "exit":
        sys.exit(4)
    if job.args.then == "cancelled":
        raise asyncio.CancelledError
    if job.args.then == "stray":
        asyncio.get_running_loop().call_soon(sys.exit, 5)
    if job.args.then == "stop the loop":
        asyncio.get_running_loop().stop()
    if job.args.then == "no tasks":
        asyncio.get_running_loop().set_task_factory(lambda loop, running, **_: sys.exit(6))
    while job.args.then == "until cancelled" and not job.is_cancelled():
        await asyncio.sleep(0.002)


mixed.add(Rest, rest)
mixed.add(Noop, noop)
