"""An app whose handlers run too long in every way, to be ended from within and from outside."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import time
from dataclasses import dataclass

from awa_pool import Client, DeadlineExceeded, JobCancelled, RetryAfter
from awa_pool.job import Job

client = Client()


@dataclass
class Work:
    what: str = "pass"
    path: str = ""


def note(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(f"{text}\n")


def forever_in_native_code() -> None:
    sum(range(10**15))  # in C, holding the interpreter: no signal is looked at


def rest_for_ever(_: int) -> None:
    time.sleep(300)


def programs(path: str) -> None:
    """Start a program, one in a session of its own, and one that has lost its parent."""
    for alone in (False, True):
        note(path, str(subprocess.Popen(["sleep", "300"], start_new_session=alone).pid))
    note(path, subprocess.check_output(["sh", "-c", "sleep 300 >&- & echo $!"], text=True).strip())


def own_processes(path: str) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
        for child in multiprocessing.active_children():
            note(path, str(child.pid))
        pool.map(rest_for_ever, [1, 2])


@client.task(Work, kind="work", max_attempts=2, backoff=0.1, grace=0.5)
def work(job: Job[Work]) -> object:
    """Run on as told; a note in `path` says that it has begun."""
    what, path = job.args.what, job.args.path
    if path:
        note(path, f"begun {job.id} {job.attempt} {os.getpid()}")
    match what:
        case "native":
            programs(path + ".pids")
            forever_in_native_code()
        case "own processes":
            own_processes(path + ".pids")
        case "sleep":
            time.sleep(300)
        case "deaf":
            deaf()
        case "catch":
            try:
                time.sleep(300)
            except DeadlineExceeded:
                note(path, "caught")
        case "again":
            try:
                time.sleep(300)
            except DeadlineExceeded:
                return RetryAfter(0.01)
        case "until cancelled":
            while not job.is_cancelled():
                time.sleep(0.01)
            note(path, "cancelled")
    return None


def deaf() -> None:
    while True:
        try:
            time.sleep(300)
        except Exception:  # noqa: BLE001, S112 (that is what is wrong with it)
            continue


@dataclass
class Patient:
    path: str = ""


@client.task(Patient, kind="patient", cancel_kill=False, grace=0.2)
def patient(job: Job[Patient]) -> None:
    """Go on after a cancel, until a file is there."""
    note(job.args.path, "begun")
    while not os.path.exists(f"{job.args.path}.go"):
        time.sleep(0.01)
    note(job.args.path, "ended")


@dataclass
class Quick:
    """Over at once."""


@client.task(Quick, kind="quick")
def quick(job: Job[Quick]) -> None:
    pass


@dataclass
class Rest:
    what: str = "sleep"
    path: str = ""


@client.task(Rest, kind="rest", max_attempts=2, backoff=0.1, grace=0.5)
async def rest(job: Job[Rest]) -> None:
    """Wait, or hold the whole lane."""
    path = job.args.path
    note(path, f"begun {job.id} {job.attempt}")
    try:
        if job.args.what == "block":
            deaf()
        while not os.path.exists(f"{path}.go"):
            await asyncio.sleep(0.01)
        note(path, f"ended {job.id}")
    except (DeadlineExceeded, JobCancelled) as problem:
        note(path, f"{type(problem).__mro__[1].__name__} {job.id}")
        raise


@dataclass
class Tidy:
    path: str = ""


@client.task(Tidy, kind="tidy", max_attempts=1, grace=2.0)
def tidy(job: Job[Tidy]) -> None:
    """Run a program that writes a last line when it is asked to end, and hear nothing oneself."""
    path = job.args.path
    script = 'trap "echo tidied >> $0; exit" TERM; sleep 300 & echo begun >> $0; wait'
    subprocess.Popen(["sh", "-c", script, path])
    deaf()
