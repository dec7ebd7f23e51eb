"""Dispatcher (this process), workers and finalizer: claims, ships, runs and completes no-op jobs, nothing else."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import orjson
import psycopg
import zmq

from .statements import CLAIM, COMPLETE

CLAIM_JOBS = 1024
CHUNK = 60
FLUSH_RECEIPTS = 64
READY, QUIT = b"R", b"Q"


@dataclass(slots=True)
class Job:
    """What a handler would see."""

    id: int
    kind: str
    args: Any
    attempt: int
    max_attempts: int


def noop(job: Job) -> None:
    """The handler that does nothing."""


HANDLERS: dict[str, Callable[[Job], None]] = {"noop": noop}


def work(folder: str, number: int) -> None:
    """Run chunks until told to quit; a chunk's result is one bit mask."""
    context = zmq.Context()
    inbox, results = context.socket(zmq.DEALER), context.socket(zmq.PUSH)
    inbox.identity = b"w%d" % number
    inbox.connect(f"ipc://{folder}/d")
    results.connect(f"ipc://{folder}/f")
    inbox.send(READY)
    inbox.send(READY)  # two chunks in hand: the next is here when one ends
    while True:
        receipt, *bodies = inbox.recv_multipart()
        if receipt == QUIT:
            break
        mask = 0
        for index, body in enumerate(orjson.loads(bodies[0])):
            job = Job(*body)
            HANDLERS[job.kind](job)
            mask |= 1 << index
        results.send(orjson.dumps([int(receipt), mask]))
        inbox.send(READY)
    context.destroy()  # lingers until the results are with the finalizer


def finalize(folder: str, dsn: str, started: Any) -> None:
    """Complete what workers report, as many receipts a statement as have arrived."""
    context = zmq.Context()
    inbox = context.socket(zmq.PULL)
    inbox.bind(f"ipc://{folder}/f")
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=1) as conn:
        started.set()
        while True:
            messages = [inbox.recv()]
            while len(messages) < FLUSH_RECEIPTS and inbox.poll(0):
                messages.append(inbox.recv())
            ended = [orjson.loads(m) for m in messages if m != QUIT]
            if ended:
                conn.execute(COMPLETE, ([r for r, _ in ended], [m for _, m in ended])).fetchall()
            if QUIT in messages:
                break
    context.destroy()


class Pipeline:
    """All processes of the bare pipeline; made before the clock starts, `drain` is what is measured."""

    def __init__(self, dsn: str, workers: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="awa-bare-")
        folder, spawn = self._folder.name, multiprocessing.get_context("spawn")
        started = spawn.Event()
        self._finalizer: BaseProcess = spawn.Process(
            target=finalize, args=(folder, dsn, started), daemon=True
        )
        self._workers: list[BaseProcess] = [
            spawn.Process(target=work, args=(folder, i), daemon=True) for i in range(workers)
        ]
        for process in (self._finalizer, *self._workers):
            process.start()
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(f"ipc://{folder}/d")
        self._idle: list[bytes] = []
        self._await_readiness(2 * workers)
        started.wait(30)
        self._conn = psycopg.connect(dsn, autocommit=True, prepare_threshold=1)

    def _await_readiness(self, wanted: int) -> None:
        while len(self._idle) < wanted:
            if not self._router.poll(30_000):
                raise RuntimeError("the bare pipeline's workers did not start")
            self._idle.append(self._router.recv_multipart()[0])

    def drain(self) -> None:
        """Claim, hand out and complete until the queue is empty; ends all processes."""
        waiting: deque[tuple[int, int, str]] = deque()
        wanted, exhausted = len(self._idle), False
        while not (exhausted and not waiting and len(self._idle) == wanted):
            while self._router.poll(0 if waiting or not exhausted else 50):
                self._idle.append(self._router.recv_multipart()[0])
            if len(waiting) < wanted and not exhausted:
                claimed = self._conn.execute(CLAIM, (CLAIM_JOBS, CHUNK)).fetchall()
                exhausted = not claimed
                waiting.extend(claimed)
            while waiting and self._idle:
                receipt_id, _, jobs = waiting.popleft()
                self._router.send_multipart([self._idle.pop(), b"%d" % receipt_id, jobs.encode()])
        self._finish()

    def _finish(self) -> None:
        for worker in set(self._idle):
            self._router.send_multipart([worker, QUIT])
        for process in self._workers:
            process.join()  # each has closed its socket: all results are with the finalizer
        last = self._context.socket(zmq.PUSH)
        last.connect(f"ipc://{Path(self._folder.name) / 'f'}")
        last.send(QUIT)
        self._finalizer.join()
        self._context.destroy()
        self._conn.close()
        self._folder.cleanup()
