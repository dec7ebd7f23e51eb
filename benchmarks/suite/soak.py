"""What minutes of full load do to a pool: nothing is right."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from statistics import median

from benchmarks import ours
from benchmarks.processes import free_port, private_mib, tree
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database

BATCH, LEAST_WAITING = 100_000, 150_000
SETTLE_S = 15.0
"""Until then caches fill; what comes later is growth."""
LOOK_S = 1.0
REST_S = 60.0
KEPT = "20s"
"""How long the history is kept: slots are pruned and used again meanwhile."""
_COMPLETED = re.compile(r'^awa_pool_attempts_total\{.*outcome="completed".*\} (\S+)$', re.MULTILINE)


class Supply(threading.Thread):
    """Keeps more jobs in the queue than the pool can take in a second."""

    def __init__(self, dsn: str) -> None:
        super().__init__(name="supply", daemon=True)
        self.put = 0
        self._done = 0
        self._ended = threading.Event()
        self._wanted = threading.Event()
        self._database = ours.Database(dsn)
        self._wanted.set()

    def run(self) -> None:
        while not self._ended.is_set():
            if self.put - self._done < LEAST_WAITING:
                self._database.load(ours.noop_jobs(BATCH))
                self.put += BATCH
            else:
                self._wanted.wait(LOOK_S)
                self._wanted.clear()
        self._database.close()

    def note_done(self, jobs: int) -> None:
        """Say how many have completed."""
        self._done = jobs
        self._wanted.set()

    def end(self) -> int:
        """Put nothing more in; returns how many jobs there were."""
        self._ended.set()
        self._wanted.set()
        self.join()
        return self.put


def run(plan: Plan) -> Iterator[Row]:
    """Keep one pool busy for so many minutes."""
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        port = free_port()
        flags = ["--metrics-port", str(port), "--retention", KEPT]
        with ours.pool(dsn, plan.workers, flags=flags) as (pool, watcher):
            yield from _soak(plan, dsn, pool, watcher, port)


def _soak(plan: Plan, dsn: str, pool: ours.Pool, watcher: ours.Database, port: int) -> Iterator[Row]:
    first_lines = len(pool.lines())
    speeds: list[int] = []
    memory_mib: list[float] = []
    supply = Supply(dsn)
    supply.start()
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < SETTLE_S + plan.minutes * 60:
        time.sleep(LOOK_S)
        supply.note_done(_completed(port))
        if passed_s > SETTLE_S:
            speeds.append(int(watcher.one("completed_lately")[0]))
            memory_mib.append(_memory_mib(pool.pid))
    jobs = supply.end() + ours.WARM_UP_JOBS
    _await_rest(port, jobs)
    lines = pool.lines()[first_lines:]
    for line in lines[:5]:
        plan.note(line[:300])
    case = f"{plan.minutes:g} min, {jobs:,} jobs"
    yield Row("jobs_per_s", median(speeds), "jobs/s", case)
    yield Row(
        "slowest_second_per_s", min(speeds), "jobs/s", case, "median second", min(speeds) / median(speeds)
    )
    yield Row("lost", jobs - _completed(port), "jobs", case)
    yield Row("other_ends", int(watcher.one("other_ends")[0]), "attempts", "ended otherwise than completed")
    yield Row("log_lines", len(lines), "lines", case)
    early, late = median(memory_mib[:10]), median(memory_mib[-10:])
    yield Row("memory_mib", late, "MiB", "all processes, at the end", "at the start", late / early, early)


def _completed(port: int) -> int:
    """Return how many jobs the pool says it has completed."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return round(sum(float(value) for value in _COMPLETED.findall(answer.read().decode())))


def _memory_mib(pool: int) -> float:
    total_mib = 0.0
    for pid in tree(pool):
        with contextlib.suppress(OSError):
            total_mib += private_mib(pid)
    return total_mib


def _await_rest(port: int, jobs: int) -> None:
    """Wait for the last completion; what has not completed by then is lost."""
    until_s = time.monotonic() + REST_S
    while _completed(port) < jobs and time.monotonic() < until_s:
        time.sleep(0.2)


BENCHMARK = Benchmark(
    name="soak",
    method=(
        f"no-op jobs, so many that more than a second's work always waits, for `--minutes` after {SETTLE_S:g} s of settling; "
        f"history is kept for {KEPT}. "
        "Speed by the second, from the completions' time stamps; `lost` did not complete, `log_lines` is what the pool wrote "
        "after its start (audits that find something adrift, give-ups, errors), memory is what each process shares with nobody"
    ),
    run=run,
    rounds=1,
)
