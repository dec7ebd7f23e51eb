"""Bits, nonces, moved attempts: whatever is reported, how often and by whom, each attempt ends once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from ring_rig import (
    Receipt,
    call,
    claim,
    complete,
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


def test_a_receipt_named_twice_in_one_call_is_one_mask(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 4)
        (receipt,) = claim(conn)
        assert complete(conn, (receipt, 0b01), (receipt, 0b10))[receipt.receipt_id] == (0b11, 0, 0)
        assert complete(conn, (receipt, 0b100), (receipt, 0b100))[receipt.receipt_id] == (0b100, 0, 0)
        assert value(conn, "select closed from awa_pool.receipts") == 0b111
        assert value(conn, "select array_agg(mask order by mask) from awa_pool.completions") == [0b11, 0b100]


def test_a_repeated_result_is_stale(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 3)
        (receipt,) = claim(conn)
        assert complete(conn, (receipt, 0b011))[receipt.receipt_id] == (0b011, 0, 0)
        assert complete(conn, (receipt, 0b111))[receipt.receipt_id] == (0b100, 0b011, 0)


@pytest.mark.parametrize("outside", [0b10, 1 << 62, -(1 << 63)])
def test_bits_outside_the_receipt_close_nothing(dsn: str, outside: int) -> None:
    with session(dsn) as conn:
        enqueue(conn)
        (receipt,) = claim(conn)
        assert complete(conn, (receipt, outside))[receipt.receipt_id] == (0, outside, 0)
        assert value(conn, "select closed from awa_pool.receipts") == 0
        call(conn, "rotate(0, null)")
        assert "is open" in call(conn, "slot_is_done(0)")


def test_a_receipt_of_63_jobs_closes_whole(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 63)
        (receipt,) = claim(conn, chunk=63)
        finish_all(conn, [receipt])
        assert call(conn, "slot_is_done(0)") is None


def test_the_table_refuses_bits_that_no_job_has(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn)
        claim(conn)
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute("update awa_pool.receipts set closed = 2")


def test_a_receipt_with_another_nonce_is_stale(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn)
        (receipt,) = claim(conn)
        forged = receipt._replace(nonce=receipt.nonce ^ 1)
        assert complete(conn, (forged, 1))[receipt.receipt_id] == (0, 1, 0)
        assert complete(conn, (receipt, 1))[receipt.receipt_id] == (1, 0, 0)


def test_a_claim_is_durable_though_the_session_is_not(dsn: str) -> None:
    with session(dsn, autocommit=False) as conn:
        enqueue(conn)
        conn.execute("set synchronous_commit = off")
        conn.commit()
        assert ids(claim(conn))
        assert value(conn, "show synchronous_commit") == "on"
        conn.commit()
        assert value(conn, "show synchronous_commit") == "off"


def test_a_receipt_locked_elsewhere_is_busy_and_stops_nobody(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        enqueue(conn, 16)
        held, free = claim(conn)
        slow.execute("select 1 from awa_pool.receipts where receipt_id = %s for update", (held.receipt_id,))
        answer = complete(conn, (held, held.full), (free, free.full))
        assert answer == {held.receipt_id: (0, 0, held.full), free.receipt_id: (free.full, 0, 0)}
        slow.rollback()
        finish_all(conn, [held])


def test_a_finish_that_meets_the_mover_ends_the_moved_attempt_afterwards(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as mover:
        enqueue(conn, 2)
        (receipt,) = claim(conn)
        call(conn, "rotate(0, null)")
        call(conn, "exhaust_slots()")  # notes the xid after which nobody can insert there
        until(lambda: moved(mover), "the attempts are moved, not yet committed")
        assert complete(conn, (receipt, 0b01))[receipt.receipt_id] == (0, 0, 0b01)
        mover.commit()
        assert complete(conn, (receipt, 0b01))[receipt.receipt_id] == (0b01, 0, 0)
        assert complete(conn, (receipt, 0b01))[receipt.receipt_id] == (0, 0b01, 0)
        assert value(conn, "select state from awa_pool.jobs_finished") == "completed"
        exhaust(conn, 0)
        assert call(conn, "prune(3600, 0)") == "emptied 0"
        assert complete(conn, (receipt, 0b10))[receipt.receipt_id] == (0b10, 0, 0)
        assert value(conn, "select count(*) from awa_pool.leases") == 0


def moved(mover: psycopg.Connection[tuple[object, ...]]) -> bool:
    if "2 attempts" in call(mover, "move_open_attempts(100, 0)"):
        return True
    mover.rollback()
    return False


def test_a_moved_attempt_locked_elsewhere_is_busy(dsn: str) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as slow:
        enqueue(conn)
        (receipt,) = claim(conn)
        call(conn, "rotate(0, null)")
        call(conn, "exhaust_slots()")
        until(lambda: "1 attempts" in call(conn, "move_open_attempts(100, 0)"), "moved")
        slow.execute("select 1 from awa_pool.leases for update")
        assert complete(conn, (receipt, 1))[receipt.receipt_id] == (0, 0, 1)
        slow.rollback()
        assert complete(conn, (receipt, 1))[receipt.receipt_id] == (1, 0, 0)


def test_young_attempts_are_not_moved(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn)
        claim(conn)
        call(conn, "rotate(0, null)")
        call(conn, "exhaust_slots()")
        assert call(conn, "move_open_attempts(100)") == "nothing"
        assert state(conn, 0) == "sealed"


def test_a_slot_that_is_none_is_refused(dsn: str) -> None:
    with session(dsn) as conn, pytest.raises(psycopg.Error) as refused:
        complete(conn, (Receipt("a", 24, 1, 1, 2, [1], []), 1))
    assert refused.value.sqlstate == "AW006"


def test_overlapping_completions_of_many_sessions_give_each_bit_one_winner(dsn: str) -> None:
    with session(dsn) as conn:
        enqueue(conn, 12 * 63)
        receipts = claim(conn, total=1000, chunk=63)
        wins: Counter[tuple[int, int]] = Counter()
        lock, start = threading.Lock(), threading.Barrier(6)

        def finisher(seed: int) -> None:
            chance = random.Random(seed)
            with session(dsn, autocommit=False) as mine:
                start.wait()
                for _ in range(30):
                    some = chance.sample(receipts, chance.randint(1, 12))
                    pieces = [(r, chance.getrandbits(63) & chance.getrandbits(63)) for r in some]
                    done = complete(mine, *pieces)
                    if chance.random() < 0.2:
                        mine.rollback()
                        continue
                    mine.commit()
                    with lock:
                        wins.update((k, bit) for k, d in done.items() for bit in range(63) if d[0] >> bit & 1)

        with ThreadPoolExecutor(6) as threads:
            for ended in [threads.submit(finisher, seed) for seed in range(6)]:
                ended.result(60)
        assert set(wins.values()) == {1}
        closed = dict(conn.execute("select receipt_id, closed from awa_pool.receipts").fetchall())
        assert set(wins) == {(k, bit) for k, mask in closed.items() for bit in range(63) if mask >> bit & 1}
        recorded = conn.execute(
            "select receipt_id, sum(mask), bit_or(mask) from awa_pool.completions group by 1"
        )
        assert {(k, int(total), either) for k, total, either in recorded.fetchall()} == {
            (k, mask, mask) for k, mask in closed.items() if mask
        }
        assert note(conn) == "empty"
