"""Ownership of a running job is a lease kept by heartbeats: a server that restarts frees nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psycopg
from apps import supervised
from pool_rig import pool, wait_until
from servers import Server

from awa_pool import Client

STALE_S = 6.0
PAST_S = 10.0


def test_a_job_that_runs_through_a_restart_of_the_server_is_not_started_by_another_pool(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    """B097: two pools, the server crashes and comes back while the job runs; it runs on past the stale threshold."""
    book = tmp_path / "book"
    with Client(dsn) as client:
        job_id = client.insert(supervised.Act("hold", 90.0, path=str(book)))
    with (
        pool(tmp_path, dsn, workers=1, heartbeat_s=1.0, stale_s=STALE_S) as first,
        pool(tmp_path, dsn, workers=1, heartbeat_s=1.0, stale_s=STALE_S) as second,
    ):
        first.ready(1)
        second.ready(1)
        wait_until("the job runs", book.exists)
        pg_server.stop(signal.SIGQUIT)
        pg_server.start()
        back_s = time.monotonic()
        with psycopg.connect(dsn, autocommit=True) as conn:
            assert conn.execute("select count(*) from pg_locks where locktype = 'advisory' and pid in "
                                "(select pid from pg_stat_activity where state <> 'active')").fetchone() == (0,)  # fmt: skip

            def leader_looked() -> bool:
                row = conn.execute("select count(*) from awa_pool.leader where until > now()").fetchone()
                return row == (1,) and time.monotonic() - back_s > PAST_S

            wait_until("a leader has looked for longer than the threshold", leader_looked)
        Path(f"{book}.go").touch()
        with Client(dsn) as client:
            wait_until("it is completed", lambda: str(client.get_job(job_id).state) == "completed")  # type: ignore[union-attr]
            row = client.get_job(job_id)
        assert row is not None and (row.attempt, row.errors) == (1, [])
        assert len(book.read_text().splitlines()) == 1
