"""Callbacks as others see them: listeners, lists, cancels and a rebase."""

from __future__ import annotations

import psycopg
import pytest
from callbacks_rig import (
    ANSWERS,
    answer,
    expire,
    make_overdue,
    parked,
    refused,
    register,
    wait,
    waiting,
)
from general_rig import Queue


def test_every_resolution_is_notified_by_its_id(q: Queue, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ear:
        ear.execute("listen awa_pool")
        said = []
        for function, values, word in (
            ("resume_external", ("1",), "resumed"), ("complete_external", ("1",), "completed"),
            ("fail_external", ("no",), "failed"),
        ):  # fmt: skip
            _, callback = waiting(q)
            answer(q, function, callback, *values)
            said.append(f"callback {callback} {word}")
        attempt, callback = parked(q)
        make_overdue(q, attempt.job_id)
        expire(q)
        said.append(f"callback {callback} expired")
        _, callback = waiting(q)
        answer(q, "retry_external", callback)
        said.append(f"callback {callback} retried")
        heard = [n.payload for n in ear.notifies(timeout=10, stop_after=5)]
    assert heard == said


def test_a_waiting_job_is_cancelled_and_its_host_is_told(q: Queue, dsn: str) -> None:
    for make in (waiting, parked):
        attempt, callback = make(q)
        assert q.one("select awa_pool.cancel(%s)", attempt.job_id) == "cancelled"
        assert q.state(attempt.job_id) == "cancelled"
        refused(q, "resume_external", callback)
        assert wait(q, attempt, callback) == ("stale", None)


def test_waiting_jobs_are_counted_listed_and_shown(q: Queue) -> None:
    one, _ = waiting(q)
    two, _ = parked(q)
    running = q.claimed()
    register(q, running)
    assert q.rows("select running, waiting from awa_pool.queue_stats()") == [(1, 2)]
    assert q.rows("select running, waiting from awa_pool.queue_depths()") == [(1, 2)]
    assert q.rows("select * from awa_pool.work_left(array[%s])", q.name) == [(0, 2, 0, 1)]
    listed = q.rows("select id from awa_pool.list_jobs('waiting_external', null, null, 10, null)")
    assert listed == [(two.job_id,), (one.job_id,)]
    for attempt in (one, two):
        assert q.rows(
            "select number, since <= clock_timestamp(), until > clock_timestamp() from awa_pool.callback_of(%s)",
            attempt.job_id,
        ) == [(1, True, True)]
    assert q.rows("select * from awa_pool.callback_of(%s)", running.job_id) == []
    with pytest.raises(psycopg.Error) as problem:
        q.one("select awa_pool.retry(%s)", two.job_id)
    assert problem.value.sqlstate == "AW005"


def test_what_times_out_first_is_read_by_the_index_however_many_wait(q: Queue) -> None:
    attempt, _ = parked(q)
    columns = (
        "queue, priority, kind, args, run_at, created_at, nonce, idx, slot, state, claimed_at, waiting_since"
    )
    q.rows(
        f"insert into awa_pool.leases ({columns}, job_id, receipt_id, callback_id, callback_until)"
        f" select {columns}, -n, -n, gen_random_uuid(), callback_until + make_interval(secs => 1 + n %% 777)"
        " from awa_pool.leases, generate_series(1, 20000) as n"
    )
    (first, *_), (plan, *_) = (
        q.rows(f"{before} select job_id from awa_pool.list_waits(5)")[0]
        for before in ("", "explain (analyze, buffers, format json)")
    )
    read = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
    assert first == attempt.job_id and read < 100, read


def test_only_read_committed_will_do(q: Queue) -> None:
    _, callback = waiting(q)
    for function, values in ANSWERS.items():
        with q.conn.transaction():
            q.conn.execute("set transaction isolation level repeatable read")
            with pytest.raises(psycopg.Error) as problem, q.conn.transaction():
                answer(q, function, callback, *values)
            assert problem.value.sqlstate == "AW002"


def test_a_rebase_leaves_parked_jobs_waiting_and_gives_no_receipt_out_again(q: Queue) -> None:
    attempt, callback = parked(q)
    q.rows("select setval('awa_pool.receipt_id_seq', 1, false)")
    (plan,) = q.rows("select reason is not null, open_attempts, top_receipt from awa_pool.rebase_plan()")
    assert plan == (True, 0, attempt.receipt_id)
    q.rows("select awa_pool.rebase(true)")
    assert q.claimed().receipt_id > attempt.receipt_id
    assert answer(q, "resume_external", callback)[2] == "available"


@pytest.mark.parametrize("function", ["resume_external", "complete_external"])
def test_an_integer_that_a_reader_would_take_for_another_is_refused(q: Queue, function: str) -> None:
    """Else a parked job would carry it, and could not be read any more when it is to go on."""
    attempt, callback = parked(q)
    for wide in ("12345678901234567890", '{"a": [-9223372036854775809]}'):
        with pytest.raises(psycopg.Error, match="64 bits") as refused:
            answer(q, function, callback, wide)
        assert refused.value.sqlstate == "AW001"
    assert q.state(attempt.job_id) == "waiting_external"
    answer(q, function, callback, '[9223372036854775807, "12345678901234567890", 1e30]')
