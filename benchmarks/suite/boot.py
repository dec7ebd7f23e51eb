"""How soon a large pool is ready, and what a worker weighs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from benchmarks import ours
from benchmarks.processes import private_mib
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database


def run(plan: Plan) -> Iterator[Row]:
    """Start the pool afresh each round."""
    ready_s, weights = [], []
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        for _ in range(plan.rounds):
            pool = ours.Pool(dsn, plan.workers)
            try:
                workers = pool.await_ready()
                ready_s.append(time.monotonic() - pool.started_at)
                weights.append(median(private_mib(pid) for pid in workers))
            finally:
                pool.stop()
            plan.note(f"{plan.workers} workers ready in {ready_s[-1]:.2f} s, {weights[-1]:.2f} MiB each")
    yield Row("ready_s", median(ready_s), "s", f"{plan.workers} workers")
    yield Row("private_mib_per_worker", median(weights), "MiB", f"{plan.workers} workers")


BENCHMARK = Benchmark(
    name="boot",
    method=(
        "from starting the command line to the last worker's start hook; then the memory that a worker shares with "
        "nobody (Private_Clean + Private_Dirty), median over workers. The app is one small module"
    ),
    run=run,
    workers=32,
    rounds=5,
)
