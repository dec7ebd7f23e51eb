"""What a job writes: WAL bytes and dead tuples for claim and completion."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from statistics import median

import psycopg

from benchmarks import ours
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database

JOBS = 200_000
STATISTICS_SETTLE_S = 11.0  # an idle backend hands in its counters after ten seconds at the latest


def one_drain(plan: Plan, pinned: bool) -> tuple[float, float]:
    """Drain no-op jobs through the pool; returns WAL bytes and dead tuples a job."""
    jobs = plan.jobs(JOBS)
    with database(plan.server) as dsn, contextlib.ExitStack() as stack:
        ours.migrate(dsn)
        _, data = stack.enter_context(ours.pool(dsn, plan.workers))
        data.pause()
        data.load(ours.noop_jobs(jobs))
        data.conn.execute("checkpoint")
        if pinned:
            holder = stack.enter_context(psycopg.connect(dsn))
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select pg_current_xact_id(), count(*) from awa_pool.meta")
        time.sleep(STATISTICS_SETTLE_S)
        churn, wal = int(data.one("churn")[0]), int(data.one("wal_bytes")[0])
        data.await_completed(data.resume(), jobs)
        written = int(data.one("wal_bytes")[0]) - wal
        time.sleep(STATISTICS_SETTLE_S)
        return written / jobs, (int(data.one("churn")[0]) - churn) / jobs


def run(plan: Plan) -> Iterator[Row]:
    """Measure free and under a pinned snapshot."""
    for pinned in (False, True):
        figures = [one_drain(plan, pinned) for _ in range(plan.rounds)]
        case = "pinned snapshot" if pinned else "free"
        yield Row("bytes_per_job", median(figure[0] for figure in figures), "bytes", case)
        yield Row("dead_tuples_per_job", median(figure[1] for figure in figures), "tuples", case)


BENCHMARK = Benchmark(
    name="wal",
    method=(
        "no-op jobs drained by the real command line, with and without a repeatable-read snapshot held by another "
        "session. WAL from resume to the last completion, heartbeats and all, after a checkpoint (so the first write "
        "to a page is a full image); every update and delete in the schema counted as one dead tuple"
    ),
    run=run,
    rounds=1,
)
