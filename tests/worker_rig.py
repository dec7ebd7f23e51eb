"""A dispatcher and a finalizer that do as a test says, around real worker processes and real local sockets."""

from __future__ import annotations

import json
import os
import select
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from awa_pool.control import ControlPipe
from awa_pool.messages import (
    AttemptsEnded,
    AttemptsRan,
    AttemptsWait,
    AwaitCallback,
    CallbackAnswered,
    CallbackRegistered,
    Configure,
    ForgetCallback,
    Message,
    Ready,
    Recall,
    RegisterCallback,
    ResultsCommitted,
    RunJobs,
    Stop,
    WorkerReady,
)
from awa_pool.page.reading import PageView, read_page
from awa_pool.wire import Poller, Router
from awa_pool.worker.start import Process, WorkerStarter

DEADLINE_S = 20.0
M = TypeVar("M", bound=Message)


def until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Return the first true value of `condition`, asked again and again; fails at the deadline."""
    stop_s = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < stop_s, f"waited {deadline_s:g} s for {what}"
        select.select([], [], [], 0.002)
    return value


def body(job_id: int, kind: str, args: Any, attempt: int = 1, extra: Any = None) -> bytes:
    return json.dumps([job_id, kind, args, attempt, 1, 25, extra]).encode()


def do(job_id: int, what: str, path: str = "", s: float = 0.0) -> bytes:
    return body(job_id, "do", {"what": what, "path": path, "s": s})


@dataclass
class Worker:
    number: int
    incarnation: str
    process: Process
    pipe: ControlPipe
    page_path: str
    told: list[Message] = field(default_factory=list)

    def peer(self, lane: str = "sync") -> bytes:
        return f"w{self.number}-{self.incarnation}-{lane}".encode()

    def page(self) -> PageView:
        view = read_page(self.page_path)
        assert view is not None
        return view

    def said(self, kind: type[M]) -> M | None:
        """Return the newest message of that type on the control pipe so far."""
        while (message := self.pipe.receive()) is not None:
            self.told.append(message)
        return next((message for message in reversed(self.told) if isinstance(message, kind)), None)


class Rig:
    """Acknowledges results at once while `acknowledging`; keeps all that was received."""

    def __init__(self, starter: WorkerStarter, app: str | None) -> None:
        self.starter = starter
        self.app = app
        self.run_dir = tempfile.mkdtemp(prefix="awa-rig-")
        self.dispatcher = Router(f"{self.run_dir}/d")
        self.finalizer = Router(f"{self.run_dir}/f")
        self.poller = Poller([self.dispatcher, self.finalizer])
        self.acknowledging = True
        self.to_dispatcher: list[tuple[bytes, Message]] = []
        self.results: list[tuple[bytes, AttemptsEnded]] = []
        self.workers: list[Worker] = []
        self.registering = True
        """Requests for callbacks are answered at once."""
        self.asked: list[tuple[bytes, RegisterCallback | AwaitCallback | ForgetCallback]] = []
        self._receipts = iter(range(1, 1_000_000))

    def start(self, **settings: Any) -> Worker:
        """Start a worker and wait until each of its lanes has greeted the dispatcher."""
        worker = self.launch(**settings)
        until(lambda: worker.said(Ready), "the worker to boot")
        ready = worker.said(Ready)
        assert ready is not None
        lanes = {"async"} if ready.facts["async_kinds"] else set()
        if len(ready.facts["kinds"]) > len(ready.facts["async_kinds"]) or not lanes:
            lanes.add("sync")
        self.until(lambda: lanes <= {hello.lane for hello in self.heard(WorkerReady, worker)}, "its lanes")
        return worker

    def launch(self, **settings: Any) -> Worker:
        """Start a worker and send its settings."""
        number = len(self.workers)
        incarnation = f"i{number}"
        process, pipe = self.starter.start(number)
        worker = Worker(number, incarnation, process, pipe, f"{self.run_dir}/p{number}")
        self.workers.append(worker)
        standard = {
            "worker": number,
            "incarnation": incarnation,
            "page_path": worker.page_path,
            "dispatcher_path": f"{self.run_dir}/d",
            "finalizer_path": f"{self.run_dir}/f",
            "app": self.app,
            "concurrency": 1,
            "log_level": "info",
        }
        pipe.send(Configure({**standard, **settings}))
        return worker

    def hand(
        self, worker: Worker, bodies: list[bytes], lane: str = "sync", receipt: int | None = None
    ) -> int:
        """Hand a chunk over; returns its receipt id."""
        receipt_id = receipt or next(self._receipts)
        run = RunJobs("default", 2, 3, receipt_id, -receipt_id, list(range(len(bodies))))
        assert self.dispatcher.send(worker.peer(lane), run, b"\0".join(bodies))
        return receipt_id

    def recall(self, worker: Worker, receipt_id: int, mask: int) -> None:
        assert self.dispatcher.send(worker.peer(), Recall(receipt_id, mask))

    def pump(self) -> None:
        """Take in what has come."""
        while (received := self.dispatcher.receive()) is not None:
            self.to_dispatcher.append(received[:2])
        while (received := self.finalizer.receive()) is not None:
            peer, message, _ = received
            if isinstance(message, RegisterCallback | AwaitCallback | ForgetCallback):
                self.asked.append((peer, message))
                if self.registering and isinstance(message, RegisterCallback):
                    self.finalizer.send(peer, CallbackRegistered(message.request, "done", message.request))
                continue
            assert isinstance(message, AttemptsEnded)
            self.results.append((peer, message))
            if self.acknowledging:
                self.finalizer.send(peer, ResultsCommitted(message.seq))

    def until(self, condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
        """Pump until `condition` is true."""

        def pumped() -> Any:
            self.pump()
            return condition()

        return until(pumped, what, deadline_s)

    def heard(self, kind: type[M], worker: Worker) -> list[M]:
        """Return what the lanes of `worker` have said to the dispatcher."""
        peers = {worker.peer("sync"), worker.peer("async")}
        return [
            message for peer, message in self.to_dispatcher if peer in peers and isinstance(message, kind)
        ]

    def waits(self, *, job_id: int | None = None) -> dict[int, AwaitCallback]:
        """Return the newest wait of each job so far."""
        found = [message for _, message in self.asked if isinstance(message, AwaitCallback)]
        return {message.job_id: message for message in found if job_id in (None, message.job_id)}

    def answer(self, job_id: int, payload: Any = None, status: str = "answered", why: str = "") -> None:
        """Answer the newest wait of a job."""
        wait = self.waits(job_id=job_id)[job_id]
        peer = next(peer for peer, message in self.asked if message == wait)
        frames = [json.dumps(payload).encode()] if status == "answered" else []
        assert self.finalizer.send(peer, CallbackAnswered(wait.request, status, 1, why), *frames)

    def given_away(self, worker: Worker) -> dict[int, int]:
        """Return receipt -> mask of the attempts that wait without their slots, as the dispatcher knows."""
        now: dict[int, int] = {}
        for word in self.heard(AttemptsWait, worker):
            for receipt_id, mask in word.pieces:
                before = now.get(receipt_id, 0)
                now[receipt_id] = before | mask if word.waiting else before & ~mask
        return {receipt_id: mask for receipt_id, mask in now.items() if mask}

    def ended(self, receipt_id: int) -> dict[int, Any]:
        """Return index -> "completed", or the item of `others`, of all results of a receipt so far."""
        found: dict[int, Any] = {}
        for _, message in self.results:
            if message.receipt_id == receipt_id:
                assert (message.slot, message.nonce) == (3, -receipt_id)
                found |= {i: "completed" for _, mask in message.completed for i in range(63) if mask >> i & 1}
                found |= {item[0]: item for item in message.others}
        return found

    def run(self, worker: Worker, bodies: list[bytes], lane: str = "sync") -> dict[int, Any]:
        """Hand jobs over and return how they ended, once all have."""
        receipt_id = self.hand(worker, bodies, lane)
        self.until(lambda: len(self.ended(receipt_id)) == len(bodies), f"{len(bodies)} results")
        mask = (1 << len(bodies)) - 1
        self.until(lambda: self.ran(worker, receipt_id) == mask, "news for the dispatcher")
        return self.ended(receipt_id)

    def ran(self, worker: Worker, receipt_id: int) -> int:
        """Return the mask of attempts whose end the dispatcher knows."""
        mask = 0
        for ran in self.heard(AttemptsRan, worker):
            mask |= ran.mask if ran.receipt_id == receipt_id else 0
        return mask

    def stop(self, worker: Worker, drain_s: float = 10.0) -> int | None:
        """Drain a worker and return its exit status."""
        worker.pipe.send(Stop(drain_s, "test"))
        self.until(lambda: worker.process.exitcode is not None, "the worker to end")
        return worker.process.exitcode

    def restart_finalizer(self) -> None:
        """Replace the finalizer by one at the same path that knows nothing."""
        self.poller.remove(self.finalizer)
        self.finalizer.close(0)
        self.finalizer = Router(f"{self.run_dir}/f")
        self.poller.add(self.finalizer)

    def close(self) -> None:
        for worker in self.workers:
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join(DEADLINE_S)
            worker.pipe.close()
            worker.process.close()
        self.dispatcher.close(0)
        self.finalizer.close(0)
        shutil.rmtree(self.run_dir, ignore_errors=True)


def path_in(folder: os.PathLike[str], name: str) -> str:
    return os.path.join(folder, name)
