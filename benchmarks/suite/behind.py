"""How long short jobs stand behind a long one that holds its worker's interpreter, while another worker is idle."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from awa_pool import Client
from benchmarks import ours
from benchmarks.apps import Mark, MarkOther, client_for
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database

SHORT_JOBS, LONG_S = 200, 2.0
LEARN_JOBS = 300  # so that the pool knows the kind for a short one, and hands it over many at a time
CASES = {"own kind": Mark, "another kind": MarkOther}


def run(plan: Plan) -> Iterator[Row]:
    """Let one long job after the other come in the midst of short ones, of their kind and of another in turns."""
    waits: dict[str, list[float]] = {case: [] for case in CASES}
    with (
        database(plan.server) as dsn,
        tempfile.TemporaryDirectory(prefix="awa-bench-mark-") as folder,
    ):
        ours.migrate(dsn)
        with ours.pool(dsn, plan.workers) as (_, watcher), client_for(dsn) as client:
            _insert(client, watcher, [Mark(str(Path(folder, "learn")))] * LEARN_JOBS)
            for number in range(plan.rounds):
                for case, long_type in CASES.items():
                    marks = Path(folder, f"{case} {number}")
                    waits[case].append(_round(client, watcher, marks, long_type, plan.jobs(SHORT_JOBS)))
                    plan.note(f"{case}: {waits[case][-1]:.0f} ms")
    for case, found_ms in waits.items():
        yield Row("last_start_ms", median(found_ms), "ms", case)
        yield Row("worst_start_ms", max(found_ms), "ms", f"{case}, the worst of {len(found_ms)} rounds")


def _round(client: Client, watcher: ours.Database, marks: Path, long_type: type[Mark], short: int) -> float:
    """Put the jobs in and wait for them; returns the milliseconds from the long one's start, or the commit, to the last short one's."""
    before = [Mark(str(marks))] * (short // 2)
    after = [Mark(str(marks))] * (short - short // 2)
    committed_s = _insert(client, watcher, [*before, long_type(str(marks), LONG_S), *after])
    started = [[float(word) for word in line.split()] for line in marks.read_text().splitlines()]
    (long_s,) = (at_s for at_s, hold_s in started if hold_s)
    last_s = max(at_s for at_s, hold_s in started if not hold_s)
    if len(started) != short + 1:
        raise ours.PoolFailed(f"of {short + 1} jobs {len(started)} have started")
    return max(0.0, last_s - max(long_s, committed_s)) * 1e3


def _insert(client: Client, watcher: ours.Database, jobs: list[Mark]) -> float:
    """Put jobs in at once and wait until all have completed; returns when they were committed, on the host's clock."""
    since = watcher.one("now")[0]
    client.insert_many(jobs)
    committed_s = time.monotonic()
    watcher.await_completed(since, len(jobs))
    return committed_s


BENCHMARK = Benchmark(
    name="behind",
    method=(
        f"a long job among {SHORT_JOBS} short ones, all put in by one call, half of the short ones before it. It lets nothing "
        f"else of its worker run for {LONG_S:g} s (native code that keeps the interpreter's lock). From its start, or the commit "
        "if that is later, to the start of the last short job, on the host's monotonic clock; 0: none was left. Of the short "
        "ones' own kind and of another in turns; the pool knows the kind for a short one"
    ),
    run=run,
    rounds=8,
)
