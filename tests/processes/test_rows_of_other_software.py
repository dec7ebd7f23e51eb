"""Rows that came round every gate: each ends by itself, and what stands beside it runs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from cli_rig import run
from pool_rig import pool

from awa_pool import Client

DEEP = "('{\"a\":' || repeat('[', 5000) || repeat(']', 5000) || '}')::json"


def put(dsn: str, columns: str, values: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        statement = (
            f"insert into awa_pool.jobs_ready (kind, {columns}) values ('act', {values}) returning job_id"
        )
        row = conn.execute(statement).fetchone()  # type: ignore[call-overload]
        assert row is not None
        return int(row[0])


def test_rows_that_nobody_can_read_fail_alone_and_a_drain_gets_past_them(tmp_path: Path, dsn: str) -> None:
    """Distilled 19."""
    bad = [
        put(dsn, "args", DEEP),
        put(dsn, "args, metadata", f"'{{}}', {DEEP}"),
        put(dsn, "args", r"""'{"what": "\ud800"}'"""),
        put(dsn, "args, job_id", r"""'{"what": "\ud800"}', -5"""),
        put(dsn, "args", "'[1]'"),
        put(dsn, "args", "'{\"s\": 1e999}'"),
    ]
    good = [
        put(dsn, "args, errors", "'{}', '5'"),
        put(dsn, "args, errors", """'{}', '["x", {"attempt": "one"}, {"attempt": 2, "type": 7}]'"""),
        put(dsn, "args, created_at, run_at", "'{}', '-infinity', 'infinity'"),
        put(dsn, "args, run_lease", "'{}', (1::bigint << 62) - 5"),
        put(dsn, "args", "'{}'"),
    ]
    with pool(tmp_path, dsn, drain=True) as running:
        assert running.ended() == 0, running.log
        assert "replacing it" not in running.log and "failed to start" not in running.log
    client = Client(dsn)
    found = {job_id: client.get_job(job_id) for job_id in (*bad, *good)}
    assert {job_id: row.state for job_id, row in found.items() if row} == {
        **dict.fromkeys(bad, "failed"),
        **dict.fromkeys(good, "completed"),
    }
    assert {row.id for row in client.list_jobs(limit=100)} == set(found)
    shown = run("jobs", cwd=tmp_path, AWA_POOL_DSN=dsn)
    assert shown.returncode == 0 and "UnreadableJob" in shown.stdout, shown.stderr
    unread = found[bad[0]]
    assert unread is not None and unread.args.startswith('{"a":[[[')
    assert unread.errors[-1]["type"] == "UnreadableJob"


@pytest.mark.parametrize(
    "flaw", ["run_lease = 9223372036854775807", "attempt = 32767", "attempt = -1", "snoozes = -1"]
)
def test_a_row_that_no_claim_could_count_on_is_refused_in_the_ring_and_set_aside_when_due(
    dsn: str, flaw: str
) -> None:
    column, _, value = flaw.partition(" = ")
    with psycopg.connect(dsn, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.CheckViolation):
            put(dsn, f"args, {column}", f"'{{}}', {value}")
        conn.execute(
            "insert into awa_pool.jobs_deferred (job_id, queue, priority, kind, args, run_at, state, "  # type: ignore[call-overload]
            f"{column}) values (7, 'default', 2, 'act', '{{}}', now(), 'scheduled', {value})"
        )
        client = Client(dsn)
        beside = client.insert({}, kind="act")
        conn.execute("select awa_pool.promote(100)")
        row = client.get_job(7)
        assert row is not None and (row.state, row.reason) == ("failed", "unreadable")
        assert column in row.errors[-1]["error"]
        other = client.get_job(beside)
        assert other is not None and other.state == "available"
