"""Everybody who ends attempts, at once on the same jobs: no deadlock, nothing lost, nothing ended twice."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from awa_pool import Client, InsertRequest
from awa_pool.errors import AwaError, JobNotFound, StoreConflict, TransitionRefused
from awa_pool.store.connection import connect
from awa_pool.store.store import Store

JOBS = 6_000
BUSY = "55P03"
DEADLINE_S = 60.0
OPEN = "select count(*) from awa_pool.jobs where state not in ('completed', 'failed', 'cancelled')"
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
ENDS = """
select r.job_ids[i.idx + 1] as job_id, count(*)
from awa_pool.completions as c
join awa_pool.receipts as r using (slot, receipt_id)
cross join lateral generate_series(0, r.n - 1) as i(idx)
where c.mask >> i.idx & 1 = 1
group by 1
"""


@pytest.mark.timeout(150)
def test_completions_outcomes_rescue_cancels_and_clean_up_never_wait_in_a_ring(dsn: str) -> None:
    """B092"""
    runtime = uuid.uuid4()
    with Client(dsn) as client, contextlib.closing(connect(dsn)) as store:
        ids = client.insert_many([InsertRequest(args={}, kind="k", max_attempts=1) for _ in range(JOBS)])
        store.register_runtime(runtime, "host", 1, "{}")
        receipts = store.claim(["default"], [JOBS], JOBS, 1 << 30, 20, runtime, 1, False).receipts
    assert sum(len(receipt.job_ids) for receipt in receipts) == JOBS

    def complete(store: Store, rng: random.Random) -> None:
        some = rng.sample(receipts, 12)
        masks = [rng.getrandbits(20) & (1 << len(receipt.job_ids)) - 1 for receipt in some]
        store.complete(
            [receipt.slot for receipt in some],
            [receipt.receipt_id for receipt in some],
            [receipt.nonce for receipt in some],
            masks,
        )

    def finish(store: Store, rng: random.Random) -> None:
        items = []
        for receipt in rng.sample(receipts, 12):
            index = rng.randrange(len(receipt.job_ids))
            lease = int(json.loads(receipt.bodies[index])[4])
            items.append(
                {
                    "slot": receipt.slot, "receipt_id": receipt.receipt_id, "nonce": receipt.nonce, "index": index,
                    "job_id": receipt.job_ids[index], "run_lease": lease, "outcome": rng.choice(["fail", "cancel"]),
                    "error": {"error": "no", "type": "E"},
                }
            )  # fmt: skip
        store.finish(json.dumps(items))

    def cancel(store: Store, rng: random.Random) -> None:
        with contextlib.suppress(JobNotFound, TransitionRefused):
            client.cancel(rng.choice(ids))

    def rescue(store: Store, rng: random.Random) -> None:
        store.rescue_stale(0.0, 3)

    def clean_up(store: Store, rng: random.Random) -> None:
        store.rotate(0.0, 1)
        store.exhaust_slots()
        store.sweep()
        store.move_open_attempts(10)
        store.trim_cursors()

    problems: Counter[str] = Counter()
    over = threading.Event()

    def repeat(work: Callable[[Store, random.Random], None], seed: int) -> None:
        rng = random.Random(seed)
        with contextlib.closing(connect(dsn)) as store:
            while not over.is_set():
                try:
                    work(store, rng)
                except AwaError as problem:
                    if not (isinstance(problem, StoreConflict) and problem.sqlstate == BUSY):
                        problems[f"{work.__name__}: {type(problem).__name__}: {problem}"] += 1

    works = [complete, complete, finish, finish, cancel, rescue, clean_up]
    client = Client(dsn)
    threads = [threading.Thread(target=repeat, args=(work, seed)) for seed, work in enumerate(works)]
    with client, psycopg.connect(dsn, autocommit=True) as conn:
        for thread in threads:
            thread.start()
        until_s = time.monotonic() + DEADLINE_S
        while conn.execute(OPEN).fetchone() != (0,) and time.monotonic() < until_s:
            over.wait(0.1)
        over.set()
        for thread in threads:
            thread.join()
        assert conn.execute(OPEN).fetchone() == (0,)
        assert not problems, problems
        assert conn.execute(DEADLOCKS).fetchone() == (0,)
        ends = Counter(dict(conn.execute(ENDS).fetchall()))
        assert set(ends) == set(ids) and set(ends.values()) == {1}
