"""How much of the machine handlers that burn CPU get, beside a bare pool of processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from statistics import median

from benchmarks import ours, peers
from benchmarks.processes import cpu_s
from benchmarks.programs.conversation import burn
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import database

CASES = ((0.005, 1400, "5 ms"), (0.001, 6000, "1 ms"))
CHUNK_SIZES = {0.005: (1, 4), 0.001: (1, 16)}


def bare_pool(workers: int, jobs: int, job_s: float, chunk: int) -> float:
    """Run the jobs through `multiprocessing.Pool`; returns jobs per second, boot excluded."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(burn, [0.001] * workers * 4, chunksize=1)
        started = time.monotonic()
        for _ in pool.imap_unordered(burn, [job_s] * jobs, chunksize=chunk):
            pass
        return jobs / (time.monotonic() - started)


def our_pool(plan: Plan, dsn: str, jobs: int, job_s: float) -> tuple[float, float | None]:
    """Run the jobs through our pool; returns jobs per second, and microseconds of CPU outside handlers a job."""
    with ours.pool(dsn, plan.workers) as (pool, data):
        data.pause()
        data.load(ours.burn_jobs(jobs, job_s))
        roots = [pool.pid] if plan.server.postmaster is None else [pool.pid, plan.server.postmaster]
        before_s = cpu_s(*roots)
        took_s = data.await_completed(data.resume(), jobs, first_look_s=0.97 * jobs * job_s / plan.workers)
        spent_s = cpu_s(*roots) - before_s
    overhead_us = (spent_s - jobs * job_s) / jobs * 1e6 if plan.server.postmaster else None
    return jobs / took_s, overhead_us


def best_chunk(plan: Plan, jobs: int, job_s: float) -> int:
    """Find the chunk size that serves the bare pool best."""
    speeds = {chunk: bare_pool(plan.workers, jobs, job_s, chunk) for chunk in CHUNK_SIZES[job_s]}
    plan.note(f"bare pool by chunk size: {', '.join(f'{c}: {s:,.0f}/s' for c, s in speeds.items())}")
    return max(speeds, key=lambda chunk: speeds[chunk])


def one_case(plan: Plan, job_s: float, jobs: int, case: str) -> Iterator[Row]:
    """Alternate rounds of our pool and its yardsticks, the first of a round in turn."""
    speeds: dict[str, list[float]] = {name: [] for name in ("ours", *plan.peers)}
    overheads: list[float] = []
    chunk = best_chunk(plan, jobs, job_s) if "pool" in plan.peers else 1
    with database(plan.server) as dsn:
        ours.migrate(dsn)

        def measure(name: str) -> float:
            if name == "pool":
                return bare_pool(plan.workers, jobs, job_s, chunk)
            if name != "ours":
                return peers.drain(plan.server, peers.CPU_SETTINGS[name], jobs, plan.workers, job_s)
            speed, overhead_us = our_pool(plan, dsn, jobs, job_s)
            overheads.extend([overhead_us] if overhead_us is not None else [])
            return speed

        for number in range(plan.rounds):
            for name in list(speeds)[:: -1 if number % 2 else 1]:
                speeds[name].append(measure(name))
            plan.note(
                f"{case}: " + ", ".join(f"{name} {speed[-1]:,.1f} jobs/s" for name, speed in speeds.items())
            )
    for peer in plan.peers:
        yield compare("jobs_per_s", "jobs/s", speeds["ours"], speeds[peer], peer, case)
    if not plan.peers:
        yield Row("jobs_per_s", median(speeds["ours"]), "jobs/s", case)
    if overheads:
        yield Row("overhead_us_per_job", median(overheads), "µs", case)


def run(plan: Plan) -> Iterator[Row]:
    """Measure each length of job."""
    for job_s, count, case in CASES:
        yield from one_case(plan, job_s, plan.jobs(count), case)


BENCHMARK = Benchmark(
    name="cpu",
    method=(
        "handlers that use 5 ms or 1 ms of CPU. Alternating pairs with a bare multiprocessing.Pool (imap_unordered at "
        "the chunk size that serves it best), both booted and warm before the clock starts; ours from resume to the "
        "last completion in the database. Overhead: CPU of all pool and PostgreSQL processes from /proc, less the CPU "
        "that the handlers asked for, per job. Medians; ratios are of pairs"
    ),
    run=run,
    peers=("pool", "pgqueuer", "awa-pg", "procrastinate"),
    default_peers=("pool",),
    rounds=15,
)
