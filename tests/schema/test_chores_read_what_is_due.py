"""What housekeeping asks every few seconds costs the same however much there is that is not due."""

from __future__ import annotations

from uuid import uuid4

import pytest
from ring_rig import Session, session, value

ROWS = 10_000
SPREAD = 60
"""Buffers by which a question may cost more: rows that are read one by one would cost some 200."""
BODY = "job_id, queue, priority, kind, args, run_at, created_at"
GIVEN = "nextval('awa_pool.job_id_seq'), 'a', 2, 'k', '{}', now()"
NOT_DUE = {
    "scheduled jobs": f"insert into awa_pool.jobs_deferred ({BODY}, state)"
    f" select {GIVEN} + i * interval '1 min', now(), 'scheduled' from generate_series(1, %s) as i",
    "history": f"insert into awa_pool.jobs_finished ({BODY}, state)"
    f" select {GIVEN}, now(), 'completed' from generate_series(1, %s) as i",
    "dead letters": f"insert into awa_pool.jobs_dead ({BODY}, state, reason, finalized_at)"
    f" select {GIVEN}, now(), 'failed', 'exhausted', now() from generate_series(1, %s) as i",
    "parked jobs": f"insert into awa_pool.leases ({BODY}, receipt_id, nonce, idx, slot, claimed_at, state, callback_id,"
    " callback_no, callback_until)"
    f" select {GIVEN}, now(), i, 1, 0, 0, now(), 'waiting_external', gen_random_uuid(), 1, now() + interval '1 day'"
    " from generate_series(1, %s) as i",
    "keys that live on": "insert into awa_pool.unique_claims (unique_key, job_id, release_at)"
    " select int8send(i) || int8send(i), i, now() + interval '1 day' from generate_series(1, %s) as i",
}
QUESTIONS = (
    "promote(1000)",
    "expire_callbacks(1000)",
    "rescue_stale(30, 1000, 1000)",
    "sweep()",
    "prune(86400, 1000000000000)",
    "prune_dead(86400, 1000)",
    "move_open_attempts(1000)",
    f"heartbeat('{uuid4()}', '{{}}')",
)


def buffers(conn: Session, question: str) -> int:
    plan = value(conn, f"explain (analyze, buffers, format json) select * from awa_pool.{question}")
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def cost(conn: Session) -> dict[str, int]:
    """Buffers that each question touches when it is asked again: the first time it reads the catalogue."""
    for _ in range(2):
        found = {question: buffers(conn, question) for question in QUESTIONS}
    return found


@pytest.mark.parametrize("what", NOT_DUE)
def test_what_is_not_due_is_not_read(dsn: str, what: str) -> None:
    with session(dsn) as conn:
        before = cost(conn)  # plans are made and kept while there is nothing
        conn.execute(NOT_DUE[what], (ROWS,))  # type: ignore[call-overload]
        after = cost(conn)
        more = {question: after[question] - before[question] for question in QUESTIONS}
        assert max(more.values()) < SPREAD, more
