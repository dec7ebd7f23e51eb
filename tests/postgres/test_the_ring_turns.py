"""Rotate, exhaust, sweep, prune and move: what keeps a slot, what frees it, what stands in nobody's way."""

from __future__ import annotations

import time
import uuid

import psycopg
import pytest
from held_sessions import Waiting
from ring_rig import (
    call,
    claim,
    complete,
    enqueue,
    exhaust,
    exhaust_first_slot,
    finish_all,
    ids,
    note,
    session,
    state,
    until,
    value,
)


def test_an_empty_or_young_or_small_slot_stays_current(dsn: str) -> None:
    with session(dsn) as conn:
        assert call(conn, "rotate(0, null)") == "empty"
        enqueue(conn)
        assert call(conn, "rotate(3600, null)") == "young"
        assert call(conn, "rotate(3600, 1000000000)") == "young"
        assert call(conn, "rotate(3600, 1)") == "sealed 0, opened 1"
        enqueue(conn)
        assert call(conn, "rotate(0, null)") == "sealed 1, opened 2"


def test_a_full_ring_keeps_its_current_slot(dsn: str) -> None:
    with session(dsn) as conn:
        for _ in range(23):
            enqueue(conn)
            assert call(conn, "rotate(0, null)").startswith("sealed")
        enqueue(conn)
        assert call(conn, "rotate(0, null)") == "full"
        assert len(ids(claim(conn))) == 24


def test_what_claims_looked_into_before_a_rotation_is_forgotten(dsn: str) -> None:
    with session(dsn) as conn:
        for _ in range(5):
            enqueue(conn)
            assert call(conn, "rotate(0, null)").startswith("sealed")
        rows = conn.execute("select slots from awa_pool.claimable_slots").fetchall()
        assert rows == [([0, 1, 2, 3, 4, 5],)]


def test_a_slot_goes_round(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 3)
        call(conn, "rotate(0, null)")
        call(conn, "exhaust_slots()")
        assert state(conn, 0) == "sealed"
        (receipt,) = claim(conn)
        complete(conn, (receipt, 0b011))
        call(conn, "exhaust_slots()")
        assert state(conn, 0) == "sealed"
        complete(conn, (receipt, 0b100))
        exhaust(conn, 0)
        assert call(conn, "prune(3600, 1000000000)") == "nothing"
        assert call(conn, "prune(0, 1000000000)") == "emptied 0"
        assert value(conn, "select count(*) from awa_pool.cursors where slot = 0") == 0


def test_history_is_kept_by_size_too(dsn: str) -> None:
    with session(dsn) as conn:
        exhaust_first_slot(conn)
        assert call(conn, "prune(3600, 1)") == "emptied 0"


def test_a_producer_with_an_old_snapshot_writes_into_the_slot_that_is_current_now(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        value(late, "select count(*) from awa_pool.slots")  # its snapshot is older than the rotation
        enqueue(conn)
        call(conn, "rotate(0, null)")
        job = call(late, "enqueue('k', '{}', 'late')")
        late.commit()
        assert [(r.slot, r.job_ids) for r in claim(conn, "late")] == [(1, [job])]


def test_a_slot_is_not_given_up_while_a_producer_could_still_write_there(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        slow.execute("select pg_current_xact_id()")  # it may have read which slot is current by now
        enqueue(conn)
        finish_all(conn, claim(conn))
        call(conn, "rotate(0, null)")
        for _ in range(3):
            call(conn, "exhaust_slots()")
        assert state(conn, 0) == "sealed"
        slow.execute("insert into awa_pool.jobs_ready (kind, args, queue, slot) values ('k', '{}', 'a', 0)")
        slow.commit()
        call(conn, "exhaust_slots()")
        assert state(conn, 0) == "sealed"
        assert len(ids(claim(conn))) == 1


@pytest.mark.parametrize("life", ["exhausted", "free"])
def test_a_late_row_reopens_its_slot(dsn: str, life: str) -> None:
    with session(dsn) as conn:
        exhaust_first_slot(conn)
        if life == "free":
            call(conn, "prune(0, 0)")
        assert state(conn, 0) == life
        job = value(
            conn,
            "insert into awa_pool.jobs_ready (kind, args, queue, slot) values ('k', '{}', 'a', 0) returning job_id",
        )
        assert note(conn) == "empty"
        call(conn, "prune(0, 0)")
        assert state(conn, 0) == life
        assert "reopened slot 0" in call(conn, "sweep()")
        assert ids(claim(conn)) == [job]


def test_prune_sees_a_row_that_came_after_the_slot_was_exhausted(dsn: str) -> None:
    with session(dsn) as conn:
        exhaust_first_slot(conn)
        conn.execute(
            "insert into awa_pool.jobs_ready (kind, args, queue, slot) values ('k', '{}', 'late', 0)"
        )
        assert "unclaimed jobs in queue late" in call(conn, "prune(0, 0)")


def test_prune_yields_at_once_to_whoever_uses_the_slot(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as reader:
        exhaust_first_slot(conn)
        reader.execute("select count(*) from awa_pool.jobs_ready_0")
        conn.execute("set lock_timeout = '10s'")
        began_s = time.monotonic()
        assert call(conn, "prune(0, 0)") == "slot 0: in use"
        assert time.monotonic() - began_s < 2  # after a lock_timeout it would say the same
        reader.rollback()
        assert call(conn, "prune(0, 0)") == "emptied 0"


def test_no_heartbeat_waits_while_prune_waits_for_a_key(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as holder, session(dsn) as beating:
        exhaust_first_slot(conn)
        conn.execute(
            "insert into awa_pool.jobs_finished (job_id, queue, priority, kind, args, run_at, created_at, state, unique_key,"
            " unique_states, finalized_at) values (9, 'a', 2, 'k', '{}', now(), now(), 'failed', '\\x0102030405060708090a0b0c0d0e0f10', 255,"
            " now() - interval '1 h')"
        )
        conn.execute(
            "insert into awa_pool.unique_claims (unique_key, job_id) values ('\\x0102030405060708090a0b0c0d0e0f10', 9)"
        )
        holder.execute("select from awa_pool.unique_claims for update")
        pruned = Waiting(dsn, "select awa_pool.prune(0, 1000000000)")
        until(lambda: value(conn, "select true from pg_locks where not granted"), "prune waits")
        beating.execute("set lock_timeout = '2s'")
        runtime = uuid.uuid4()
        assert call(beating, "heartbeat(%s, '{}')", runtime) == "gone"
        assert call(beating, "lead('l', %s, 10)", runtime)
        holder.commit()
        assert pruned.result() == "emptied 0; dropped 1 finished jobs"


def test_a_claim_that_finds_nothing_waits_for_no_prune_of_another_slot(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as pruning:
        exhaust_first_slot(conn)
        assert call(pruning, "prune(0, 1000000000)") == "emptied 0"
        conn.execute("set lock_timeout = '2s'")
        assert note(conn) == "empty"
        conn.execute(
            "set plan_cache_mode = force_generic_plan"
        )  # as in a claim, here one that was slow to find nothing
        call(conn, "advance_cursors('a', array[1])")


def test_an_open_claim_and_finish_hold_up_their_own_slot_only(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        exhaust_first_slot(conn)
        enqueue(conn, 2)
        (receipt,) = claim(slow)
        complete(slow, (receipt, 1))
        assert call(conn, "prune(0, 0)") == "emptied 0"
        held = value(
            slow,
            "select count(*) from pg_locks where pid = pg_backend_pid() and relation is not null "
            "and relation::regclass::text ~ '_[0-9]+(_|$)' and relation::regclass::text !~ '_1(_|$)'",
        )
        assert held == 0


def test_under_the_exclusive_lock_prune_reads_only_what_can_be_new(dsn: str) -> None:
    with session(dsn, autocommit=False) as conn, session(dsn) as other:
        enqueue(other, 500)
        receipts = claim(other, total=500, chunk=1)
        complete(other, *((r, 1) for r in receipts))
        call(other, "rotate(0, null)")
        exhaust(other, 0)
        reads = (
            "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables "
            "where relname in ('receipts_0', 'jobs_ready_0')"
        )
        assert call(conn, "prune(0, 0)") == "emptied 0"
        assert value(conn, reads) < 1.2 * 500  # once every receipt, without the lock; nothing again under it


def test_autovacuum_leaves_the_ring_alone(dsn: str) -> None:
    with session(dsn) as conn:
        unprotected = conn.execute(
            "select c.relname from pg_class c join pg_inherits i on i.inhrelid = c.oid "
            "where c.relnamespace = 'awa_pool'::regnamespace and c.relkind = 'r' "
            "and i.inhparent not in ('awa_pool.cursors'::regclass, 'awa_pool.cursor_windows'::regclass) "
            "and not coalesce(c.reloptions::text[] @> '{autovacuum_enabled=off}', false)"
        ).fetchall()
        toast = conn.execute(
            "select c.relname from pg_class c join pg_inherits i on i.inhrelid = c.oid "
            "join pg_class t on t.oid = c.reltoastrelid where c.relnamespace = 'awa_pool'::regnamespace "
            "and i.inhparent not in ('awa_pool.cursors'::regclass, 'awa_pool.cursor_windows'::regclass) "
            "and not coalesce(t.reloptions::text[] @> '{autovacuum_enabled=off}', false)"
        ).fetchall()
        assert (unprotected, toast) == ([], [])


def test_autovacuum_comes_to_cursors_and_windows_as_soon_as_many_were_trimmed(dsn: str) -> None:
    with session(dsn) as conn:
        options = conn.execute(
            "select i.inhparent::regclass::text, c.reloptions, count(*) from pg_class c "
            "join pg_inherits i on i.inhrelid = c.oid where c.relkind = 'r' "
            "and i.inhparent in ('awa_pool.cursors'::regclass, 'awa_pool.cursor_windows'::regclass) "
            "group by 1, 2 order by 1"
        ).fetchall()
        soon = ["autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=5000"]
        assert options == [("awa_pool.cursor_windows", soon, 24), ("awa_pool.cursors", soon, 24)]


def test_long_sealed_slots_cost_an_idle_queue_nothing(dsn: str) -> None:
    with session(dsn) as conn:
        for _ in range(15):
            enqueue(conn, 5)
            finish_all(conn, claim(conn))
            call(conn, "rotate(0, null)")
        marks = "select count(*) from awa_pool.drained_lanes where queue = 'a'"
        until(lambda: note(conn) == "empty" and value(conn, marks) == 13, "all but two are passed by at once")
        conn.execute("update awa_pool.slots set sealed_at = now() - interval '2 min' where state = 'sealed'")
        until(lambda: note(conn) == "empty" and value(conn, marks) == 15, "all are passed by")
        conn.execute("delete from awa_pool.drained_lanes")
        before = buffers(conn, 1)  # of a look into each of them
        assert buffers(conn, 1) < before / 3


def test_a_late_row_in_a_drained_lane_is_found_by_the_sweep(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        (late,) = enqueue(slow)
        enqueue(conn)
        finish_all(conn, claim(conn))
        call(conn, "rotate(0, null)")
        conn.execute("update awa_pool.slots set sealed_at = now() - interval '2 min' where state = 'sealed'")
        assert note(conn) == "empty"
        slow.commit()
        assert "1 drained lanes" in call(conn, "sweep()")
        assert ids(claim(conn)) == [late]


def test_a_mark_of_an_earlier_life_hides_nothing(dsn: str) -> None:
    with session(dsn) as conn:
        conn.execute("insert into awa_pool.drained_lanes (slot, generation, queue) values (0, 0, 'a')")
        jobs = enqueue(conn)
        assert ids(claim(conn)) == jobs


def test_rows_that_were_rolled_back_are_walked_over_a_few_times_only(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as undone:
        enqueue(undone, 60_000)
        undone.rollback()

        def advanced() -> bool:
            for _ in range(2):
                call(conn, "advance_cursors('a', array[0])")
            return (
                buffers(conn) < 100
            )  # each transaction open elsewhere (an autovacuum) costs some 80 probes more

        until(advanced, "nothing is walked over")


def test_empty_claims_themselves_step_over_rows_that_were_rolled_back(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as undone:
        enqueue(undone, 300_000)  # many: the second look takes over 2 ms too, from when on a claim moves on
        undone.rollback()
        until(lambda: buffers(conn, 1) < 100, "nothing is walked over")


def buffers(conn: psycopg.Connection[tuple[object, ...]], claims: int = 2) -> int:
    """Buffers touched by the last of so many empty claims: the first of a session reads catalogues."""
    for _ in range(claims):
        plan = value(
            conn,
            "explain (analyze, buffers, format json) select * from "
            "awa_pool.claim(array['a'], array[20], 20, 1000000, 20, null, 1, false)",
        )
    root = plan[0]["Plan"]
    return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])


def test_a_window_is_stored_once_however_many_claims_use_it(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 50)
        for _ in range(10):
            claim(conn, total=5)
        assert value(conn, "select count(*) from awa_pool.cursors") == 10
        assert value(conn, "select count(*) from awa_pool.cursor_windows") == 1


def test_trimming_leaves_the_newest_cursor_and_its_window(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 9)
        for _ in range(4):
            claim(conn, total=2)
        jobs += enqueue(conn, 2, priority=1)
        claim(conn, total=1)
        assert call(conn, "trim_cursors()") == "dropped 3 cursors, 0 windows"
        assert ids(claim(conn)) == [jobs[-1], jobs[8]]
        call(conn, "trim_cursors()")
        assert value(conn, "select count(*) from awa_pool.cursors") == 2
        assert note(conn) == "empty"


def test_trimming_beside_an_open_claim_keeps_what_it_read(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        enqueue(conn, 6)
        claim(conn, total=2)
        claim(slow, total=2)
        call(conn, "trim_cursors()")
        slow.rollback()
        assert len(ids(claim(conn))) == 4


def test_batches_leave_few_dead_rows(dsn: str) -> None:
    with session(dsn, autocommit=False) as conn:
        enqueue(conn, 3000)
        receipts = claim(conn, total=3000, chunk=60)
        complete(conn, *((r, r.full) for r in receipts))
        dead = value(
            conn,
            "select sum(n_tup_upd + n_tup_del) from pg_stat_xact_user_tables where schemaname = 'awa_pool'",
        )
        assert dead <= 0.05 * 3000


def test_a_neglected_queue_is_moved_when_the_ring_runs_short(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 30, "neglected") + enqueue(conn, 5, "neglected", priority=4)
        call(conn, "rotate(0, null)")
        assert call(conn, "move_open_attempts(100)") == "nothing"
        conn.execute("update awa_pool.slots set state = 'exhausted' where state = 'free' and slot > 5")
        assert call(conn, "move_open_attempts(100)") == "35 neglected jobs moved to jobs_returned"
        exhaust(conn, 0)
        receipts = claim(conn, "neglected")
        assert sorted(ids(receipts)) == jobs
        assert all(body.split(",")[3:5] == ["1", "1"] for r in receipts for body in r.bodies)


def test_a_rotation_that_fails_after_moving_the_sequence_loses_nothing(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as failing:
        enqueue(conn)
        call(failing, "rotate(0, null)")
        stray = enqueue(conn, queue="stray")
        failing.rollback()
        found = call(conn, "sweep()")
        assert "current slot set back to 0" in found
        assert ids(claim(conn, "stray")) == stray


def test_a_ring_that_turned_while_triggers_were_off_is_claimed_from_after_a_sweep(dsn: str) -> None:
    with session(dsn) as conn, session(dsn) as loading:
        loading.execute("set session_replication_role = replica")
        enqueue(conn)
        finish_all(conn, claim(conn))
        assert call(loading, "rotate(0, null)") == "sealed 0, opened 1"
        jobs = enqueue(conn)
        assert note(conn) == "empty"
        assert "claims look into the right slots again" in call(conn, "sweep()")
        assert ids(claim(conn)) == jobs
        assert call(conn, "sweep()") == "nothing"


def test_an_empty_claim_writes_nothing(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as asker:
        enqueue(conn, 3)
        finish_all(conn, claim(conn))

        def wrote_nothing() -> bool:  # a slow first look may store where it stopped
            asker.rollback()
            assert note(asker) == "empty"
            return bool(value(asker, "select pg_current_xact_id_if_assigned() is null"))

        until(wrote_nothing, "an empty claim without a transaction id")


def test_claim_and_finish_write_few_bytes_per_job(dsn: str) -> None:
    with session(dsn) as conn:
        position = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
        figures = []
        for _ in range(3):  # the least counts: a checkpoint between makes whole pages go to the log
            enqueue(conn, 5000)
            before = value(conn, position)
            while receipts := claim(conn, total=500, chunk=60):
                complete(conn, *((r, r.full) for r in receipts))
            figures.append((value(conn, position) - before) / 5000)
        assert min(figures) <= 40, figures
