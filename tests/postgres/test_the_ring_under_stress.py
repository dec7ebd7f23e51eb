"""Late and rolled-back producers, several claimers that roll back too, rotation and pruning, all at once."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from ring_rig import Receipt, Session, call, claim_rows, complete, session, until, value

RUN_S = 7.0
PRODUCERS = 8
CLAIMERS = 3
QUEUES = ["a", "b"]


class World:
    """What the threads have seen commit."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.producing_until = time.monotonic() + RUN_S
        self.lock = threading.Lock()
        self.committed: set[int] = set()
        self.claimed: Counter[int] = Counter()
        self.completed: Counter[int] = Counter()
        self.pruned = 0
        self.quiet = (
            threading.Event()
        )  # claimers may end: all that was committed is claimed, or late beyond hope
        self.drained = threading.Event()

    def run(self) -> None:
        with ThreadPoolExecutor(PRODUCERS + CLAIMERS + 1) as threads:
            producers = [threads.submit(self.produce, seed) for seed in range(PRODUCERS)]
            claimers = [threads.submit(self.work, seed) for seed in range(CLAIMERS)]
            keeper = threads.submit(self.keep_ring)
            try:
                for producer in producers:
                    producer.result(60)
                # Of a transaction that outlived two rotations claims say 'empty' until a sweep has found its jobs.
                with contextlib.suppress(AssertionError):  # the test names those that are missing
                    until(self.all_claimed, "everything committed is claimed")
                self.quiet.set()
                for claimer in claimers:
                    claimer.result(60)
            finally:
                self.quiet.set()
                self.drained.set()
            keeper.result(60)

    def all_claimed(self) -> bool:
        with self.lock:
            return self.committed <= self.claimed.keys()

    def produce(self, seed: int) -> None:
        chance = random.Random(seed)
        with session(self.dsn, autocommit=False) as conn:
            while time.monotonic() < self.producing_until:
                mine = set()
                for _ in range(chance.choice([1, 1, 2, 10])):
                    mine.add(
                        call(conn, "enqueue('k', '{}', %s, %s)", chance.choice(QUEUES), chance.choice([1, 2]))
                    )
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.02)
                if chance.random() < 0.03:
                    time.sleep(chance.random() * 3)
                if chance.random() < 0.15:
                    conn.rollback()
                    continue
                conn.commit()
                with self.lock:
                    self.committed |= mine

    def work(self, seed: int) -> None:
        chance = random.Random(100 + seed)
        runtime = uuid.uuid4()
        held: list[Receipt] = []
        with session(self.dsn, autocommit=False) as conn:
            while True:
                last_round = self.quiet.is_set()
                rows = claim_rows(conn, QUEUES, total=chance.choice([1, 3, 50, 500]), runtime=runtime)
                got = [Receipt(r[0], *r[2:]) for r in rows if r[1] == "receipt"]
                if got and chance.random() < 0.1:
                    conn.rollback()
                    continue
                if got:
                    time.sleep(chance.random() * 0.005)
                conn.commit()
                with self.lock:
                    self.claimed.update(job for r in got for job in r.job_ids)
                held += got
                self._finish_some(conn, chance, held, everything=last_round)
                if last_round and not got and not held and all(r[1] == "empty" for r in rows):
                    return
                if not got:
                    time.sleep(0.002)

    def _finish_some(
        self, conn: Session, chance: random.Random, held: list[Receipt], everything: bool
    ) -> None:
        chance.shuffle(held)
        some = [held.pop() for _ in range(len(held) if everything else len(held) // 2)]
        if not some:
            return
        done = complete(conn, *((r, r.full) for r in some), *((r, r.full) for r in some[:2]))
        if chance.random() < 0.1:
            conn.rollback()
            held += some
            return
        conn.commit()
        with self.lock:
            for r in some:
                bits, _, busy = done[r.receipt_id]
                self.completed.update(job for i, job in enumerate(r.job_ids) if bits >> i & 1)
                if busy:
                    held.append(r)

    def keep_ring(self) -> None:
        with session(self.dsn) as conn:
            while not self.drained.is_set():
                time.sleep(0.15)
                call(conn, "rotate(0, null)")
                call(conn, "exhaust_slots()")
                call(conn, "sweep()")
                call(conn, "move_open_attempts(200, 1)")
                self.pruned += call(conn, "prune(0.3, 0)").count("emptied")
                call(conn, "trim_cursors()")


def test_nothing_is_missing_phantom_or_double(dsn: str) -> None:
    world = World(dsn)
    world.run()
    assert len(world.committed) > 200
    assert world.pruned > 0
    claimed, completed = set(world.claimed), set(world.completed)
    assert (world.committed - claimed, claimed - world.committed) == (set(), set())
    assert [job for job, times in world.claimed.items() if times > 1] == []
    assert (completed ^ world.committed, [j for j, n in world.completed.items() if n > 1]) == (set(), [])
    with session(dsn) as conn:
        call(conn, "rotate(0, null)")
        until(lambda: everything_free(conn), "every slot but the current one is free again")
        assert value(conn, "select count(*) from awa_pool.jobs_ready") == 0
        assert value(conn, "select count(*) from awa_pool.leases") == 0
        assert value(conn, "select count(*) from awa_pool.jobs_returned") == 0


def everything_free(conn: Session) -> bool:
    call(conn, "exhaust_slots()")
    call(conn, "prune(0, 0)")
    return bool(value(conn, "select count(*) = 23 from awa_pool.slots where state = 'free'"))
