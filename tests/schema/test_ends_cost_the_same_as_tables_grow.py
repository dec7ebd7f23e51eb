"""Ending attempts costs the same however the tables have grown since the plans were made."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

CLAIM = """select slot, receipt_id, nonce, job_ids, bodies from awa_pool.claim(
    array['bench'], array[20], 20, 1000000000, 63, %s, 1, false) where note = 'receipt'"""
COMPLETE = "select * from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[])"
FINISH = "select * from awa_pool.finish(%s::json)"

Rows = list[tuple[Any, ...]]


def completed(rows: Rows) -> tuple[str, list[Any]]:
    """The call that completes what was claimed."""
    masks = [(1 << len(row[3])) - 1 for row in rows]
    return COMPLETE, [*([row[i] for row in rows] for i in range(3)), masks]


def given_back(rows: Rows) -> tuple[str, list[Any]]:
    """The call that gives back what was claimed, by the road of all other outcomes."""
    items = [
        {"slot": slot, "receipt_id": receipt_id, "nonce": nonce, "index": index, "job_id": job_id,
         "run_lease": json.loads(body)[4], "outcome": "return"}
        for slot, receipt_id, nonce, ids, bodies in rows
        for index, (job_id, body) in enumerate(zip(ids, bodies, strict=True))
    ]  # fmt: skip
    return FINISH, [json.dumps(items)]


@pytest.mark.parametrize("end", [completed, given_back])
def test_a_plan_made_when_one_receipt_was_analysed_serves_thousands(
    dsn: str, end: Callable[[Rows], tuple[str, list[Any]]]
) -> None:
    runtime = uuid.uuid4()

    def buffers(conn: psycopg.Connection[Any]) -> int:
        query, values = end(conn.execute(CLAIM, (runtime,)).fetchall())
        found = conn.execute("explain (analyze, buffers, format json) " + query, values).fetchone()
        plan = found[0][0]["Plan"]  # type: ignore[index]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
        conn.execute(
            "insert into awa_pool.jobs_ready (kind, args, queue) select 'noop', '{}', 'bench' "
            "from generate_series(1, 25000)"
        )
        buffers(conn)
        conn.execute("analyze")
        buffers(conn)  # the plans that this session keeps
        early = sorted(buffers(conn) for _ in range(9))[4]
        for _ in range(800):
            buffers(conn)
        late = sorted(buffers(conn) for _ in range(9))[4]
        assert late <= early * 1.5 + 10, (early, late)
