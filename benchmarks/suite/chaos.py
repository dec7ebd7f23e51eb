"""Whether every job ends once while everything else is killed, stopped, restarted or lost."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks import ours
from benchmarks.chaos import storm as storms
from benchmarks.chaos.host import HEARTBEAT_S, JOBS_PER_WORKER, STALE_S, Host
from benchmarks.chaos.judge import Verdict, judge
from benchmarks.chaos.ledger import Ledger, Pen
from benchmarks.chaos.load import Producer
from benchmarks.chaos.storm import Blow
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database
from benchmarks.sqltext import text

LOST_MESSAGES = 0.01
SWEEP_S = 3.0  # a look of the supervisor (1 s) and a round of the leader (a third of the stale time)
SETTLE_S = STALE_S + SWEEP_S
"""After the last blow: the stale time and one sweep; what runs then has been forgotten."""
LAST_WORD_S = 180.0
"""Jobs whose attempts were lost again and again wait for their turn, up to a minute or two."""
AWAY_S = 2.0
YARDSTICK_S = 60.0
WARM_UP_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What a run has shown."""

    verdict: Verdict
    jobs_per_s: float
    stuck: int
    settled_s: float
    silence_s: float
    orphans: int
    notes: str


def run_once(plan: Plan, blows: Sequence[Blow], seconds: float, faults: str) -> Outcome:
    """Load a pool for so long, strike it meanwhile, then let it come to rest and judge."""
    folder = Path(tempfile.mkdtemp(prefix="awa-chaos-"))  # kept: it tells what went wrong
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        pen, ledger = Pen(folder / "ledger"), Ledger(folder / "ledger")
        host = Host(dsn, plan.workers, folder, faults)
        producer = Producer(dsn, ledger, pen, plan.seed)
        try:
            producer.start()
            _await_first(ledger)
            began_s = time.time()
            _strike(plan, host, blows, seconds)
            over_s = time.time()
            producer.stop()
            stuck, settled_s = _settle(host, dsn, over_s)
            left = _rest(host, dsn)
            host.close()
        except BaseException:
            host.kill()
            raise
        ledger.read()
        with psycopg.connect(dsn) as conn:
            verdict = judge(ledger, conn.execute(text("chaos_ends")).fetchall())
            for job, what in verdict.examples:
                plan.note(f"job {job} {what}")
                for line in [*_history(conn, job), *ledger.lines_of(job)]:
                    plan.note(f"    {line}")
        pen.close()
    ends_s = sorted(at_s for at_s in ledger.ends_s if began_s <= at_s <= over_s)
    silence_s = max((b - a for a, b in zip([began_s, *ends_s], [*ends_s, over_s], strict=True)), default=0.0)
    notes = (
        f"{len(ledger.put):,} jobs, {ledger.starts:,} starts, {len(blows)} blows ({host.missed} at nobody), "
        f"{host.restarts} restarts of the supervisor, {producer.refused} batches refused, {left} never ended; "
        f"log and ledger in {folder}"
    )
    return Outcome(
        verdict, len(ends_s) / (over_s - began_s), stuck, settled_s, silence_s, host.orphans, notes
    )


def _history(conn: psycopg.Connection, job: int) -> list[str]:
    """Return a line for each attempt that the database knows of."""
    return [str(row[0]) for row in conn.execute(text("chaos_history"), {"job": job})]


def _await_first(ledger: Ledger) -> None:
    """Wait until handlers run: the boot is no part of the measure."""
    until_s = time.monotonic() + WARM_UP_S
    while not ledger.starts:
        if time.monotonic() > until_s:
            raise ours.PoolFailed("no handler has run")
        time.sleep(0.05)  # the producer reads the ledger


def _strike(plan: Plan, host: Host, blows: Sequence[Blow], seconds: float) -> None:
    began_s = time.monotonic()
    todo = list(blows)
    server: threading.Thread | None = None
    while (past_s := time.monotonic() - began_s) < seconds:
        while todo and todo[0].at_s <= past_s:
            blow = todo.pop(0)
            if blow.role != storms.SERVER:
                host.strike(blow)
            elif plan.server.restart is not None:
                host.say("the server is restarted")
                how = (signal.SIGINT, signal.SIGQUIT)[blow.number]
                server = threading.Thread(target=plan.server.restart, args=(how, AWAY_S))
                server.start()
        host.tend()
        time.sleep(0.05)
    if server is not None:
        server.join()


def _settle(host: Host, dsn: str, over_s: float) -> tuple[int, float]:
    """Wait for the end of everything that ran when the storm ended; returns what still runs at the deadline, and the
    seconds until nothing did."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        stuck = -1
        while True:
            host.tend()
            past_s = time.time() - over_s
            row = conn.execute(text("chaos_open"), {"before": over_s}).fetchone()
            left = int(row[0]) if row else 0
            if stuck < 0 and (not left or past_s >= SETTLE_S):
                stuck = left
            if not left or past_s > LAST_WORD_S:
                return max(0, stuck), past_s
            time.sleep(0.1)


def _rest(host: Host, dsn: str) -> int:
    """Wait until every job has ended; returns how many have not."""
    until_s = time.monotonic() + LAST_WORD_S
    with psycopg.connect(dsn, autocommit=True) as conn:
        while True:
            host.tend()
            row = conn.execute(text("chaos_left")).fetchone()
            left = int(row[0]) if row else 0
            if not left or time.monotonic() > until_s:
                return left
            time.sleep(0.5)


def run(plan: Plan) -> Iterator[Row]:
    """Measure the load undisturbed, then in the storm."""
    seconds = plan.minutes * 60
    calm = run_once(plan, (), min(YARDSTICK_S, seconds / 3), "")
    plan.note(f"undisturbed: {calm.jobs_per_s:,.0f} ends of handlers/s; {calm.notes}")
    blows = storms.storm(plan.seed, seconds, plan.workers)
    if plan.server.restart is None:
        plan.note("the server named by --dsn is not restarted")
    rough = run_once(plan, blows, seconds, f"seed={plan.seed} drop={LOST_MESSAGES}")
    plan.note(f"storm {plan.seed}: {rough.jobs_per_s:,.0f} ends of handlers/s; {rough.notes}")
    case = f"{plan.minutes:g} min, storm {plan.seed}"
    yield Row("lost", calm.verdict.lost + rough.verdict.lost, "jobs", case)
    yield Row("doubled", calm.verdict.doubled + rough.verdict.doubled, "jobs", case)
    yield Row("stuck", calm.stuck + rough.stuck, "jobs", case)
    yield Row("orphans", rough.orphans, "processes", case)
    yield Row("repeats", rough.verdict.repeats, "starts", case)
    yield Row("recovery_s", rough.settled_s, "s", "after the last blow")
    yield Row("silence_s", rough.silence_s, "s", "longest without an end")
    ratio = rough.jobs_per_s / calm.jobs_per_s
    yield Row("jobs_per_s", rough.jobs_per_s, "jobs/s", case, "undisturbed", ratio, calm.jobs_per_s)


BENCHMARK = Benchmark(
    name="chaos",
    method=(
        "a load of instant, 5 ms CPU, sleeping async, failing, crashing and dead-lettered jobs while each second "
        "dispatcher, finalizer, maintenance or a worker is killed or stopped (half of the stopped go on after 5 s), the "
        "supervisor each 20 s (started again at once), PostgreSQL each minute; workers are recycled after "
        f"{JOBS_PER_WORKER} jobs, {LOST_MESSAGES:.0%} of all messages are lost, heartbeat {HEARTBEAT_S} s, stale {STALE_S} s. "
        "A ledger file that handlers and producer append to, and the attempts' ends in the database, judge: `lost` was "
        "confirmed and did not end, `doubled` ended twice, `repeats` are handlers that ran after their job's end and changed nothing, `stuck` still ran a stale time and one sweep "
        f"({SETTLE_S:.1f} s) after the last blow, `orphans` outlived their supervisor by 5 s. `--seed` makes the same storm "
        "again. Yardstick: the same load undisturbed"
    ),
    run=run,
    workers=4,
    rounds=1,
)
