"""Claims against the ways in which a snapshot cursor can skip or repeat a row."""

from __future__ import annotations

import json
import uuid

import psycopg
import pytest
from ring_rig import (
    MIB,
    call,
    claim,
    claim_rows,
    complete,
    enqueue,
    finish_all,
    give_back,
    ids,
    note,
    session,
    value,
)  # fmt: skip


def test_a_row_written_after_a_claim_in_the_same_transaction_is_found_later(dsn: str) -> None:
    with session(dsn) as other, session(dsn, autocommit=False) as mine:
        mine.execute("select pg_current_xact_id()")
        first = enqueue(other)
        assert ids(claim(mine)) == first
        late = enqueue(mine)
        mine.commit()
        last = enqueue(other)
        assert sorted(ids(claim(other))) == late + last
        assert note(other) == "empty"


def test_rows_that_commit_late_are_found_exactly_once(dsn: str) -> None:
    with (
        session(dsn) as conn,
        session(dsn, autocommit=False) as slow,
        session(dsn, autocommit=False) as slower,
    ):
        early = enqueue(slow, 3)
        before = enqueue(slower, 2)
        quick = enqueue(conn, 4)
        assert ids(claim(conn)) == quick
        more = enqueue(conn, 2)
        slow.commit()
        assert sorted(ids(claim(conn))) == sorted(early + more)
        assert note(conn) == "empty"
        slower.commit()
        assert ids(claim(conn)) == before
        assert note(conn) == "empty"


def test_a_transaction_that_stays_open_delays_nobody(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        enqueue(slow)
        for _ in range(5):
            mine = enqueue(conn, 3)
            assert ids(claim(conn)) == mine


def test_a_rolled_back_claim_gives_its_jobs_to_the_next(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as unlucky:
        jobs = enqueue(conn, 10)
        assert ids(claim(unlucky, total=6)) == jobs[:6]
        unlucky.rollback()
        assert ids(claim(conn)) == jobs


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    "function",
    [
        "claim(array['a'], array[1], 1, 1, 1, null, 1, false)",
        "rotate(0, null)",
        "prune(0, 0)",
        "exhaust_slots()",
        "sweep()",
        "move_open_attempts(1)",
        "tombstone_job(1)",
        "promote(1)",
        "rescue_stale(1, 1)",
        "cancel(1)",
    ],
)
def test_functions_that_move_jobs_refuse_an_older_snapshot(dsn: str, level: str, function: str) -> None:
    with session(dsn) as conn:
        conn.execute(f"set default_transaction_isolation = '{level}'")
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"select awa_pool.{function}")
        assert refused.value.sqlstate == "AW002"


def test_a_cursor_from_the_future_is_refused(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 2)
        claim(conn, total=1)
        ahead = value(conn, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000")
        conn.execute("update awa_pool.cursor_windows set cur = %s::pg_snapshot", (f"{ahead}:{ahead}:",))
        with pytest.raises(psycopg.Error) as refused:
            claim(conn)
        assert refused.value.sqlstate == "AW003"
        assert "restored or copied" in str(refused.value)


def test_a_schema_of_another_cluster_is_refused(dsn: str) -> None:
    with session(dsn) as conn:
        call(conn, "check_cluster()")
        conn.execute("update awa_pool.meta set system_identifier = system_identifier + 1")
        with pytest.raises(psycopg.Error) as refused:
            call(conn, "check_cluster()")
        assert refused.value.sqlstate == "AW003"


def test_a_receipt_remembers_who_asked_and_which_request_it_was(dsn: str) -> None:
    runtime = uuid.uuid4()
    with session(dsn) as conn:
        enqueue(conn, 3)
        receipts = claim(conn, total=2, runtime=runtime, request=77)
        found = conn.execute(
            "select job_ids from awa_pool.receipts where runtime_id = %s and request_id = 77 and closed = 0",
            (runtime,),
        ).fetchall()
        assert [row[0] for row in found] == [r.job_ids for r in receipts]


def test_a_job_given_back_twice_is_claimed_once_each_time(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 5)
        receipts = claim(conn)
        for lease in (2, 3):
            give_back(conn, receipts[:1])
            receipts = claim(conn)
            assert [r.priority for r in receipts] == [2]
            assert ids(receipts) == jobs
            assert {json.loads(body)[3:5] == [1, lease] for body in receipts[0].bodies} == {True}
            assert note(conn) == "empty"
        finish_all(conn, receipts)


def test_what_was_given_back_comes_first_in_its_queue(dsn: str) -> None:
    with session(dsn) as conn:
        old = enqueue(conn, 2, priority=4)
        give_back(conn, claim(conn)[:1])
        new = enqueue(conn, 2, priority=1)
        assert ids(claim(conn)) == old + new


def test_priorities_go_in_order_and_slots_oldest_first(dsn: str) -> None:
    with session(dsn) as conn:
        low = enqueue(conn, 2, priority=4)
        call(conn, "rotate(0, null)")
        high = enqueue(conn, 2, priority=1)
        middle = enqueue(conn, 2, priority=4)
        receipts = claim(conn)
        assert ids(receipts) == high + low + middle
        assert [r.slot for r in receipts] == [1, 0, 1]


def test_queues_are_served_in_the_order_given_within_their_limits(dsn: str) -> None:
    with session(dsn) as conn:
        a, b = enqueue(conn, 5, "a"), enqueue(conn, 5, "b")
        rows = conn.execute(
            "select queue, note, job_ids from awa_pool.claim("
            "array['b', 'a', 'c'], array[2, 9, 9], 6, 1000000, 63, null, 1, false)"
        ).fetchall()
        assert rows == [("b", "receipt", b[:2]), ("a", "receipt", a[:4]), ("c", "busy", None)]


def test_a_claim_is_bounded_in_bytes_and_gives_at_least_one_job(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 5, args=json.dumps({"x": "y" * (MIB // 2)}))
        assert ids(claim(conn, max_bytes=1000)) == jobs[:1]
        assert ids(claim(conn, max_bytes=MIB + 1000)) == jobs[1:3]
        assert ids(claim(conn)) == jobs[3:]


def test_args_come_out_exactly_as_they_went_in(dsn: str) -> None:
    args = '{"a": 1e16, "b": -0.0, "c":[ 1,2], "ü": "\\u0041", "d": {"a": 1, "a": 2}}'
    with session(dsn) as conn:
        enqueue(conn, args=args)
        (receipt,) = claim(conn)
        assert receipt.bodies == [f'[{receipt.job_ids[0]},"k",{args},1,1,25,null]']


def test_extras_stand_in_the_body_only_where_they_are_set(dsn: str) -> None:
    with session(dsn) as conn:
        conn.execute(
            "insert into awa_pool.jobs_ready (kind, args, queue, metadata, tags, ordering_key) "
            """values ('k"k', '{}', 'a', '{"n": null}', '{x,y}', 'o')"""
        )
        (receipt,) = claim(conn)
        body = json.loads(receipt.bodies[0])
        assert body[1] == 'k"k'
        assert body[6] == {"metadata": {"n": None}, "tags": ["x", "y"], "ordering_key": "o"}


def test_a_paused_queue_gives_nothing_and_says_so(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn)
        call(conn, "pause_queue('a')")
        assert note(conn) == "paused"
        call(conn, "resume_queue('a')")
        assert ids(claim(conn)) == jobs


def test_a_lane_held_by_an_open_claim_is_busy_not_empty(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        jobs = enqueue(conn, 4)
        assert ids(claim(slow, total=2)) == jobs[:2]
        assert note(conn) == "busy"
        assert note(conn, "b") == "empty"
        slow.commit()
        assert ids(claim(conn)) == jobs[2:]
        assert note(conn) == "empty"


def test_waiting_claims_keep_one_lease_row_a_queue_and_write_it_seldom(dsn: str) -> None:
    with session(dsn) as conn:
        rows = claim_rows(conn, ["b", "a", "b"], waiting=True)
        assert [r[:2] for r in rows] == [("b", "empty"), ("a", "empty"), ("b", "empty")]
        written = conn.execute("select queue, until, xmin from awa_pool.queue_waiters order by 1").fetchall()
        assert [row[0] for row in written] == ["a", "b"]
        claim_rows(conn, ["a", "b"], waiting=True)
        assert (
            conn.execute("select queue, until, xmin from awa_pool.queue_waiters order by 1").fetchall()
            == written
        )


def test_a_tombstoned_job_is_stepped_over_and_holds_nothing_up(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 4)
        assert call(conn, "tombstone_job(%s)", jobs[1]) == "done"
        assert call(conn, "tombstone_job(%s)", jobs[3]) == "done"
        assert call(conn, "tombstone_job(%s)", jobs[3]) == "absent"
        receipts = claim(conn)
        assert ids(receipts) == [jobs[0], jobs[2]]
        finish_all(conn, receipts)
        assert call(conn, "slot_is_done(0)") is None
        assert note(conn) == "empty"


def test_a_claim_under_way_wins_over_a_tombstone(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        (job,) = enqueue(conn)
        claim(slow)
        assert call(conn, "tombstone_job(%s)", job) == "busy"
        slow.commit()
        assert call(conn, "tombstone_job(%s)", job) == "absent"


def test_a_tombstone_under_way_wins_over_a_claim(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        (job,) = enqueue(conn)
        assert call(slow, "tombstone_job(%s)", job) == "done"
        assert note(conn) == "busy"
        slow.commit()
        assert note(conn) == "empty"


def test_bounds_of_a_claim_are_checked(dsn: str) -> None:
    with session(dsn) as conn:
        for bad in (
            "array['a'], array[1, 2], 1, 1, 1",
            "array['a'], array[1], 1, 1, 64",
            "array['a'], array[1], 1, 1, 0",
        ):
            with pytest.raises(psycopg.Error) as refused:
                conn.execute(f"select awa_pool.claim({bad}, null, 1, false)")
            assert refused.value.sqlstate == "AW001"


def test_partly_completed_receipts_and_new_jobs_do_not_mix(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 3)
        (receipt,) = claim(conn)
        complete(conn, (receipt, 0b101))
        more = enqueue(conn, 1)
        assert ids(claim(conn)) == more
        bodies = conn.execute(
            "select job_id, idx from awa_pool.bodies_0(array[%s::bigint], array[2::bigint])",
            (receipt.receipt_id,),
        ).fetchall()
        assert bodies == [(receipt.job_ids[1], 1)]


def test_late_rows_get_receipts_of_their_own(dsn: str) -> None:
    with (
        session(dsn) as conn,
        session(dsn, autocommit=False) as slow,
        session(dsn, autocommit=False) as slower,
    ):
        first, second = enqueue(slow, 3), enqueue(slower, 1)
        assert len(ids(claim(conn, total=len(enqueue(conn, 200)), chunk=63))) == 200
        more = enqueue(conn, 3)
        slow.commit()
        slower.commit()
        receipts = claim(conn, chunk=2)
        assert [r.job_ids for r in receipts] == [first[:2], first[2:], second, more[:2], more[2:]]
        for receipt in receipts:
            spread = value(
                conn,
                "select count(*) from awa_pool.jobs_ready_0 as j, awa_pool.receipts_0 as r where r.receipt_id = %s "
                "and (j.txid, j.job_id) >= (r.from_txid, r.from_id) and (j.txid, j.job_id) <= (r.to_txid, r.to_id)",
                receipt.receipt_id,
            )
            assert spread == len(receipt.job_ids)
