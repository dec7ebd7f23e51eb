"""Completing costs the same however the table has grown since its plan was made."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

CLAIM = """select slot, receipt_id, nonce, cardinality(job_ids) from awa_pool.claim(
    array['bench'], array[20], 20, 1000000000, 63, %s, 1, false) where note = 'receipt'"""
COMPLETE = "select * from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[])"


def complete_buffers(conn: psycopg.Connection[Any], runtime: uuid.UUID) -> int:
    """Claim 20, complete them; returns the buffers that the completion touched."""
    rows = conn.execute(CLAIM, (runtime,)).fetchall()
    columns = [
        [r[0] for r in rows],
        [r[1] for r in rows],
        [r[2] for r in rows],
        [(1 << r[3]) - 1 for r in rows],
    ]
    plan = conn.execute("explain (analyze, buffers, format json) " + COMPLETE, columns).fetchone()[0][0][
        "Plan"
    ]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_plan_made_when_one_receipt_was_analysed_serves_thousands(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
        conn.execute(
            "insert into awa_pool.jobs_ready (kind, args, queue) select 'noop', '{}', 'bench' "
            "from generate_series(1, 25000)"
        )
        runtime = uuid.uuid4()
        complete_buffers(conn, runtime)
        conn.execute("analyze")
        complete_buffers(conn, runtime)  # the plans that this session keeps
        early = sorted(complete_buffers(conn, runtime) for _ in range(9))[4]
        for _ in range(1000):
            complete_buffers(conn, runtime)
        late = sorted(complete_buffers(conn, runtime) for _ in range(9))[4]
        assert late <= early * 1.5 + 10, (early, late)
