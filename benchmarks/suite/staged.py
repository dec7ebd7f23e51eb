"""How fast jobs drain that stage a follow-up each, and what a few of them cost among many that do not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import ours
from benchmarks.processes import cpu_by_role
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import database
from benchmarks.suite.enqueue import PGBENCH_SCALE, pgbench

STAGED, MIXED = 20_000, 200_000
ONE_IN = 100
"""Of the mixed load, one job in so many stages."""
PGBENCH_S = 4.0
PGBENCH_CLIENTS = 8
STAGE_ARGS = b'{"i":%d,"payload":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","queue":"bench-after"}'
"""Nobody runs the queue of the follow-ups, so that only their making is measured."""


def staging_jobs(count: int) -> Iterator[tuple[str, bytes]]:
    """Make the kinds and args of jobs that stage one follow-up each."""
    return (("stage", STAGE_ARGS % i) for i in range(count))


def mixed_jobs(count: int) -> Iterator[tuple[str, bytes]]:
    """Make as many jobs, one in a hundred of which stages."""
    noops = ours.noop_jobs(count)
    return (("stage", STAGE_ARGS % i) if i % ONE_IN == 0 else next(noops) for i in range(count))


@dataclass
class Costs:
    """What a drain of staging jobs took of everything."""

    jobs: int
    took_s: float
    wal_bytes: int
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Role -> seconds of CPU; empty where the server is on another host."""


def drain(plan: Plan, jobs: Iterator[tuple[str, bytes]], count: int) -> Costs:
    """Load the jobs into a paused queue of a fresh database, and see them through."""
    with database(plan.server) as dsn, contextlib.ExitStack() as stack:
        ours.migrate(dsn)
        pool, data = stack.enter_context(ours.pool(dsn, plan.workers))
        warm_up = data.resume()
        data.load(staging_jobs(ours.WARM_UP_JOBS))
        data.await_completed(warm_up, ours.WARM_UP_JOBS)
        data.pause()
        data.load(jobs)
        data.conn.execute("checkpoint")

        def cpu() -> dict[str, float]:
            return cpu_by_role(pool.pid, data.backends()) if plan.server.postmaster else {}

        before, wal = cpu(), int(data.one("wal_bytes")[0])
        took_s = data.await_completed(data.resume(), count, every_s=0.2)
        written = int(data.one("wal_bytes")[0]) - wal
        spent = {role: seconds - before.get(role, 0.0) for role, seconds in cpu().items()}
    return Costs(count, took_s, written, spent)


def pgbench_per_s(plan: Plan, dsn: str) -> float:
    """Return pgbench's transactions a second: eight clients, its built-in simple update."""
    seconds = max(1, round(PGBENCH_S * plan.scale))
    printed = pgbench(plan, dsn, "-n", "-N", f"-c{PGBENCH_CLIENTS}", f"-T{seconds}")
    found = re.search(r"tps = ([\d.]+)", printed)
    assert found is not None
    return float(found.group(1))


def run(plan: Plan) -> Iterator[Row]:
    """Alternate staging jobs, the yardstick, no-op jobs and the mixed load."""
    staged_jobs, mixed = plan.jobs(STAGED), plan.jobs(MIXED)
    staged: list[Costs] = []
    speeds: dict[str, list[float]] = {"ours": [], "pgbench": []}
    ratios: list[float] = []
    with database(plan.server) as bench_dsn:
        if "pgbench" in plan.peers:
            pgbench(plan, bench_dsn, "-i", "-q", f"-s{PGBENCH_SCALE}")
        for _ in range(plan.rounds):
            if "pgbench" in plan.peers:
                speeds["pgbench"].append(pgbench_per_s(plan, bench_dsn))
            cost = drain(plan, staging_jobs(staged_jobs), staged_jobs)
            staged.append(cost)
            speeds["ours"].append(staged_jobs / cost.took_s)
            theirs = f", pgbench {speeds['pgbench'][-1]:,.0f}/s" if speeds["pgbench"] else ""
            plan.note(f"staged: {speeds['ours'][-1]:,.0f} jobs/s{theirs}; {_told(cost)}")
            alone = drain(plan, ours.noop_jobs(mixed), mixed)
            both = drain(plan, mixed_jobs(mixed), mixed)
            few = (mixed + ONE_IN - 1) // ONE_IN
            ratios.append(both.took_s / (alone.took_s + few / speeds["ours"][-1]))
            plan.note(f"no-op jobs {alone.took_s:.2f} s, mixed {both.took_s:.2f} s: {ratios[-1]:.2f}")
    if "pgbench" in plan.peers:
        yield compare("jobs_per_s", "jobs/s", speeds["ours"], speeds["pgbench"], "pgbench")
    else:
        yield Row("jobs_per_s", median(speeds["ours"]), "jobs/s")
    yield Row("mixed_ratio", median(ratios), "×")
    yield Row("wal_bytes_per_job", median(cost.wal_bytes / cost.jobs for cost in staged), "bytes")
    for role in sorted({role for cost in staged for role in cost.cpu_s}):
        spent_us = [cost.cpu_s.get(role, 0.0) / cost.jobs * 1e6 for cost in staged]
        yield Row("cpu_us_per_job", median(spent_us), "µs", role)


def _told(cost: Costs) -> str:
    parts: list[Any] = [f"{role} {s / cost.jobs * 1e6:.0f}" for role, s in sorted(cost.cpu_s.items())]
    return f"CPU µs a job: {', '.join(parts)}; WAL {cost.wal_bytes / cost.jobs:,.0f} bytes a job"


BENCHMARK = Benchmark(
    name="staged",
    method=(
        "jobs that stage one follow-up each, through the real command line, into a queue that nobody runs. Every drain has "
        "a fresh database and warm processes; clock from resume to the last completion's timestamp. Beside: pgbench -N -c8 "
        "(scale 10). mixed_ratio: the time of a load of which 1 % stage, over the time of as many no-op jobs plus the "
        "staging ones at the speed just measured. CPU from /proc by role, per staged job; WAL of the whole server"
    ),
    run=run,
    peers=("pgbench",),
    default_peers=("pgbench",),
)
