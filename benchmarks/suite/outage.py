"""What a pool does while PostgreSQL is away, before it is there for the first time and for minutes under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from awa_pool import InsertRequest
from benchmarks import ours
from benchmarks.chaos import app
from benchmarks.chaos.judge import Verdict, judge
from benchmarks.chaos.ledger import VARIABLE, Ledger, Pen
from benchmarks.chaos.load import Producer
from benchmarks.processes import cpu_s, private_mib, tree
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database
from benchmarks.sqltext import text

EARLY_S = 5.0
"""So long the pool runs before the server does."""
LOAD_S = 20.0
"""Under load before the outage: what memory is compared with."""
LATER_S = 20.0
"""Under load after it; what is written until then belongs to the outage."""
LAST_WORD_S = 120.0
LOOK_S = 0.5


class Steady(Producer):
    """Jobs that always succeed: half of them 5 ms of CPU, half nothing at all."""

    def _request(self) -> InsertRequest:
        self._number += 1
        kind = "burn" if self._number % 2 else "instant"
        return InsertRequest(args=app.Step(self._number), kind=kind)


class Watched:
    """`awa-pool benchmarks.chaos.app:client`, its log, its processes and what they cost."""

    def __init__(self, dsn: str, workers: int, ledger: Path) -> None:
        self.log_path = Path(tempfile.mkdtemp(prefix="awa-outage-"), "log")
        environ = {**os.environ, "AWA_POOL_DSN": dsn, "PYTHONPATH": str(ours.ROOT), VARIABLE: str(ledger)}
        command = [Path(sys.executable).parent / "awa-pool", "benchmarks.chaos.app:client"]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--workers", str(workers)],
                env=environ, cwd=ours.ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.pid = self._process.pid
        self.peak_mib = 0.0

    def look(self) -> float:
        """Return the private memory of all its processes now, and remember the highest."""
        total_mib = 0.0
        for pid in tree(self.pid):
            try:
                total_mib += private_mib(pid)
            except OSError:
                continue  # it has just ended
        self.peak_mib = max(self.peak_mib, total_mib)
        return total_mib

    def lines(self) -> int:
        """Return how many lines it has written."""
        return self.log_path.read_bytes().count(b"\n")

    def check(self) -> None:
        """Errors: PoolFailed when the pool has ended."""
        if self._process.poll() is not None:
            raise ours.PoolFailed(f"the pool has ended: {self.log_path.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End it, by force when it does not end."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(ours.STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(slots=True)
class Found:
    """What a run has shown."""

    verdict: Verdict | None = None
    attempts_used: int = 0
    log_lines: int = 0
    processes_replaced: int = 0
    base_mib: float = 0.0
    peak_mib: float = 0.0
    cpu_percent: float = 0.0
    recovery_s: float = 0.0
    jobs: int = 0
    notes: list[str] = field(default_factory=list)


class Outage(threading.Thread):
    """Stops the server and has it started again after so long."""

    def __init__(self, plan: Plan, how: signal.Signals, seconds: float) -> None:
        super().__init__(name="outage")
        if plan.server.restart is None:
            raise ours.PoolFailed("an outage needs a server of its own: leave --dsn out")
        self.back_s = 0.0
        """When the server answered again."""
        self._restart = plan.server.restart
        self._how, self._seconds = how, seconds
        self.start()

    def run(self) -> None:
        self._restart(self._how, self._seconds)
        self.back_s = time.time()


def _watch(pool: Watched, seconds: float, ledger: Ledger) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pool.check()
        pool.look()
        ledger.read()
        time.sleep(LOOK_S)


def _run_once(plan: Plan, dsn: str, folder: Path) -> Found:
    path, found = folder / "ledger", Found()
    pen, ledger = Pen(path), Ledger(path)
    early = Outage(plan, signal.SIGINT, EARLY_S)
    pool = Watched(dsn, plan.workers, path)
    producer = Steady(dsn, ledger, pen, plan.seed)
    try:
        producer.start()
        early.join()
        _await_ends(pool, ledger, 0.0)
        _watch(pool, LOAD_S, ledger)
        found.base_mib, pool.peak_mib = pool.peak_mib, 0.0
        before, lines, spent_s = set(tree(pool.pid)), pool.lines(), cpu_s(pool.pid)
        began_s = time.time()
        outage = Outage(plan, signal.SIGQUIT, plan.minutes * 60)
        while outage.is_alive():
            _watch(pool, LOOK_S, ledger)
        back_s = outage.back_s
        found.cpu_percent = (cpu_s(pool.pid) - spent_s) / (back_s - began_s) * 100
        found.recovery_s = _await_ends(pool, ledger, back_s) - back_s
        _watch(pool, LATER_S, ledger)
        found.log_lines, found.peak_mib = pool.lines() - lines, pool.peak_mib
        found.processes_replaced = len(before - set(tree(pool.pid)))
        producer.stop()
        _await_rest(pool, dsn)
        ledger.read()
        with psycopg.connect(dsn) as conn:
            found.verdict = judge(ledger, conn.execute(text("chaos_ends")).fetchall())
            row = conn.execute(text("outage_attempts")).fetchone()
            found.attempts_used = int(row[0]) if row else 0
    finally:
        pool.stop()
        pen.close()
    found.jobs = len(ledger.put)
    found.notes.append(f"{found.jobs:,} jobs, {producer.refused} batches refused, log {pool.log_path}")
    return found


def _await_ends(pool: Watched, ledger: Ledger, since_s: float) -> float:
    """Wait for a handler that ends after that time; returns when it did."""
    until_s = time.monotonic() + LAST_WORD_S
    while True:
        pool.check()
        ledger.read()
        later = [at_s for at_s in ledger.ends_s if at_s > since_s]
        if later:
            return min(later)
        if time.monotonic() > until_s:
            raise ours.PoolFailed(f"no handler has run for {LAST_WORD_S:g} s")
        time.sleep(0.05)


def _await_rest(pool: Watched, dsn: str) -> None:
    until_s = time.monotonic() + LAST_WORD_S
    with psycopg.connect(dsn, autocommit=True) as conn:
        while time.monotonic() < until_s:
            pool.check()
            row = conn.execute(text("chaos_left")).fetchone()
            if row and not row[0]:
                return
            time.sleep(LOOK_S)


def run(plan: Plan) -> Iterator[Row]:
    """One outage under load."""
    with tempfile.TemporaryDirectory(prefix="awa-outage-") as folder, database(plan.server) as dsn:
        ours.migrate(dsn)
        found = _run_once(plan, dsn, Path(folder))
    verdict = found.verdict
    assert verdict is not None
    for note in (*found.notes, *verdict.examples):
        plan.note(note)
    case = f"{plan.minutes:g} min without PostgreSQL"
    yield Row("lost", verdict.lost, "jobs", case)
    yield Row("doubled", verdict.doubled, "jobs", case)
    yield Row("attempts_used", found.attempts_used, "attempts", case)
    yield Row("log_lines", found.log_lines, "lines", case)
    yield Row("processes_replaced", found.processes_replaced, "processes", case)
    yield Row(
        "peak_memory_ratio",
        found.peak_mib / found.base_mib,
        "×",
        case,
        "before",
        found.peak_mib / found.base_mib,
    )
    yield Row("cpu_percent", found.cpu_percent, "% of a core", case)
    yield Row("recovery_s", found.recovery_s, "s", "from the server's first answer to a handler's end")


BENCHMARK = Benchmark(
    name="outage",
    method=(
        f"a pool that is started {EARLY_S:g} s before PostgreSQL, put under a load of 5 ms and empty jobs for {LOAD_S:g} s, "
        "left without the server (ended as by a crash) for `--minutes`, and watched under load for "
        f"{LATER_S:g} s more. A ledger file that handlers and producer append to, and the attempts' ends in the database, "
        "judge: `lost` was confirmed and did not complete, `doubled` ended twice or ran after its end, `attempts_used` "
        "counts those beyond each job's first, `log_lines` everything the pool wrote from the outage on. Memory is the sum "
        "of what each process shares with nobody, its peak against the peak under load before; CPU is the pool's during "
        "the outage"
    ),
    run=run,
    rounds=1,
)
