"""How fast no-op jobs drain through all processes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks import ours, peers
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import database

JOBS = 200_000


def run(plan: Plan) -> Iterator[Row]:
    """Alternate our pool with each setting of each peer; the ratio is against a peer's best setting."""
    settings = [setting for peer in plan.peers for setting in peers.SETTINGS[peer]]
    ours_per_s: list[float] = []
    theirs: dict[str, list[float]] = {str(setting): [] for setting in settings}
    for _ in range(plan.rounds):
        jobs = plan.jobs(JOBS)
        with database(plan.server) as dsn:
            ours.migrate(dsn)
            ours_per_s.append(jobs / ours.drain(dsn, plan.workers, ours.noop_jobs(jobs), jobs))
        plan.note(f"awa-pool --workers {plan.workers}: {ours_per_s[-1]:,.0f} jobs/s")
        for setting in settings:
            speed = peers.drain(plan.server, setting, plan.jobs(peers.DRAIN_JOBS[setting.peer]), plan.workers)
            theirs[str(setting)].append(speed)
            plan.note(f"{setting}: {speed:,.0f} jobs/s")
    if not plan.peers:
        yield Row("jobs_per_s", median(ours_per_s), "jobs/s")
    for peer in plan.peers:
        best = max((theirs[str(setting)] for setting in peers.SETTINGS[peer]), key=median)
        yield compare("jobs_per_s", "jobs/s", ours_per_s, best, peer)


BENCHMARK = Benchmark(
    name="drain",
    method=(
        "no-op jobs through the real command line. Each round uses a fresh database per contender; every contender's "
        "processes are booted first. Ours: 50 jobs to warm up, jobs loaded into a paused queue, clock from resume to "
        "the last completion's timestamp in the database. Peers: clock from go to the last completion's timestamp "
        "(awa-pg: to the last handler's run, in its favour). Medians; ratios are of rounds, against a peer's best setting"
    ),
    run=run,
    peers=("bare", "pgqueuer", "awa-pg", "procrastinate"),
    default_peers=("bare", "pgqueuer", "awa-pg"),
)
