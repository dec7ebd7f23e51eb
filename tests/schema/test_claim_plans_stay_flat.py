"""Buffers touched per claim do not depend on statistics, on the size of the slot, on the place in it, or on a
snapshot that somebody holds."""

from __future__ import annotations

from statistics import median

import psycopg
import pytest
from ring_rig import Session, claim, complete, session, value

JOBS = 100_000
TAKE = 20
SPREAD = 40
"""How far two medians may lie apart: a claim of 20 touches about 150 buffers, a plan gone wrong thousands."""


def load(conn: Session) -> None:
    """A hundred thousand jobs in one slot, in one transaction."""
    conn.execute(
        "insert into awa_pool.jobs_ready (kind, args, queue) "
        "select 'k', '{\"n\": 1}', 'a' from generate_series(1, %s)",
        (JOBS,),
    )


def buffers_per_claim(conn: Session, rounds: int = 15) -> float:
    """Median of buffers touched by a claim of 20."""
    return median(_buffers(conn) for _ in range(rounds))


def _buffers(conn: Session) -> int:
    plan = value(
        conn,
        "explain (analyze, buffers, timing off, format json) select * from "
        "awa_pool.claim(array['a'], array[%s], %s, 1000000, 20, null, 1, false)",
        TAKE,
        TAKE,
    )
    root = plan[0]["Plan"]
    assert root["Actual Rows"] == 1
    return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])


def skip_to_the_end(conn: Session) -> None:
    """Claim and finish all but a thousand."""
    taken = 0
    while taken < JOBS - 4000:
        receipts = claim(conn, total=2000, chunk=63)
        complete(conn, *((r, r.full) for r in receipts))
        taken += sum(len(r.job_ids) for r in receipts)


@pytest.mark.parametrize("planned_on", ["an empty slot", "a loaded slot"])
@pytest.mark.parametrize("pinned", [False, True], ids=["free", "pinned"])
def test_a_claim_of_twenty_touches_the_same_few_buffers_everywhere(
    dsn: str, pinned: bool, planned_on: str
) -> None:
    with session(dsn) as conn, session(dsn, autocommit=False) as holder:
        if planned_on == "an empty slot":
            claim(conn)
        load(conn)
        if pinned:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            value(holder, "select count(*), pg_current_xact_id() from awa_pool.meta")
        figures = {"start": buffers_per_claim(conn)}
        conn.execute("analyze")
        figures["start, analysed"] = buffers_per_claim(conn)
        skip_to_the_end(conn)
        figures["end"] = buffers_per_claim(conn)
        with session(dsn) as newcomer:
            _buffers(newcomer)  # reads the catalogue
            figures["end, new session"] = buffers_per_claim(newcomer)
        assert max(figures.values()) < 250, figures
        assert max(figures.values()) - min(figures.values()) < SPREAD, figures
