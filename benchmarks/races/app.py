"""The app of the races: `awa-pool benchmarks.races.app:client`. A handler registers a callback, tells its id, and waits."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

import orjson

from awa_pool import CallbackTimeout, Client, Job, JobCancelled, LeaseLost

from .ledger import HANDLER, VARIABLE, Pen

QUEUE, MARKS = "races", "marks"
EAR_VARIABLE = "AWA_RACES_EAR"
READY = "ready"
ANSWERED, RETURNED, AGAIN = "answered", "returned", "again"

client = Client()
_pens: list[Pen] = []
_mouths: list[socket.socket] = []


@dataclass
class Bout:
    """One race; `waits` false: the handler returns after `pause_s` instead of waiting."""

    number: int
    timeout_s: float = 3600.0
    pause_s: float = 0.0
    waits: bool = True


@dataclass
class BoutBlocking(Bout):
    """The same for a plain handler."""


@dataclass
class Mark:
    """What a handler that ends its job itself leaves behind; nobody runs it."""

    number: int


@client.process_start
def report_in() -> None:
    """Open this worker's ways to the ledger and to the referee."""
    _pens.append(Pen(os.environ[VARIABLE]))
    _mouths.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    _mouths[0].connect(os.environ[EAR_VARIABLE])
    _tell(READY)


def _tell(*words: Any) -> None:
    _mouths[0].send(orjson.dumps(words))


def _is_again(job: Job[Any]) -> bool:
    """Say whether the job has asked before; another lease alone does not tell: a job may come back before its handler began."""
    if not os.path.exists(_mark_of(job)):
        return False
    _pens[0].note(job.args.number, HANDLER, AGAIN)
    return True


def _mark_of(job: Job[Any]) -> str:
    return f"{os.environ[VARIABLE]}.{job.args.number}"


def _is_registered(job: Job[Any], callback_id: str) -> None:
    os.close(os.open(_mark_of(job), os.O_CREAT | os.O_CLOEXEC))
    job.enqueue_on_completion(Mark(job.args.number), queue=MARKS)
    _tell(job.args.number, job.id, callback_id)


def _failed(job: Job[Any], problem: Exception) -> None:
    """Note what a handler was told; where a task was cancelled on the way, its own kind of error is a kind of these."""
    names = (
        kind.__name__ for kind in (JobCancelled, CallbackTimeout, LeaseLost) if isinstance(problem, kind)
    )
    _pens[0].note(job.args.number, HANDLER, next(names, repr(problem)))


def _waited(job: Job[Any], payload: Any) -> None:
    _pens[0].note(job.args.number, HANDLER, f"{ANSWERED} {payload}")


@client.task(Bout, queue=QUEUE)
async def bout(job: Job[Bout]) -> None:
    """Register, tell, wait."""
    if _is_again(job):
        return
    token = await job.register_callback(job.args.timeout_s)
    _is_registered(job, token.id)
    if job.args.pause_s:
        await asyncio.sleep(job.args.pause_s)
    if not job.args.waits:
        _pens[0].note(job.args.number, HANDLER, RETURNED)
        return
    try:
        payload = await job.wait_for_callback(token)
    except Exception as problem:
        _failed(job, problem)
        raise
    _waited(job, payload)


@client.task(BoutBlocking, queue=QUEUE, waits=True)
def bout_blocking(job: Job[BoutBlocking]) -> None:
    """Register, tell, wait."""
    if _is_again(job):
        return
    token = job.register_callback(job.args.timeout_s)
    _is_registered(job, token.id)
    if job.args.pause_s:
        time.sleep(job.args.pause_s)
    if not job.args.waits:
        _pens[0].note(job.args.number, HANDLER, RETURNED)
        return
    try:
        payload = job.wait_for_callback(token)
    except Exception as problem:
        _failed(job, problem)
        raise
    _waited(job, payload)
