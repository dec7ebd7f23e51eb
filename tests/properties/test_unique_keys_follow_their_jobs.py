"""A model of unique keys against the SQL functions: whatever happens to jobs in whatever order, a key stands exactly while the
state of its job is in the job's mask."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

import psycopg
from general_rig import Attempt, Queue
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

BIT = {
    "scheduled": 0, "available": 1, "running": 2, "completed": 3, "retryable": 4, "failed": 5, "cancelled": 6,
}  # fmt: skip
KEYS = [bytes([n]) * 16 for n in range(3)]
MASKS = st.one_of(
    st.sampled_from([0b11111, 0b10111, 0b10010, 0b11011, 0b00001, 0b11101010, 0b111]),
    st.integers(1, 255).filter(lambda mask: mask & 6 != 4),
)
JOBS = st.tuples(st.sampled_from(KEYS), MASKS, st.sampled_from([False, False, True]), st.booleans())
OUTCOMES = st.sampled_from(["completed", "retry", "snooze", "fail", "cancel", "return", "lost"])
TABLES = (
    "jobs_ready", "receipts", "completions", "tombstones", "cursors", "cursor_windows", "drained_lanes", "jobs_returned",
    "jobs_deferred", "jobs_finished", "jobs_dead", "leases", "unique_claims", "runtimes",
)  # fmt: skip
FIRST_SLOT = (
    "update awa_pool.slots set state = case slot when 0 then 'current' else 'free' end, opened_at = now(), "
    "generation = case slot when 0 then 1 else 0 end, sealed_at = null, sealed_xid = null, open_from = 0, "
    "keys_to = -9223372036854775808"
)
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Told:
    """What the model knows of a job."""

    key: bytes
    mask: int
    state: str
    attempt: Attempt | None = None
    max_attempts: int = 25
    attempts: int = 0

    def wants(self, state: str) -> bool:
        return bool(self.mask >> BIT[state] & 1)


class Keys(RuleBasedStateMachine):
    """One session that does everything, and a dictionary that says who should hold what."""

    q: Queue

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Told] = {}
        self.held: dict[bytes, int] = {}

    @initialize()
    def start_afresh(self) -> None:
        for table in TABLES:
            self.q.rows(f"delete from awa_pool.{table}")
        self.q.rows(FIRST_SLOT)
        self.q.one("select setval('awa_pool.current_slot', 0)")
        for sequence in ("job_id_seq", "receipt_id_seq"):  # the same choices lead to the same ids
            self.q.one(f"select setval('awa_pool.{sequence}', 1, false)")
        self._new_runtime()

    def _new_runtime(self) -> None:
        self.q.runtime = uuid.uuid4()
        self.q.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", self.q.runtime)

    def _enter(self, job_id: int, state: str) -> int | None:
        """Let a job go into a state; returns who holds its key where it cannot."""
        told = self.jobs[job_id]
        holder = self.held.get(told.key)
        if not told.wants(state):
            if holder == job_id:
                del self.held[told.key]
        elif holder in (None, job_id):
            self.held[told.key] = job_id
        elif state not in ENDED:
            return holder
        told.state = state
        return None

    def _enter_or_lose(self, job_id: int, state: str) -> None:
        if self._enter(job_id, state) is not None:
            assert self._enter(job_id, "cancelled") is None

    # --- what can be done -----------------------------------------------------------------------------------

    @rule(
        jobs=st.lists(JOBS, min_size=1, max_size=4),
        skip=st.booleans(),
        bulk=st.booleans(),
        start=st.booleans(),
    )
    def put_in(self, jobs: list[tuple[bytes, int, bool, bool]], skip: bool, bulk: bool, start: bool) -> None:
        for key, mask, later, last in jobs:
            self._put(key, mask, later, skip, last, bulk)
        if start:
            self.claim(3)

    def _put(self, key: bytes, mask: int, later: bool, skip: bool, last: bool, bulk: bool) -> None:
        told = Told(key, mask, "scheduled" if later else "available", max_attempts=1 if last else 25)
        holder = self.held.get(key) if told.wants(told.state) else None
        policy = "skip" if skip else "raise"
        try:
            if bulk:
                item = {"kind": "k", "args": {}, "queue": self.q.name, "unique_key": key.hex(), "unique_states": mask,
                        "max_attempts": told.max_attempts, "run_at": "2099-01-01T00:00Z" if later else None}  # fmt: skip
                (job_id,) = self.q.one(
                    "select awa_pool.enqueue_many(%s::json, p_on_conflict => %s)", json.dumps([item]), policy
                )
            else:
                job_id = self.q.one(
                    "select awa_pool.enqueue('k', '{}', %s, p_max_attempts => %s, p_run_at => %s::timestamptz,"
                    " p_unique_key => %s, p_unique_states => %s, p_on_conflict => %s)",
                    self.q.name, told.max_attempts, "2099-01-01Z" if later else None, key, mask, policy,
                )  # fmt: skip
        except psycopg.Error as problem:
            assert problem.sqlstate == "AW007" and holder is not None and not skip
            assert problem.diag.message_detail == str(holder)
            return
        if holder is not None:
            assert skip and job_id == holder
            return
        assert job_id not in self.jobs
        self.jobs[job_id] = told
        self._enter(job_id, told.state)

    @precondition(lambda self: self._any("available"))
    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        for attempt in self.q.claim(limit):
            assert self.jobs[attempt.job_id].state == "available"
            assert self._enter(attempt.job_id, "running") is None
            self.jobs[attempt.job_id].attempt = attempt

    @precondition(lambda self: self._any("running"))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        chosen = self._some(data, "running", 4)
        attempts = [self.jobs[job_id].attempt for job_id in chosen]
        rows = self.q.rows(
            "select receipt_id, bit_or(done), bit_or(busy) from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[],"
            " %s::bigint[]) group by receipt_id",
            [a.slot for a in attempts], [a.receipt_id for a in attempts], [a.nonce for a in attempts],
            [1 << a.index for a in attempts],
        )  # fmt: skip
        done = {receipt: mask for receipt, mask, busy in rows if not busy}
        assert all(done[a.receipt_id] >> a.index & 1 for a in attempts)
        # Keys are taken before any is given up, in the order of keys; those that complete together are in that order too.
        takers = sorted(chosen, key=lambda job_id: not self.jobs[job_id].wants("completed"))
        if len({self.jobs[job_id].key for job_id in chosen}) == len(chosen):
            for job_id in takers:
                self._enter(job_id, "completed")
        else:
            for job_id in chosen:
                self.jobs[job_id].state = "completed"
            self._believe(chosen)

    def _believe(self, chosen: list[int]) -> None:
        """Several jobs of one key ended in one call: one that wants it has it, if any does and it is free."""
        rows = dict(self.q.rows("select unique_key, job_id from awa_pool.unique_claims"))
        for key in {self.jobs[job_id].key for job_id in chosen}:
            before, after = self.held.get(key), rows.get(key)
            wanting = {j for j in chosen if self.jobs[j].key == key and self.jobs[j].wants("completed")}
            if before is not None and before not in chosen:
                assert after == before
            else:
                assert after is None or after in wanting
                assert before not in wanting or after == before
            self.held.pop(key, None)
            if after is not None:
                self.held[key] = after

    @precondition(lambda self: self._any("running"))
    @rule(data=st.data(), outcome=OUTCOMES)
    def finish(self, data: st.DataObject, outcome: str) -> None:
        for job_id in self._some(data, "running", 1):
            told = self.jobs[job_id]
            more = {"delay_s": 3600.0} if outcome in ("snooze", "retry") else {}
            ((status, state),) = self.q.finish(told.attempt.ended(outcome, **more))
            assert status == "done"
            last = outcome in ("retry", "lost") and told.attempt.attempt >= told.max_attempts
            wanted = "failed" if last else {
                "completed": "completed", "retry": "retryable", "lost": "retryable", "snooze": "scheduled",
                "fail": "failed", "cancel": "cancelled", "return": "available",
            }[outcome]  # fmt: skip
            holder = self._enter(job_id, wanted)
            if holder is not None:
                self._enter(job_id, "cancelled")
                assert self._job(job_id, "reason") == f"duplicate of job {holder}"
            assert state == told.state

    @precondition(lambda self: self._any("scheduled", "retryable"))
    @rule()
    def promote(self) -> None:
        self.q.make_due()
        due = sorted(j for j, told in self.jobs.items() if told.state in ("scheduled", "retryable"))
        self.q.promote()
        # All in one call: keys are taken before any is given up, in the order of keys, then of places.
        rows = dict(self.q.rows("select unique_key, job_id from awa_pool.unique_claims"))
        for job_id in due:
            told = self.jobs[job_id]
            now = self._state(job_id)
            holder = rows.get(told.key)
            if told.wants("available") and holder != job_id:
                assert holder is not None or self.held.get(told.key) not in (None, job_id)
                assert now == "cancelled"
                assert str(self._job(job_id, "reason")).startswith("duplicate of job ")
            else:
                assert now == "available"
        for job_id in due:
            told = self.jobs[job_id]
            told.state = str(self._state(job_id))
            if self.held.get(told.key) == job_id and not told.wants(told.state):
                del self.held[told.key]
        for job_id in due:
            told = self.jobs[job_id]
            if told.state == "available" and told.wants("available"):
                assert self.held.get(told.key) in (None, job_id)
                self.held[told.key] = job_id
        for job_id in due:  # an end in the mask takes what is free, in no order that anyone may rely on
            told = self.jobs[job_id]
            if told.state == "cancelled" and told.wants("cancelled") and rows.get(told.key) == job_id:
                assert self.held.get(told.key) in (None, job_id)
                self.held[told.key] = job_id

    @precondition(lambda self: self._any("available", "running", "retryable", "scheduled"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = sorted(j for j, told in self.jobs.items() if told.state not in ENDED)
        if live:
            job_id = data.draw(st.sampled_from(live))
            assert self.q.one("select awa_pool.cancel(%s)", job_id) == "cancelled"
            self._enter(job_id, "cancelled")

    @precondition(lambda self: self._any("failed", "cancelled", "scheduled", "retryable"))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        at_rest = sorted(
            j
            for j, told in self.jobs.items()
            if told.state in ("failed", "cancelled", "scheduled", "retryable")
        )
        if not at_rest:
            return
        job_id = data.draw(st.sampled_from(at_rest))
        before = self.jobs[job_id].state
        holder = self._enter(job_id, "available")
        try:
            assert self.q.one("select awa_pool.retry(%s)", job_id) == "available"
            assert holder is None
        except psycopg.Error as problem:
            assert (problem.sqlstate, problem.diag.message_detail) == ("AW007", str(holder))
            assert self.jobs[job_id].state == before == self._state(job_id)

    @precondition(lambda self: self._any("running"))
    @rule()
    def rescue(self) -> None:
        self.q.rows("select awa_pool.say_goodbye(%s)", self.q.runtime)
        while sum(row[1] for row in self.q.rows("select * from awa_pool.rescue_stale(3600, 1)")):
            pass
        rows = dict(self.q.rows("select unique_key, job_id from awa_pool.unique_claims"))
        running = [j for j, told in self.jobs.items() if told.state == "running"]
        for job_id in sorted(running, key=lambda j: self.jobs[j].attempt.receipt_id):
            told = self.jobs[job_id]
            told.state = str(self._state(job_id))
            assert told.state in ("retryable", "failed", "cancelled")
            if told.state == "cancelled":
                assert told.wants("retryable") and rows.get(told.key) != job_id or told.wants("cancelled")
        for job_id in running:
            told = self.jobs[job_id]
            if self.held.get(told.key) == job_id and not told.wants(told.state):
                del self.held[told.key]
        for job_id in running:
            told = self.jobs[job_id]
            if rows.get(told.key) == job_id:
                assert told.wants(told.state) and self.held.get(told.key) in (None, job_id)
                self.held[told.key] = job_id
            elif told.state == "retryable":
                assert not told.wants("retryable")
        self._new_runtime()

    @precondition(lambda self: self._any("running"))
    @rule(data=st.data())
    def move_out_of_the_ring(self, data: st.DataObject) -> None:
        for job_id in self._some(data, "running", 1):
            if not self.q.one("select exists (select from awa_pool.leases where job_id = %s)", job_id):
                self.q.move(self.jobs[job_id].attempt)

    @rule(data=st.data())
    def move_to_the_dead_letters(self, data: st.DataObject) -> None:
        for state in ("available", "retryable", "scheduled", "cancelled"):
            for job_id in self._some(data, state, 1):
                self.q.one("select awa_pool.move_to_dead(%s)", job_id)
                self._enter(job_id, "failed")

    @precondition(lambda self: self._any("failed"))
    @rule(data=st.data())
    def retry_the_dead(self, data: st.DataObject) -> None:
        for job_id in self._some(data, "failed", 1):
            if not self._job(job_id, "dead"):
                continue
            holder = self._enter(job_id, "available")
            ((status, detail),) = self.q.rows(
                "select status, detail from awa_pool.retry_dead(array[%s::bigint], null, null, null, null, null, null,"
                " null, null, 10, null, null, null)", job_id,
            )  # fmt: skip
            assert status == ("done" if holder is None else "refused")
            assert holder is None or f"job {holder} holds" in detail

    @precondition(lambda self: self._any("failed"))
    @rule(data=st.data())
    def purge_the_dead(self, data: st.DataObject) -> None:
        for job_id in self._some(data, "failed", 1):
            if self._job(job_id, "dead"):
                self.q.one("select awa_pool.drop_dead(array[%s::bigint])", job_id)
                self._forget(job_id)

    @precondition(lambda self: self._any("completed", "failed", "cancelled"))
    @rule()
    def empty_the_history(self) -> None:
        self.q.rows("select awa_pool.rotate(0, null)")
        # By hand: exhaust_slots waits for every transaction of the server, and then the same choices would not do the same.
        self.q.rows(
            "update awa_pool.slots set state = 'exhausted', exhausted_at = now()"
            " where state = 'sealed' and awa_pool.slot_is_done(slot) is null"
        )
        self.q.rows("select awa_pool.prune(0, 0)")
        for job_id in list(self.jobs):
            if self._state(job_id) is None:
                assert self.jobs[job_id].state in ENDED
                self._forget(job_id)

    def _forget(self, job_id: int) -> None:
        told = self.jobs.pop(job_id)
        if self.held.get(told.key) == job_id:
            del self.held[told.key]

    def _state(self, job_id: int) -> str | None:
        rows = self.q.rows("select state from awa_pool.job(%s)", job_id)
        return rows[0][0] if rows else None

    def _job(self, job_id: int, column: str) -> object:
        return self.q.one(f"select {column} from awa_pool.job(%s)", job_id)

    def _any(self, *states: str) -> bool:
        return any(told.state in states for told in self.jobs.values())

    def _some(self, data: st.DataObject, state: str, count: int) -> list[int]:
        found = sorted(j for j, told in self.jobs.items() if told.state == state)
        if not found:
            return []
        return data.draw(st.lists(st.sampled_from(found), unique=True, min_size=1, max_size=count))

    # --- what holds -----------------------------------------------------------------------------------------

    @invariant()
    def keys_stand_for_their_jobs(self) -> None:
        rows = dict(self.q.rows("select unique_key, job_id from awa_pool.unique_claims"))
        assert rows == self.held
        for job_id, told in self.jobs.items():
            if told.state not in ENDED and told.wants(told.state):
                assert rows.get(told.key) == job_id, "a job that goes on holds its key"

    def teardown(self) -> None:
        for job_id, told in self.jobs.items():
            assert self._state(job_id) == told.state


def test_a_unique_key_stands_exactly_while_its_jobs_state_is_in_its_mask(dsn: str) -> None:
    with Queue(dsn, "keys") as q:
        run_state_machine_as_test(
            type("Keys", (Keys,), {"q": q}),
            settings=settings(
                max_examples=60,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
                derandomize=True,
            ),
        )
