"""A model of jobs against the SQL functions: any order of enqueues (committed late or not at all), claims,
completions, returns and turns of the ring keeps every job in exactly one place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from ring_rig import Receipt, Session, call, claim_rows, complete, enqueue, session, value

QUEUES = st.sampled_from(["a", "b"])
PRIORITIES = st.integers(1, 4)
EMPTY = tuple(  # a delete of these few rows is far cheaper than truncating a hundred partitions
    f"delete from awa_pool.{table}"
    for table in (
        "jobs_ready",
        "receipts",
        "completions",
        "tombstones",
        "cursors",
        "cursor_windows",
        "drained_lanes",
    )
    + ("jobs_returned", "leases", "jobs_finished", "jobs_dead")
)
FIRST_SLOT = (
    "update awa_pool.slots set state = case slot when 0 then 'current' else 'free' end, opened_at = now(), "
    "generation = case slot when 0 then 1 else 0 end, sealed_at = null, sealed_xid = null, open_from = 0"
)


class Ring(RuleBasedStateMachine):
    """Two producers whose transactions stay open as they like, and one session that does the rest."""

    conn: Session
    producers: list[Session]

    def __init__(self) -> None:
        super().__init__()
        self.available: set[int] = set()
        self.running: dict[int, tuple[Receipt, int]] = {}  # job -> receipt and index
        self.done: set[int] = set()
        self.buried: set[int] = set()
        self.pending: list[set[int]] = [set() for _ in self.producers]
        self.late: set[int] = set()
        """Committed since the last sweep by a transaction that was open for a while: where the lane of a slot sealed
        long ago was found drained, only the next sweep finds them."""

    @initialize()
    def start_afresh(self) -> None:
        for producer in self.producers:
            producer.rollback()
        for statement in EMPTY:
            self.conn.execute(statement)
        self.conn.execute(FIRST_SLOT)
        self.conn.execute("select setval('awa_pool.current_slot', 0)")

    @rule(count=st.integers(1, 5), queue=QUEUES, priority=PRIORITIES)
    def enqueue(self, count: int, queue: str, priority: int) -> None:
        self.available |= set(enqueue(self.conn, count, queue, priority))

    @rule(who=st.integers(0, 1), count=st.integers(1, 3), queue=QUEUES, priority=PRIORITIES)
    def write_and_stay_open(self, who: int, count: int, queue: str, priority: int) -> None:
        self.pending[who] |= set(enqueue(self.producers[who], count, queue, priority))

    @rule(who=st.integers(0, 1), commits=st.booleans())
    def end_the_transaction(self, who: int, commits: bool) -> None:
        if commits:
            self.producers[who].commit()
            self.available |= self.pending[who]
            self.late |= self.pending[who]
        else:
            self.producers[who].rollback()
        self.pending[who] = set()

    @rule(queues=st.permutations(["a", "b"]), total=st.integers(1, 12), chunk=st.integers(1, 4))
    def claim(self, queues: list[str], total: int, chunk: int) -> None:
        taken = self._claim_all(queues, total, chunk)
        assert len(taken) >= min(total, len((self.available | taken) - self.late))

    def _claim_all(self, queues: list[str], total: int, chunk: int) -> set[int]:
        """Claim until there is enough or nothing comes: one claim takes no more than the window of its lane shows."""
        taken: set[int] = set()
        while len(taken) < total and (receipts := self._claim(queues, total - len(taken), chunk)):
            jobs = [job for r in receipts for job in r.job_ids]
            assert len(jobs) == len(set(jobs)) <= total - len(taken)
            assert self.available.issuperset(jobs)
            self.available.difference_update(jobs)
            taken.update(jobs)
            for r in receipts:
                self.running |= {job: (r, i) for i, job in enumerate(r.job_ids)}
        return taken

    def _claim(self, queues: list[str], total: int, chunk: int) -> list[Receipt]:
        rows = claim_rows(self.conn, queues, total, chunk)
        return [Receipt(r[0], *r[2:]) for r in rows if r[1] == "receipt"]

    @rule(queue=QUEUES)
    def claim_and_roll_back(self, queue: str) -> None:
        with self.conn.transaction(force_rollback=True):
            self._claim([queue], 5, 2)

    @rule(data=st.data())
    def complete_some(self, data: st.DataObject) -> None:
        for receipt in {r.receipt_id: r for r, _ in self.running.values()}.values():
            mask = data.draw(st.integers(0, receipt.full))
            open_bits = sum(1 << i for r, i in self.running.values() if r.receipt_id == receipt.receipt_id)
            (answer,) = complete(self.conn, (receipt, mask)).values()
            assert answer == (mask & open_bits, mask & ~open_bits, 0)
            for i, job in enumerate(receipt.job_ids):
                if mask & open_bits & (1 << i):
                    del self.running[job]
                    self.done.add(job)

    @rule(data=st.data())
    def give_some_back(self, data: st.DataObject) -> None:
        if not self.running:
            return
        jobs = data.draw(st.lists(st.sampled_from(sorted(self.running)), unique=True, min_size=1, max_size=4))
        items = [_ended(*self.running[job], job, "return") for job in jobs]
        answers = self.conn.execute(
            "select status from awa_pool.finish(%s::json)", (json.dumps(items),)
        ).fetchall()
        assert {row[0] for row in answers} == {"done"}
        for job in jobs:
            del self.running[job]
            self.available.add(job)

    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        if not self.available:
            return
        job = data.draw(st.sampled_from(sorted(self.available)))
        if call(self.conn, "tombstone_job(%s)", job) == "done":
            self.available.remove(job)
            self.buried.add(job)

    @rule()
    def rotate(self) -> None:
        call(self.conn, "rotate(0, null)")

    @rule()
    def keep_house(self) -> None:
        call(self.conn, "exhaust_slots()")
        found = call(self.conn, "sweep()")
        assert found == "nothing" or (self.late and "drained lanes have late jobs" in found)
        self.late.clear()
        call(self.conn, "trim_cursors()")

    @rule()
    def prune(self) -> None:
        call(self.conn, "prune(0, 0)")

    @rule()
    def move(self) -> None:
        call(self.conn, "move_open_attempts(100, 0)")

    @rule()
    def age_the_slots(self) -> None:
        self.conn.execute("update awa_pool.slots set sealed_at = sealed_at - interval '2 min'")

    @invariant()
    def open_attempts_are_the_running_ones(self) -> None:
        in_ring = value(
            self.conn,
            "select coalesce(sum(length(replace((~closed & (9223372036854775807 >> (63 - n)))::bit(64)::text, "
            "'0', ''))), 0) from awa_pool.receipts",
        )
        moved = value(self.conn, "select count(*) from awa_pool.leases")
        assert in_ring + moved == len(self.running)

    def teardown(self) -> None:
        for who in range(len(self.producers)):
            self.end_the_transaction(who, commits=True)
        self.keep_house()
        left = set(self.available)
        assert self._claim_all(["a", "b"], 100_000, 63) == left


def _ended(receipt: Receipt, index: int, job: int, outcome: str) -> dict[str, Any]:
    return {
        "slot": receipt.slot,
        "receipt_id": receipt.receipt_id,
        "nonce": receipt.nonce,
        "index": index,
        "job_id": job,
        "run_lease": json.loads(receipt.bodies[index])[4],
        "outcome": outcome,
    }


def test_every_job_is_in_exactly_one_place_whatever_happens_in_whatever_order(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as p1, session(dsn, autocommit=False) as p2:
        Bound = type("Ring", (Ring,), {"conn": conn, "producers": [p1, p2]})
        run_state_machine_as_test(
            Bound,
            settings=settings(
                max_examples=60,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                derandomize=True,
            ),
        )
