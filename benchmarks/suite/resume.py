"""How fast handlers that ask and wait are answered, and how soon they go on."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median, quantiles

import orjson

from benchmarks import ours
from benchmarks.answering import Senders
from benchmarks.processes import cpu_by_role
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import database
from benchmarks.suite.enqueue import PGBENCH_SCALE, pgbench

HANDLERS, CONNECTIONS = 200, 4
WARM_UP_S, WINDOW_S = 1.0, 6.0
ALONE, PAUSE_S = 100, 0.02
PGBENCH_S = 4.0
FORMS = {"async": "converse", "sync": "converse_blocking"}
"""Case -> kind."""


def conversing_jobs(kind: str, count: int, line: str, first: int = 0) -> Iterator[tuple[str, bytes]]:
    """Make the kinds and args of jobs that ask through that pipe; they are numbered from `first`."""
    return ((kind, orjson.dumps({"i": i, "line": line})) for i in range(first, first + count))


@dataclass
class Trips:
    """What the handlers of one pool did."""

    per_s: float
    busy_ms: list[float]
    """How long each took to go on while all were answered at once."""
    alone_ms: list[float]
    """The same, one answered at a time."""
    cpu_us: dict[str, float] = field(default_factory=dict)
    """Role -> µs of CPU a trip; empty where the server is on another host."""


def trips(plan: Plan, kind: str) -> Trips:
    """Run the handlers of a kind in a fresh database, answer them for a while, then one at a time."""
    with (
        database(plan.server) as dsn,
        tempfile.TemporaryDirectory(prefix="awa-bench-ask-") as folder,
        contextlib.ExitStack() as stack,
    ):
        ours.migrate(dsn)
        pool, data = stack.enter_context(ours.pool(dsn, plan.workers))
        senders = stack.enter_context(contextlib.closing(Senders(dsn, folder, CONNECTIONS)))
        data.load(conversing_jobs(kind, HANDLERS, senders.path))
        senders.await_waiting(HANDLERS)

        def cpu() -> dict[str, float]:
            return cpu_by_role(pool.pid, data.backends()) if plan.server.postmaster else {}

        senders.held = False
        senders.release(senders.waiting(), CONNECTIONS)
        time.sleep(WARM_UP_S)
        before, heard, since = cpu(), senders.heard, time.monotonic()
        senders.waits_ms.clear()
        time.sleep(WINDOW_S * plan.scale)
        done, took_s = senders.heard - heard, time.monotonic() - since
        spent_us = {role: (s - before.get(role, 0.0)) / max(1, done) * 1e6 for role, s in cpu().items()}
        busy_ms = list(senders.waits_ms)
        senders.held = True
        senders.await_waiting(HANDLERS)
        senders.waits_ms.clear()
        for handler in senders.waiting()[: plan.jobs(ALONE)]:
            time.sleep(PAUSE_S)
            senders.release([handler], 1)
            senders.await_asking(handler)
        alone_ms = list(senders.waits_ms)
        senders.more = False
        senders.release(senders.waiting(), CONNECTIONS)
        data.await_finished(kind, HANDLERS)
    return Trips(done / took_s, busy_ms, alone_ms, spent_us)


def pgbench_per_s(plan: Plan, dsn: str) -> float:
    """Return pgbench's transactions a second: as many clients as there are senders, its built-in simple update."""
    seconds = max(1, round(PGBENCH_S * plan.scale))
    printed = pgbench(plan, dsn, "-n", "-N", f"-c{CONNECTIONS}", f"-T{seconds}")
    found = re.search(r"tps = ([\d.]+)", printed)
    assert found is not None
    return float(found.group(1))


def run(plan: Plan) -> Iterator[Row]:
    """Alternate the yardstick and both forms of handlers."""
    seen: dict[str, list[Trips]] = {form: [] for form in FORMS}
    theirs: list[float] = []
    with database(plan.server) as bench_dsn:
        if "pgbench" in plan.peers:
            pgbench(plan, bench_dsn, "-i", "-q", f"-s{PGBENCH_SCALE}")
        for _ in range(plan.rounds):
            if "pgbench" in plan.peers:
                theirs.append(pgbench_per_s(plan, bench_dsn))
                plan.note(f"pgbench: {theirs[-1]:,.0f}/s")
            for form, kind in FORMS.items():
                seen[form].append(found := trips(plan, kind))
                plan.note(f"{form}: {found.per_s:,.0f} trips/s; {_told(found)}")
    for form, rounds in seen.items():
        speeds = [found.per_s for found in rounds]
        if "pgbench" in plan.peers:
            yield compare("round_trips_per_s", "trips/s", speeds, theirs, "pgbench", form)
        else:
            yield Row("round_trips_per_s", median(speeds), "trips/s", form)
        for load, waits in (("all at once", "busy_ms"), ("one at a time", "alone_ms")):
            samples = [ms for found in rounds for ms in getattr(found, waits)]
            for metric, centile in (("p50_ms", 50), ("p95_ms", 95)):
                yield Row(metric, quantiles(samples, n=100)[centile - 1], "ms", f"{form}, {load}")
        for role in sorted({role for found in rounds for role in found.cpu_us}):
            spent_us = median(found.cpu_us.get(role, 0.0) for found in rounds)
            yield Row("cpu_us_per_trip", spent_us, "µs", f"{form}, {role}")


def _told(found: Trips) -> str:
    busy, alone = quantiles(found.busy_ms, n=20), quantiles(found.alone_ms, n=20)
    cpu = ", ".join(f"{role} {us:.0f}" for role, us in sorted(found.cpu_us.items()))
    return f"wakes {busy[9]:.1f} and {busy[18]:.1f} ms, alone {alone[9]:.1f} and {alone[18]:.1f}; CPU µs a trip: {cpu}"


BENCHMARK = Benchmark(
    name="resume",
    method=(
        "200 handlers in one pool, each in a loop: register a callback, tell its id, wait for the answer; four senders, "
        "each with a connection of its own, answer with resume_external whatever id they are told next. Trips of 6 s after "
        "the first second, a fresh database each round; beside: pgbench -N -c4 (scale 10). p50_ms, p95_ms: from the return "
        "of the sender's call, which has committed, to the handler's next line, on the host's monotonic clock; once under "
        "that load, once for one answer at a time, 20 ms apart. CPU from /proc by role, a trip"
    ),
    run=run,
    peers=("pgbench",),
    default_peers=("pgbench",),
)
