"""Hours and days of the ring in a small: what keeps a slot is pruned in the end, moved away, or named."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from ring_rig import (
    Session,
    call,
    claim,
    enqueue,
    exhaust,
    finish_all,
    ids,
    note,
    session,
    state,
    until,
    value,
)

from awa_pool.cli.entry import main


def told(conn: Session) -> dict[int, tuple[str, str | None, str | None]]:
    """Slot -> (state, held_by, told)."""
    rows = conn.execute("select slot, state, held_by, told from awa_pool.ring_status()").fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def grow_old(conn: Session, interval: str = "2 hours") -> None:
    """Let the ring's sealed slots and claims be that old."""
    conn.execute(f"update awa_pool.slots set sealed_at = sealed_at - interval '{interval}'")  # type: ignore[arg-type]
    conn.execute(f"update awa_pool.receipts set claimed_at = claimed_at - interval '{interval}'")  # type: ignore[arg-type]


def turn(conn: Session) -> str:
    """One round of the housekeeping of the ring."""
    return "; ".join(
        str(call(conn, step))
        for step in (
            "rotate(0, null)", "exhaust_slots()", "sweep()", "move_open_attempts(1000, 60)", "prune(0, 0)",
            "trim_cursors()",
        )
    )  # fmt: skip


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str], dsn: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWA_POOL_DSN", dsn)

    def status(*words: str) -> str:
        assert main(["status", *words]) == 0
        return capsys.readouterr().out

    return status


def test_an_open_transaction_is_named_and_claims_go_on(dsn: str, status: Any) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        (pid,) = slow.execute("select pg_backend_pid()").fetchone() or (0,)
        slow.execute("set application_name = 'nightly report'")
        late = enqueue(slow, 1)
        enqueue(conn, 5)
        finish_all(conn, claim(conn))
        for _ in range(20):  # the ring goes on round it until no slot is free
            turn(conn)
            enqueue(conn, 3)
            finish_all(conn, claim(conn))
        held = [s for s, (_, by, _) in told(conn).items() if by == "open_transaction"]
        assert len(held) > 10
        assert "nightly report" in str(told(conn)[0][2]) and f"pid {pid}" in str(told(conn)[0][2])
        grow_old(conn)
        shown = status()
        assert f"slot 0, sealed for 2h00m: open transaction of pid {pid}" in shown
        rows = json.loads(status("--json"))["ring"]
        assert {row["held_by"] for row in rows if row["slot"] in held} == {"open_transaction"}
        slow.commit()
        call(conn, "sweep()")  # claims pass the slot by since others were sealed after it
        assert ids(claim(conn)) == late
        finish_all(conn, claim(conn))
        until(
            lambda: "open_transaction" not in {by for _, by, _ in told_after(conn).values()}, "it is let go"
        )


def told_after(conn: Session) -> dict[int, tuple[str, str | None, str | None]]:
    call(conn, "exhaust_slots()")
    return told(conn)


def test_a_prepared_transaction_is_named_too(dsn: str) -> None:
    with session(dsn) as conn:
        with session(dsn, autocommit=False) as other:
            enqueue(other, 1)
            other.execute("prepare transaction 'of a lost coordinator'")
        try:
            enqueue(conn, 1)
            call(conn, "rotate(0, null)")
            call(conn, "exhaust_slots()")
            assert told(conn)[0][:2] == ("sealed", "open_transaction")
            assert "of a lost coordinator" in str(told(conn)[0][2])
        finally:
            conn.execute("rollback prepared 'of a lost coordinator'")


def test_a_paused_queue_that_is_fed_for_days_is_named_and_moved_out_of_the_way(dsn: str, status: Any) -> None:
    with session(dsn) as conn:
        conn.execute("insert into awa_pool.queues (queue, paused_at) values ('b', now() - interval '3 days')")
        fed: list[int] = []
        for _ in range(30):  # more than there are slots
            fed += enqueue(conn, 4, queue="b")
            enqueue(conn, 2, queue="a")
            finish_all(conn, claim(conn, "a"))
            turn(conn)
        assert note(conn, "b") == "paused"
        grow_old(conn)
        assert "paused queue b, since 3d" in status()
        assert value(conn, "select count(*) from awa_pool.slots where state = 'free'") >= 4
        assert value(conn, "select count(*) from awa_pool.jobs_returned") > 0
        conn.execute("update awa_pool.queues set paused_at = null")
        got: list[int] = []
        while part := claim(conn, "b"):
            got += ids(part)
        assert (sorted(got), len(got)) == (fed, len(set(got)))


def test_a_queue_that_nobody_serves_is_named(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 1, queue="forgotten")
        enqueue(conn, 1, queue="too")
        call(conn, "rotate(0, null)")
        until(lambda: told_after(conn)[0][1] == "waiting_jobs", "it is named")
        assert told(conn)[0][2] == "jobs wait in queue forgotten and 1 more"


def test_a_job_that_runs_for_a_day_is_named_and_then_moved_so_that_its_slot_is_pruned(dsn: str) -> None:
    runtime = uuid.uuid4()
    with session(dsn) as conn:
        conn.execute(
            "insert into awa_pool.runtimes (runtime_id, host, pid) values (%s, 'build-7', 4711)", (runtime,)
        )
        (job,) = enqueue(conn, 1)
        (receipt,) = claim(conn, runtime=runtime)
        enqueue(conn, 3)
        finish_all(conn, claim(conn))
        call(conn, "rotate(0, null)")
        until(lambda: told_after(conn)[0][1] == "running_job", "it is named")
        assert told(conn)[0][2] == f"job {job} runs on build-7 (pool pid 4711)"
        grow_old(conn, "1 day")
        until(lambda: "1 attempts moved" in str(call(conn, "move_open_attempts(100, 60)")), "it is moved")
        exhaust(conn, 0)
        assert "emptied 0" in call(conn, "prune(0, 0)")
        finish_all(conn, [receipt])
        assert value(conn, "select count(*) from awa_pool.leases") == 0


@pytest.mark.parametrize("table", ["jobs_ready", "cursor_windows"])
def test_a_session_that_reads_an_old_slot_is_named_and_others_are_pruned_meanwhile(
    dsn: str, table: str
) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as reader:
        for _ in range(3):
            enqueue(conn, 2)
            finish_all(conn, claim(conn))
            call(conn, "rotate(0, null)")
        exhaust(conn, 0, 1, 2)
        reader.execute(f"select count(*) from awa_pool.{table}_0")  # type: ignore[arg-type]
        (pid,) = reader.execute("select pg_backend_pid()").fetchone() or (0,)
        assert told(conn)[0][1] == "in_use" and f"in use by pid {pid}" in str(told(conn)[0][2])
        # each sweep gets past what it must skip
        assert call(conn, "prune(0, 0)").startswith("emptied 1, 2; slot 0: in use")
        reader.rollback()
        assert call(conn, "prune(0, 0)") == "emptied 0"


def test_hours_of_history_at_full_speed_cost_no_claim_and_are_bounded_by_size(dsn: str) -> None:
    with session(dsn) as conn:
        for _ in range(40):
            enqueue(conn, 20)
            finish_all(conn, claim(conn))
            call(conn, "rotate(0, null)")
            call(conn, "exhaust_slots()")
            call(conn, "prune(86400, 3000000)")  # kept for a day, but no more than 3 MB
        states = [s for s, _, _ in told(conn).values()]
        assert states.count("exhausted") > 5
        assert len(states) < 24
        history = value(
            conn, "select sum(awa_pool.slot_bytes(slot)) from awa_pool.slots where state = 'exhausted'"
        )
        assert history < 4_000_000
        assert {by for _, by, _ in told(conn).values()} <= {None, "open_transaction"}
        assert (
            state(conn, value(conn, "select slot from awa_pool.slots where state = 'current'")) == "current"
        )


def test_what_neglected_queues_have_is_moved_past_a_slot_that_something_else_holds(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as claimer:
        held = enqueue(conn, 2, queue="a")
        call(conn, "rotate(0, null)")
        for _ in range(19):
            enqueue(conn, 2, queue="b")
            call(conn, "rotate(0, null)")
        assert call(claimer, "try_lane_lock('a', 2)")  # a claim of the oldest slot's lane is under way
        assert call(conn, "move_open_attempts(1000, 60)") == "2 neglected jobs moved to jobs_returned"
        claimer.rollback()
        assert call(conn, "move_open_attempts(1000, 60)") == "2 neglected jobs moved to jobs_returned"
        assert (
            value(
                conn, "select array_agg(job_id order by job_id) from awa_pool.jobs_returned where queue = 'a'"
            )
            == held
        )
