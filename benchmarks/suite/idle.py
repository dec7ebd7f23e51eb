"""What an idle pool costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from psycopg.conninfo import conninfo_to_dict

from benchmarks import ours
from benchmarks.processes import cpu_s
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database

SETTLE_S, WINDOW_S = (
    12.0,
    20.0,
)  # the server hands in an idle backend's counters after ten seconds at the latest


def run(plan: Plan) -> Iterator[Row]:
    """Let the pool settle, then watch it and the server for a while."""
    cpu_percent, transactions = [], []
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        name = conninfo_to_dict(dsn)["dbname"]
        with ours.pool(dsn, plan.workers) as (pool, _):
            watcher = ours.Database(
                plan.server.dsn
            )  # in another database, so that its own work is not counted
            roots = [pool.pid] if plan.server.postmaster is None else [pool.pid, plan.server.postmaster]
            time.sleep(SETTLE_S)
            for _ in range(plan.rounds):
                count, spent_s, started = (
                    watcher.one("transactions", database=name)[0],
                    cpu_s(*roots),
                    time.monotonic(),
                )
                time.sleep(WINDOW_S * plan.scale)
                passed_s = time.monotonic() - started
                cpu_percent.append((cpu_s(*roots) - spent_s) / passed_s * 100)
                transactions.append((watcher.one("transactions", database=name)[0] - count) / passed_s)
            watcher.close()
    server = "PostgreSQL included" if plan.server.postmaster else "PostgreSQL elsewhere, not included"
    yield Row("cpu_percent", median(cpu_percent), "% of a core", server)
    yield Row("transactions_per_s", median(transactions), "transactions/s")


BENCHMARK = Benchmark(
    name="idle",
    method=(
        "a pool with nothing to do on one queue, after it has worked and settled. CPU of all its processes and of the "
        "whole server from /proc, and transactions of its database, over windows of 20 s"
    ),
    run=run,
    workers=4,
    rounds=2,
)
