"""A repeatable-read snapshot held while the ring turns round and round (B099)."""

from __future__ import annotations

from statistics import median

import psycopg
import pytest
from ring_rig import Session, call, claim, enqueue, finish_all, give_back, ids, session, until, value

TURNS = 36  # one and a half times round
SPREAD = 8  # buffers: what a writer holds stays in the current slot, whose indexes get a level more


def buffers(conn: Session) -> int:
    """Buffers touched by a claim of 20, which is completed."""
    enqueue(conn, 20)
    plan = value(
        conn,
        "explain (analyze, buffers, timing off, format json) select * from "
        "awa_pool.claim(array['a'], array[20], 20, 1000000, 20, null, 1, false)",
    )
    conn.execute(
        "select awa_pool.complete(array_agg(slot::int), array_agg(receipt_id), array_agg(nonce),"
        " array_agg(9223372036854775807 >> (63 - n) & ~closed)) from awa_pool.receipts"
        " where closed <> (9223372036854775807 >> (63 - n))"
    )
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def test_what_was_given_back_and_claimed_again_costs_nothing_once_it_has_rested(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        value(holder, "select count(*) from awa_pool.meta")
        buffers(conn)  # the first reads the catalogue
        before = buffers(conn)
        jobs = enqueue(conn, 4000)
        give_back(conn, claim(conn, total=5000, chunk=63))
        back = claim(conn, total=5000, chunk=63)
        assert sorted(ids(back)) == jobs
        finish_all(conn, back)
        assert (
            call(conn, "sweep()") == "nothing"
        )  # a dump that has just begun may know these jobs there, and nowhere else
        until(lambda: minutes_later(conn) == "cut jobs_returned back", "it is cut back")
        buffers(conn)  # what the catalogue says of that table is read again
        assert buffers(conn) <= before + SPREAD, (before, buffers(conn))


def minutes_later(conn: Session) -> str:
    conn.execute("update awa_pool.returned_rest set since = since - interval '6 min'")
    return str(call(conn, "sweep()"))


def kept_after_a_rest(conn: Session) -> bool:
    """Whether the table was kept although nothing has left it for minutes: a counter that came late says otherwise."""
    conn.execute("update awa_pool.returned_rest set since = since - interval '6 min'")
    assert call(conn, "empty_returned()") is False
    return bool(value(conn, "select since < now() - interval '5 min' from awa_pool.returned_rest"))


def test_a_large_table_of_jobs_given_back_is_kept_while_one_is_in_it(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 4000)
        for _ in range(3):
            give_back(conn, claim(conn, total=5000, chunk=63))
        until(lambda: kept_after_a_rest(conn), "it has rested, and is kept")
        assert sorted(ids(claim(conn, total=5000, chunk=63))) == jobs


def test_a_job_that_is_being_given_back_keeps_the_table_and_nothing_waits_for_it(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as giving:
        (job,) = enqueue(conn, queue="late")
        late = claim(conn, "late")
        enqueue(conn, 4000)
        give_back(conn, claim(conn, total=5000, chunk=63))
        give_back(giving, late)  # not committed: nobody sees that row yet
        finish_all(conn, claim(conn, total=5000, chunk=63))
        assert value(conn, "select count(*) from awa_pool.jobs_returned") == 0
        conn.execute("set statement_timeout = '2s'")
        until(lambda: kept_after_a_rest(conn), "it has rested, and is kept")
        giving.commit()
        assert ids(claim(conn, "late")) == [job]


@pytest.mark.parametrize("writes", [False, True], ids=["a reader", "a writer"])
def test_claims_stay_as_cheap_while_a_snapshot_is_held_and_the_ring_turns(dsn: str, writes: bool) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        value(holder, "select count(*) from awa_pool.meta")
        if writes:
            value(holder, "select pg_current_xact_id()")
        figures: list[int] = []
        emptied = 0
        for _ in range(TURNS):
            for _ in range(3):
                enqueue(conn, 40)
                finish_all(conn, claim(conn, chunk=20))
            figures.append(buffers(conn))
            call(conn, "rotate(0, null)")
            conn.execute(  # as minutes later
                "update awa_pool.slots set sealed_at = sealed_at - interval '2 min'"
                " where state = 'sealed' and sealed_at > now() - interval '1 min'"
            )
            call(conn, "exhaust_slots()")
            call(conn, "sweep()")
            emptied += call(conn, "prune(0, 0)").count("emptied")
            call(conn, "trim_cursors()")
        first, last = median(figures[4:10]), median(figures[-6:])
        assert last - first <= SPREAD, " ".join(map(str, figures))
        if writes:  # what it holds back is told, and nothing is given up
            told = value(
                conn, "select count(*) from awa_pool.ring_status() where held_by = 'open_transaction'"
            )
            assert told > 15
            holder.rollback()
            call(conn, "exhaust_slots()")
            assert value(conn, "select count(*) from awa_pool.slots where state = 'exhausted'") > 15
        else:
            assert emptied > 10
