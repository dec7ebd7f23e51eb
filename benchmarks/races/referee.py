"""Holds bouts: both sides of each start at the same moment but for an offset that keeps the race open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

from awa_pool import Client
from awa_pool.errors import AwaError

from .arena import Told
from .judge import DONE
from .ledger import Pen

START_S = 0.003
STEP_S, MOST_S = 0.0001, 0.05
JITTER_S = 0.0005
LATE_S = 0.06
PATIENCE_S = 10.0
VERBS = ("resume", "complete", "fail", "retry")
Deed = Callable[[], object]


class Handicap:
    """How much later the first side starts: it grows while that side wins, and shrinks while it loses."""

    def __init__(self, rng: Random, start_s: float = 0.0) -> None:
        self._rng = rng
        self._lag_s = start_s
        self._lock = threading.Lock()

    def next_s(self) -> float:
        with self._lock:
            return self._lag_s + self._rng.uniform(-JITTER_S, JITTER_S)

    def won(self, first: bool) -> None:
        with self._lock:
            self._lag_s = max(-MOST_S, min(MOST_S, self._lag_s + (STEP_S if first else -STEP_S)))


def run_at(at_s: float, deed: Deed) -> str:
    """Do it at that moment of the monotonic clock; returns `done`, or the name of the error that was told."""
    while (left_s := at_s - time.monotonic()) > 0:
        time.sleep(left_s - 0.0002 if left_s > 0.0005 else 0)
    try:
        deed()
    except AwaError as problem:
        return type(problem).__name__
    return DONE


class Sides:
    """Two sides, each with a connection of its own and a thread."""

    def __init__(self, dsn: str) -> None:
        self.clients = Client(dsn), Client(dsn)
        self._threads = ThreadPoolExecutor(2)

    def start(self, at_s: float, lag_s: float, deeds: Sequence[Deed]) -> list[Future[str]]:
        """Let both do their deed, the first by `lag_s` later; the results are what each was told."""
        starts_s = (at_s + max(0.0, lag_s), at_s + max(0.0, -lag_s))
        return [
            self._threads.submit(run_at, start_s, deed) for start_s, deed in zip(starts_s, deeds, strict=True)
        ]

    def race(self, at_s: float, lag_s: float, deeds: Sequence[Deed]) -> list[str]:
        """The same, to the end of both."""
        return [told.result() for told in self.start(at_s, lag_s, deeds)]

    def close(self) -> None:
        self._threads.shutdown()
        for client in self.clients:
            client.close()


def answer(client: Client, verb: str, callback_id: str, payload: Any) -> Deed:
    """Return the deed of answering by that verb."""
    match verb:
        case "resume":
            return lambda: client.resume_external(callback_id, payload)
        case "complete":
            return lambda: client.complete_external(callback_id, payload)
        case "fail":
            return lambda: client.fail_external(callback_id, str(payload))
        case "retry":
            return lambda: client.retry_external(callback_id)
    raise ValueError(verb)


def _await_waiting(client: Client, job_id: int) -> None:
    """Wait until the job waits, or no longer than is patient: then the judge finds what is wrong."""
    until_s = time.monotonic() + PATIENCE_S
    while (job := client.get_job(job_id)) is None or job.state != "waiting_external":
        if time.monotonic() > until_s:
            return
        time.sleep(0.002)


@dataclass
class Referee:
    """Holds the bouts of one race; `expire` ends what has timed out, as the leading maintenance process does."""

    race: str
    rng: Random
    handicap: Handicap
    pen: Pen
    timeout_s: float
    expire: Deed

    def hold(self, sides: Sides, told: Told) -> None:
        """Hold one bout, and note what each side was told."""
        one, other = sides.clients
        resume = answer(one, "resume", told.callback_id, "resume")
        at_s = time.monotonic() + START_S
        match self.race:
            case "entry":
                what = run_at(told.at_s + self.rng.uniform(0, 0.008), resume)
                self.pen.note(told.number, "resume", what)
            case "return":
                complete = answer(one, "complete", told.callback_id, "complete")
                what = run_at(told.at_s + max(0.0, self.handicap.next_s()), complete)
                self.handicap.won(what == DONE)
                self.pen.note(told.number, "complete", what)
            case "timeout":
                what, _ = sides.race(
                    told.at_s + self.timeout_s, self.handicap.next_s(), (resume, self.expire)
                )
                self.handicap.won(what == DONE)
                self.pen.note(told.number, "resume", what)
            case "two":
                verbs = [self.rng.choice(VERBS) for _ in range(2)]
                names = [f"{verb} {turn}" for turn, verb in enumerate(verbs, 1)]
                deeds = [
                    answer(client, verb, told.callback_id, name)
                    for client, verb, name in zip(sides.clients, verbs, names, strict=True)
                ]
                _await_waiting(one, told.job_id)  # a retry is for those that wait
                self._settle(
                    told, names, sides.race(time.monotonic() + START_S, self.handicap.next_s(), deeds)
                )
            case "cancel":
                # Every other time the cancel comes so late that the job may have ended.
                late_s = self.rng.uniform(0, LATE_S) if told.number // 2 % 2 else 0.0

                def cancel() -> None:
                    time.sleep(late_s)
                    other.cancel(told.job_id)

                deeds = [resume, cancel]
                self._settle(told, ["resume", "cancel"], sides.race(at_s, self.handicap.next_s(), deeds))

    def _settle(self, told: Told, names: Sequence[str], whats: Sequence[str]) -> None:
        for name, what in zip(names, whats, strict=True):
            self.pen.note(told.number, name, what)
        self.handicap.won(whats[0] == DONE)
