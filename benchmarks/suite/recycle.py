"""What thousands of recycled workers leave behind: nothing is right."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks import ours
from benchmarks.processes import descriptors, free_port, resident_mib, tree
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database

JOBS_PER_WORKER, RECYCLED, LOOKS = 5, 2000, 5
CPU_S = 0.002


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the lasting processes of a pool hold, together, at one moment."""

    descriptors: int
    memory_mib: float
    files: int
    sessions: int
    scrape_ms: float


def run(plan: Plan) -> Iterator[Row]:
    """Run the same jobs without recycling, then with it; look at the pool in between and at the end."""
    jobs = plan.jobs(RECYCLED * JOBS_PER_WORKER)
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        plain_per_s = jobs / ours.drain(dsn, plan.workers, ours.burn_jobs(jobs, CPU_S), jobs)
        plan.note(f"without recycling: {plain_per_s:.0f} jobs/s")
    with database(plan.server) as dsn, tempfile.TemporaryDirectory(prefix="awa-bench-run-") as folder:
        ours.migrate(dsn)
        yield from _recycle(plan, dsn, Path(folder), jobs, plain_per_s)


def _recycle(plan: Plan, dsn: str, folder: Path, jobs: int, plain_per_s: float) -> Iterator[Row]:
    port = free_port()
    flags = [
        "--max-jobs-per-worker",
        str(JOBS_PER_WORKER),
        "--metrics-port",
        str(port),
        "--run-dir",
        str(folder),
    ]
    part, took_s, seen = jobs // LOOKS, 0.0, []
    with ours.pool(dsn, plan.workers, flags=flags) as (pool, watcher):
        for look in range(LOOKS):
            before = pool.started()
            watcher.pause()
            watcher.load(ours.burn_jobs(part, CPU_S))
            took_s += watcher.await_completed(watcher.resume(), part)
            seen.append(_quiet(pool.pid, watcher, folder, port))
            plan.note(f"{look + 1} of {LOOKS}: {pool.started() - before} workers came, {seen[-1]}")
        recycled = pool.started() - plan.workers
        others = int(watcher.one("other_ends")[0])
    first, last = seen[0], seen[-1]
    case = f"{plan.workers} workers, {JOBS_PER_WORKER} jobs each"
    yield Row("recycled", recycled, "workers", case)
    yield Row("jobs_lost", others, "attempts", "ended otherwise than completed")
    per_s = part * LOOKS / took_s
    yield Row("jobs_per_s", per_s, "jobs/s", case, "unrecycled", per_s / plain_per_s, plain_per_s)
    growth = "from the first fifth to the last"
    for name, unit in [
        ("descriptors", "descriptors"), ("memory_mib", "MiB"), ("files", "files"), ("sessions", "sessions"),
        ("scrape_ms", "ms"),
    ]:  # fmt: skip
        yield Row(name, getattr(last, name) - getattr(first, name), unit, growth)


def _quiet(pool: int, watcher: ours.Database, folder: Path, port: int) -> Holdings:
    """Look a few times while nothing runs, and take the least: workers may still be coming and going."""
    looks = []
    for _ in range(8):
        time.sleep(0.25)
        looks.append(_holdings(pool, watcher, folder, port))
    least = {field.name: min(getattr(look, field.name) for look in looks) for field in fields(Holdings)}
    return Holdings(**least)


def _workers(pool: int) -> set[int]:
    return {pid for pid in tree(pool) if "awa-pool: worker" in _title(pid)}


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def _holdings(pool: int, watcher: ours.Database, folder: Path, port: int) -> Holdings:
    open_files, memory_mib = 0, 0.0
    for pid in set(tree(pool)) - _workers(pool):
        with contextlib.suppress(OSError):  # a worker so young that it has no title yet, and is gone again
            open_files, memory_mib = open_files + descriptors(pid), memory_mib + resident_mib(pid)
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        answer.read()
    scrape_ms = (time.monotonic() - began) * 1000
    shared = [name for name in os.listdir("/dev/shm") if name.startswith(("sem.", "psm_", "pym-"))]
    files = sum(len(names) for _, _, names in os.walk(folder)) + len(shared)
    return Holdings(
        descriptors=open_files,
        memory_mib=round(memory_mib, 1),
        files=files,
        sessions=int(watcher.one("sessions", watcher=ours.WATCHER)[0]),
        scrape_ms=round(scrape_ms, 1),
    )


BENCHMARK = Benchmark(
    name="recycle",
    method=(
        f"a pool whose workers are replaced every {JOBS_PER_WORKER} jobs of 2 ms runs until about 2,000 have come and "
        "gone; what its lasting processes hold (descriptors, resident memory, files, sessions) and the time of a scrape "
        "are read after each fifth. The same jobs without recycling are the yardstick of speed"
    ),
    run=run,
    peers=("unrecycled",),
    default_peers=("unrecycled",),
    workers=4,
    rounds=1,
)
