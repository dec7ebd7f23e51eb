"""What a thousand waiting handlers cost: the pool's speed beside them, their memory, and how fast they end."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from benchmarks import ours
from benchmarks.answering import DEADLINE_S, Senders
from benchmarks.processes import cpu_by_role, private_mib
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import database
from benchmarks.suite.resume import CONNECTIONS, FORMS, conversing_jobs

HANDLERS = 1_000
DRAIN_S, FIRST_DRAIN = 20.0, 100_000
MOST_JOBS = 3_000_000


class Crowd:
    """A pool, and handlers in it that wait: as many of each given kind."""

    def __init__(self, plan: Plan, dsn: str, folder: str, stack: contextlib.ExitStack) -> None:
        self.plan = plan
        self.pool, self.data = stack.enter_context(ours.pool(dsn, plan.workers))
        self.senders = stack.enter_context(contextlib.closing(Senders(dsn, folder, CONNECTIONS)))
        self.kinds: dict[str, int] = {}

    def begin(self, kind: str, handlers: int) -> float:
        """Let so many wait; returns the KiB of private memory that each of them added to its worker."""
        workers = self.pool.await_ready()
        before, there = sum(map(private_mib, workers)), sum(self.kinds.values())
        self.data.load(conversing_jobs(kind, handlers, self.senders.path, there))
        self.senders.await_waiting(there + handlers)
        self.data.await_waiting(there + handlers, DEADLINE_S)
        self.kinds[kind] = handlers
        return (sum(map(private_mib, workers)) - before) * 1024 / handlers

    def drain(self, jobs: int) -> tuple[float, dict[str, float]]:
        """Load no-op jobs into the paused queue and let them go; returns how many a second, and µs of CPU a job by role."""
        self.data.pause()
        self.data.load(ours.noop_jobs(jobs))
        before = self.cpu()
        speed = jobs / self.data.await_completed(self.data.resume(), jobs, every_s=0.25)
        return speed, {role: (s - before.get(role, 0.0)) / jobs * 1e6 for role, s in self.cpu().items()}

    def end(self) -> float:
        """Answer all in random order; returns the seconds from the first answer to the last completion."""
        since = self.data.one("now")[0]
        handlers = self.senders.waiting()
        random.Random(self.plan.seed).shuffle(handlers)
        self.senders.more = False
        self.senders.release(handlers, CONNECTIONS)
        return max(self.data.await_finished(kind, count, since) for kind, count in self.kinds.items())

    def cpu(self) -> dict[str, float]:
        """Return the seconds of CPU so far, by role."""
        return cpu_by_role(self.pool.pid, self.data.backends()) if self.plan.server.postmaster else {}


@contextlib.contextmanager
def crowd(plan: Plan) -> Iterator[Crowd]:
    """Run a pool on a fresh database."""
    with (
        database(plan.server) as dsn,
        tempfile.TemporaryDirectory(prefix="awa-bench-ask-") as folder,
        contextlib.ExitStack() as stack,
    ):
        ours.migrate(dsn)
        yield Crowd(plan, dsn, folder, stack)


class Drain(NamedTuple):
    """A drain: jobs a second, µs of CPU a job, and the seconds in which the handlers beside it ended."""

    per_s: float
    cpu_us: float
    ended_s: float


def drains(plan: Plan, jobs: int, handlers: int) -> Drain:
    """Drain no-op jobs beside so many waiting handlers, and end those."""
    with crowd(plan) as there:
        for kind in FORMS.values():
            if handlers:
                there.begin(kind, handlers // len(FORMS))
        speed, cpu_us = there.drain(jobs)
        told = ", ".join(f"{role} {us:.1f}" for role, us in sorted(cpu_us.items()))
        plan.note(f"beside {handlers} waiting handlers {speed:,.0f} jobs/s; CPU µs a job: {told}")
        return Drain(speed, sum(cpu_us.values()), there.end() if handlers else 0.0)


def run(plan: Plan) -> Iterator[Row]:
    """Weigh each form alone; then alternate pools with waiting handlers and without."""
    handlers = plan.jobs(HANDLERS)
    for form, kind in FORMS.items():
        with crowd(plan) as there:
            kib = there.begin(kind, handlers)
            ended_s = there.end()
        plan.note(f"{handlers} {form} handlers: {kib:.1f} KiB each; ended in {ended_s:.2f} s")
        yield Row("kib_per_handler", kib, "KiB", form)
        yield Row("all_ended_s", ended_s, "s", form)
    jobs = min(MOST_JOBS, round(drains(plan, plan.jobs(FIRST_DRAIN), 0).per_s * DRAIN_S * plan.scale))
    without: list[Drain] = []
    beside: list[Drain] = []
    for number in range(plan.rounds):
        for with_them in (number % 2 == 0, number % 2 == 1):
            (beside if with_them else without).append(drains(plan, jobs, handlers if with_them else 0))
        plan.note(
            f"ratio {beside[-1].per_s / without[-1].per_s:.3f}; all ended in {beside[-1].ended_s:.2f} s"
        )
    case = f"beside {handlers} waiting"
    yield _paired("jobs_per_s", "jobs/s", [d.per_s for d in beside], [d.per_s for d in without], case)
    if plan.server.postmaster:
        yield _paired("cpu_us_per_job", "µs", [d.cpu_us for d in beside], [d.cpu_us for d in without], case)
    yield Row("all_ended_s", median(d.ended_s for d in beside), "s", "half of them async, after the drain")


def _paired(metric: str, unit: str, beside: list[float], without: list[float], case: str) -> Row:
    return compare(metric, unit, beside, without, "without", case)


BENCHMARK = Benchmark(
    name="waiting",
    method=(
        "1,000 handlers that wait for callbacks in a pool of two workers, half of them async, half plain functions with "
        "waits=True, while no-op jobs drain for about 20 s; alternating with the same drain in a pool that has none, a fresh "
        "database each. Then all are answered in random order over four connections: seconds from the first answer to "
        "the last completion. kib_per_handler: private memory of the workers with 1,000 of one form waiting, less before. CPU of all processes from /proc"
    ),
    run=run,
    peers=("without",),
    default_peers=("without",),
    rounds=5,
)
