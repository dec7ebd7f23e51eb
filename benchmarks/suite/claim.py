"""What a claim of 20 costs while a million jobs wait."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psycopg

from benchmarks import ours
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database
from benchmarks.sqltext import text

JOBS, AT_ONCE, SAMPLES = 1_000_000, 20, 400


@dataclass
class Claimer:
    """Claims 20 at a time and completes what it claimed, as one dispatcher and finalizer would."""

    conn: psycopg.Connection
    runtime: str = field(default_factory=lambda: str(uuid.uuid4()))
    request: int = 0

    def _parameters(self) -> dict[str, Any]:
        self.request += 1
        return {"jobs": AT_ONCE, "runtime": self.runtime, "request": self.request}

    def claim_ms(self) -> float:
        """Claim and complete; returns the milliseconds of the claim."""
        started = time.perf_counter()
        rows = self.conn.execute(text("claim"), self._parameters()).fetchall()
        took_ms = (time.perf_counter() - started) * 1e3
        assert sum(row[3] for row in rows) == AT_ONCE
        parameters = {
            "slots": [r[0] for r in rows], "receipts": [r[1] for r in rows],
            "nonces": [r[2] for r in rows], "masks": [(1 << r[3]) - 1 for r in rows],
        }  # fmt: skip
        self.conn.execute(text("complete"), parameters).fetchall()
        return took_ms

    def claim_buffers(self) -> int:
        """Claim under EXPLAIN; returns the buffers it touched."""
        row = self.conn.execute(text("explain_claim"), self._parameters()).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return sum(int(plan[f"Shared {what} Blocks"]) for what in ("Hit", "Read"))

    def samples(self, count: int) -> tuple[float, float]:
        """Return the median milliseconds and buffers of a claim, here and now."""
        milliseconds = [self.claim_ms() for _ in range(count * 3 // 4)]
        buffers = [self.claim_buffers() for _ in range(count - len(milliseconds))]
        return median(milliseconds), median(buffers)


def one_case(dsn: str, pinned: bool, analysed: bool, jobs: int) -> Iterator[tuple[str, float, float]]:
    """Claim the whole slot; gives the place and the figures at its start and its end."""
    samples = max(8, min(SAMPLES, jobs // AT_ONCE // 4))
    with contextlib.ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        if pinned:
            holder = stack.enter_context(psycopg.connect(dsn))
            holder.execute("set transaction isolation level repeatable read")
            holder.execute("select pg_current_xact_id(), count(*) from awa_pool.meta")
        claimer = Claimer(conn)
        claimer.claim_ms()  # plans are made
        if analysed:
            conn.execute("analyze")
            claimer.claim_ms()
        yield "start", *claimer.samples(samples)
        for _ in range(jobs // AT_ONCE - 2 * samples - 2):
            claimer.claim_ms()
        yield "end", *claimer.samples(samples)


def run(plan: Plan) -> Iterator[Row]:
    """Run every combination on its own copy of one loaded database."""
    jobs = plan.jobs(JOBS)
    with database(plan.server) as template:
        ours.migrate(template)
        loader = ours.Database(template)
        loader.load(ours.noop_jobs(jobs))
        loader.conn.execute("checkpoint")
        loader.close()
        name = psycopg.conninfo.conninfo_to_dict(template)["dbname"]
        for pinned in (False, True):
            for analysed in (False, True):
                label = f"{'analyzed' if analysed else 'never analyzed'}, {'pinned snapshot' if pinned else 'free'}"
                with database(plan.server, str(name)) as dsn:
                    for place, milliseconds, buffers in one_case(dsn, pinned, analysed, jobs):
                        plan.note(f"{place} of slot, {label}: {buffers:.0f} buffers, {milliseconds:.3f} ms")
                        case = f"{place}, {label}"
                        yield Row("buffers_per_claim", buffers, "buffers", case)
                        yield Row("ms_per_claim", milliseconds, "ms", case)


BENCHMARK = Benchmark(
    name="claim",
    method=(
        "a million jobs in one slot of a fresh database, claimed 20 at a time and completed by one connection to the "
        "end of the slot. Figures are medians of up to 400 claims at the start and the end; never analyzed or analyzed "
        "after the load; free, or under a repeatable-read snapshot held all the while. Buffers by EXPLAIN (ANALYZE, "
        "BUFFERS), milliseconds on the client"
    ),
    run=run,
)
