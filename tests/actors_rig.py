"""Dispatcher and finalizer as real processes on a real database; the test plays supervisor and workers."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import multiprocess as mp
import orjson
import psycopg

from awa_pool.control import ControlPipe
from awa_pool.dispatcher.main import run as run_dispatcher
from awa_pool.finalizer.main import run as run_finalizer
from awa_pool.messages import (
    AskHolding,
    AttemptsEnded,
    AttemptsRan,
    Configure,
    Drained,
    Holding,
    Message,
    Ready,
    Recall,
    Recalled,
    ResultsCommitted,
    RunJobs,
    Stop,
    WorkerReady,
)
from awa_pool.wire import Dealer, Poller

DEADLINE_S = 20.0
ROLES = {"dispatcher": run_dispatcher, "finalizer": run_finalizer}


class Child:
    """One process and our end of its control pipe."""

    def __init__(self, role: str, settings: dict[str, Any]) -> None:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        self.role = role
        self.process = context.Process(target=ROLES[role], args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe = ControlPipe(ours)
        self.heard: list[Message] = []
        self.pipe.send(Configure(settings))
        self.wait_for(Ready)

    def wait_for(self, kind: type[Message]) -> Message:
        """The next message of that type."""
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            message = self.pipe.wait(0.5)
            if message is not None:
                self.heard.append(message)
                if isinstance(message, kind):
                    return message
            assert not self.pipe.closed, (
                f"{self.role} is gone, waiting for {kind.__name__}: {self.heard[-3:]}"
            )
        raise AssertionError(f"{self.role} did not say {kind.__name__}: {self.heard[-3:]}")

    def kill(self) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(DEADLINE_S)
        self.pipe.close()

    def stop(self, drain_s: float = 5.0) -> int:
        """Let it drain; its exit status."""
        self.pipe.send(Stop(drain_s, "the test is over"))
        self.wait_for(Drained)
        self.process.join(DEADLINE_S)
        return int(self.process.exitcode)


class FakeWorker:
    """A lane played by the test: runs what it is handed, one attempt a `work`, keeps results until acknowledged."""

    def __init__(self, rig: Rig, number: int) -> None:
        self.number, self.incarnation = number, uuid4().hex[:6]
        identity = f"w{number}-{self.incarnation}-sync"
        self.to_dispatcher = Dealer(rig.settings["dispatcher_path"], identity)
        self.to_finalizer = Dealer(rig.settings["finalizer_path"], identity)
        self.poller = Poller([self.to_dispatcher, self.to_finalizer])
        self.waiting: list[tuple[RunJobs, int, list[Any]]] = []
        self.kept: dict[int, AttemptsEnded] = {}
        self.ran: list[int] = []
        self.attempts: list[int] = []
        self.seq = 0
        self.dead = False
        self.say_ready()

    def holding(self) -> list[list[int]]:
        held: dict[int, int] = {}
        for jobs, index, _ in self.waiting:
            held[jobs.receipt_id] = held.get(jobs.receipt_id, 0) | 1 << index
        for message in self.kept.values():
            for _, mask in message.completed:
                held[message.receipt_id] = held.get(message.receipt_id, 0) | mask
        return [[receipt_id, mask] for receipt_id, mask in held.items()]

    def say_ready(self) -> None:
        ready = WorkerReady(self.number, self.incarnation, "sync", 1, self.holding(), ["kind"])
        self.to_dispatcher.send(ready)

    def listen(self, timeout_s: float = 0.0) -> None:
        """Read everything that has come."""
        self.poller.wait(timeout_s)
        for wire in (self.to_dispatcher, self.to_finalizer):
            while (heard := wire.receive()) is not None:
                self._take(heard[1], heard[2])

    def _take(self, message: Message, payload: list[bytes]) -> None:
        match message:
            case RunJobs():
                bodies = [orjson.loads(body) for body in payload[0].split(b"\0")]
                self.waiting += [(message, i, body) for i, body in zip(message.indexes, bodies, strict=True)]
            case Recall(receipt_id, mask):
                back = [w for w in self.waiting if w[0].receipt_id == receipt_id and mask >> w[1] & 1]
                self.waiting = [w for w in self.waiting if w not in back]
                self.to_dispatcher.send(Recalled(receipt_id, sum(1 << w[1] for w in back)))
            case AskHolding(audit):
                self.to_dispatcher.send(Holding(audit, self.holding()))
            case ResultsCommitted(seq):
                self.kept = {number: kept for number, kept in self.kept.items() if number > seq}

    def work(self, *, report: bool = True) -> bool:
        """Run the next attempt; False when there is none."""
        if not self.waiting:
            return False
        jobs, index, body = self.waiting.pop(0)
        self.ran.append(body[0])
        self.attempts.append(body[3])
        self.seq += 1
        ended = AttemptsEnded(
            self.incarnation, self.seq, jobs.slot, jobs.receipt_id, jobs.nonce, [["kind", 1 << index]], [],
            oldest=min(self.kept, default=self.seq),
        )  # fmt: skip
        self.kept[self.seq] = ended
        if report:
            self.to_finalizer.send(ended)
        self.to_dispatcher.send(AttemptsRan(jobs.receipt_id, 1 << index, [["kind", 1, 1e-4, 1e-4]]))
        return True

    def resend(self) -> None:
        for message in self.kept.values():
            self.to_finalizer.send(replace(message, oldest=min(self.kept)))


class Rig:
    """Both actors, a database of their own, any number of played workers."""

    def __init__(self, dsn: str, **more: Any) -> None:
        self.dsn = dsn
        self.folder = tempfile.mkdtemp(prefix="rig")
        self.runtime_id = str(uuid4())
        self.numbers = itertools.count(1)
        self.settings: dict[str, Any] = {
            "dsn": dsn,
            "listen_dsn": None,
            "schema": "awa_pool",
            "runtime_id": self.runtime_id,
            "run_dir": self.folder,
            "dispatcher_path": f"{self.folder}/d",
            "finalizer_path": f"{self.folder}/f",
            "queues": [["default", None]],
            "workers": 1,
            "poll_interval_s": 1.0,
            "listen": True,
            "drain": False,
            "log_level": "warning",
            "log_format": "console",
            "window_jobs": 4096,
            "window_bytes": 64 << 20,
            **more,
        }
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.sql("select awa_pool.register_runtime(%s, 'here', 1, '{}')", self.runtime_id)
        self.finalizer = self.start("finalizer")
        self.dispatcher = self.start("dispatcher")
        self.workers: list[FakeWorker] = []

    def start(self, role: str) -> Child:
        return Child(role, self.settings | {"role": role, "incarnation": f"{role[0]}{next(self.numbers)}"})

    def sql(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, values)
        return cursor.fetchall() if cursor.description else []

    def enqueue(self, count: int) -> list[int]:
        return [self.sql("select awa_pool.enqueue('kind', '{}')")[0][0] for _ in range(count)]

    def worker(self) -> FakeWorker:
        worker = FakeWorker(self, len(self.workers) + 1)
        self.workers.append(worker)
        return worker

    def states(self) -> dict[str, int]:
        return dict(self.sql("select state, count(*)::int from awa_pool.jobs group by 1"))

    def work_until(self, done: Callable[[], bool], *, work: bool = True, every_s: float = 0.02) -> None:
        """Play the workers until the condition holds."""
        until_s = time.monotonic() + DEADLINE_S
        resend_s = time.monotonic() + 1.0
        while not done():
            assert time.monotonic() < until_s, (self.states(), [len(w.waiting) for w in self.workers])
            for worker in [each for each in self.workers if not each.dead]:
                worker.listen(every_s / max(1, len(self.workers)))
                while work and worker.work():
                    worker.listen()
                if time.monotonic() > resend_s:
                    worker.resend()
            if time.monotonic() > resend_s:
                resend_s += 1.0

    def close(self) -> None:
        for child in (self.dispatcher, self.finalizer):
            child.kill()
        for worker in self.workers:
            worker.to_dispatcher.close(0.0)
            worker.to_finalizer.close(0.0)
        self.conn.close()
        shutil.rmtree(self.folder)
