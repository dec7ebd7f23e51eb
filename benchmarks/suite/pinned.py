"""What a claim costs while a snapshot is held for minutes, the ring turns, and jobs come at a steady rate."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median

import psycopg

from awa_pool.store import statements as do
from awa_pool.store.connection import connect
from awa_pool.store.store import Store
from benchmarks import ours
from benchmarks.apps import QUEUE
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database
from benchmarks.suite.claim import AT_ONCE, Claimer

ROTATE_S, KEEP_S, RETENTION_S = 10.0, 2.0, 60.0
BACKLOG_S = 2.0
"""The producer waits when so much is unclaimed: a backlog over many slots is another question."""
SETTLE_S = 90.0
"""Claims look into every slot sealed within the last minute: until then there are more of them each time."""
START_S = 10.0
BATCHES_PER_S, SAMPLE_S = 50, 0.25


@dataclass
class Sample:
    """One claim of 20: when, and what it cost."""

    at_s: float
    buffers: int
    milliseconds: float


@dataclass
class Run:
    """Producer, consumer and housekeeping on a connection and a thread each, for so many seconds."""

    dsn: str
    rate: float
    seconds: float
    started_s: float = field(default_factory=time.monotonic)
    produced: int = 0
    completed: int = 0
    rotations: int = 0
    samples: list[Sample] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.started_s

    def go(self) -> None:
        """Run to the end; raises what a thread raised."""
        threads = [threading.Thread(target=self._guard, args=(each,)) for each in (self._produce, self._keep)]
        for thread in threads:
            thread.start()
        self._guard(self._consume)
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _guard(self, work: Callable[[Store], None]) -> None:
        store = connect(self.dsn)
        try:
            work(store)
        except BaseException as problem:  # noqa: BLE001 (told to the one who waits)
            self.failures.append(problem)
            self.seconds = 0.0
        finally:
            store.close()

    def _produce(self, store: Store) -> None:
        while self.age_s < self.seconds:
            due = int(self.age_s * self.rate) - self.produced
            room = int(self.rate * BACKLOG_S) - (self.produced - self.completed)
            if (due := min(due, room)) > 0:
                batch = min(due, int(self.rate / BATCHES_PER_S * 10) or 1)
                jobs = [{"kind": "noop", "args": {"i": i}, "queue": QUEUE} for i in range(batch)]
                store.run(do.enqueue_many(json.dumps(jobs)))
                self.produced += batch
            time.sleep(1 / BATCHES_PER_S)

    def _consume(self, store: Store) -> None:
        runtime, sampler = str(uuid.uuid4()), Claimer(store.conn)
        at_once = max(AT_ONCE, int(self.rate / BATCHES_PER_S))
        sample_due_s = 1.0
        while self.age_s < self.seconds:
            if self.age_s >= sample_due_s and self.produced - self.completed >= 4 * AT_ONCE:
                sample_due_s = self.age_s + SAMPLE_S
                self._sample(store, sampler, runtime)
            elif not self._work(store, runtime, at_once):
                time.sleep(1 / BATCHES_PER_S)

    def _work(self, store: Store, runtime: str, most: int) -> int:
        """Claim up to so many and complete them; returns how many there were."""
        claimed = store.claim([QUEUE], [most], most, 64 << 20, 63, runtime, 1, False)
        return self._complete(store, claimed.receipts)

    def _complete(self, store: Store, receipts: list[do.ClaimedReceipt]) -> int:
        store.complete(
            [r.slot for r in receipts], [r.receipt_id for r in receipts], [r.nonce for r in receipts],
            [(1 << len(r.job_ids)) - 1 for r in receipts],
        )  # fmt: skip
        jobs = sum(len(r.job_ids) for r in receipts)
        self.completed += jobs
        return jobs

    def _sample(self, store: Store, sampler: Claimer, runtime: str) -> None:
        """Claim 20 under EXPLAIN, which hides what it claimed, and complete them all the same; then 20 against the clock."""
        at_s, buffers = self.age_s, sampler.claim_buffers()
        opened = store.open_attempts(sampler.runtime)
        store.complete(
            [o.slot for o in opened], [o.receipt_id for o in opened], [o.nonce for o in opened],
            [o.open_mask for o in opened],
        )  # fmt: skip
        hidden = sum(o.open_mask.bit_count() for o in opened)
        self.completed += hidden
        before_s = time.perf_counter()
        claimed = store.claim([QUEUE], [AT_ONCE], AT_ONCE, 64 << 20, 63, runtime, 1, False)
        took_s = time.perf_counter() - before_s
        jobs = self._complete(store, claimed.receipts)
        if hidden == jobs == AT_ONCE:  # fewer where a window of the cursor ends
            self.samples.append(Sample(at_s, buffers, took_s * 1e3))

    def _keep(self, store: Store) -> None:
        while self.age_s < self.seconds:
            self.rotations += "opened" in str(store.rotate(ROTATE_S, 1 << 40))
            store.exhaust_slots()
            store.sweep()
            store.move_open_attempts(1000)
            store.prune(RETENTION_S, 1 << 40)
            store.trim_cursors()
            time.sleep(KEEP_S)


def one_case(dsn: str, pin: str, plan: Plan) -> Iterator[Row]:
    """Hold the snapshot and run; gives the figures of the first and the last tenth, and how they compare."""
    ours.migrate(dsn)
    span_s = plan.minutes * 60
    run = Run(dsn, plan.rate, SETTLE_S + span_s)
    with psycopg.connect(dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from awa_pool.meta")
        if pin == "a writer":
            holder.execute("select pg_current_xact_id()")
        run.started_s = time.monotonic()
        run.go()
        holder.rollback()
    end_s = SETTLE_S + span_s
    parts = {
        "start": (0.0, START_S),
        "first tenth": (SETTLE_S, SETTLE_S + span_s / 10),
        "last tenth": (end_s - span_s / 10, end_s),
    }
    figures = {}
    for place, (from_s, to_s) in parts.items():
        samples = [s for s in run.samples if from_s <= s.at_s < to_s]
        buffers = median(s.buffers for s in samples)
        figures[place] = buffers
        yield Row("buffers_per_claim", buffers, "buffers", f"{place}, {pin}")
        yield Row("ms_per_claim", median(s.milliseconds for s in samples), "ms", f"{place}, {pin}")
    yield Row("growth", figures["last tenth"] / figures["first tenth"], "last / first", pin)
    yield Row("jobs_per_s", run.completed / run.seconds, "jobs/s", pin)
    yield Row("backlog", run.produced - run.completed, "jobs", pin)
    yield Row("rotations", run.rotations, "slots", pin)


def run(plan: Plan) -> Iterator[Row]:
    """Run with a reader's snapshot, then with that of a transaction that has written, each on a fresh database."""
    for pin in ("a reader", "a writer"):
        with database(plan.server) as dsn:
            plan.note(f"{plan.minutes:g} min at {plan.rate:g} jobs/s under {pin}'s snapshot")
            yield from one_case(dsn, pin, plan)


BENCHMARK = Benchmark(
    name="pinned",
    method=(
        "claims of 20 while a repeatable-read snapshot is held for `--minutes` (5), jobs come at `--rate` (5,000) a "
        "second and are claimed and completed at once, and the ring is sealed every 10 s and kept as maintenance "
        "keeps it, history for a minute. Once under a reader's snapshot, once under a transaction that holds an xid, "
        "which no slot sealed after it outlives, so that the ring fills. Medians over the first and the last tenth of that "
        "time, which begins 90 s after the start (whose figures are given too), when as many young slots are sealed as ever "
        "will be; buffers by EXPLAIN (ANALYZE, BUFFERS), milliseconds on the client"
    ),
    run=run,
)
