"""Hosts whose clocks are minutes off: everything that is due goes by the database's."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
from apps import supervised
from pool_rig import pool, wait_until

from awa_pool import Client

HERE = Path(__file__).parents[1]
STALE_S = 4.0


def shifted(seconds: int) -> tuple[str, ...]:
    """What to start a pool with so that its host's clock is that far ahead."""
    path = os.pathsep.join([str(HERE / "shifted_clock"), str(HERE)])
    return ("env", f"PYTHONPATH={path}", f"AWA_TEST_CLOCK_S={seconds}")


def test_two_pools_twenty_minutes_apart_run_all_jobs_on_time_and_once(tmp_path: Path, dsn: str) -> None:
    """B113, B087: jobs due in 3 s, and one that runs for longer than the stale threshold."""
    long_one = str(tmp_path / "long")
    with Client(dsn) as client:
        held = client.insert(supervised.Act("hold", 60.0, path=long_one), max_attempts=2)
        options = {"workers": 1, "heartbeat_s": 1.0, "stale_s": STALE_S}
        with (
            pool(tmp_path, dsn, prefix=shifted(600), **options) as ahead,
            pool(tmp_path, dsn, prefix=shifted(-600), **options) as behind,
        ):
            ahead.ready(1)
            behind.ready(1)
            wait_until("the long job runs", lambda: Path(long_one).exists())
            with psycopg.connect(dsn, autocommit=True) as conn:
                due = [
                    conn.execute(
                        "select awa_pool.enqueue('act', '{}', p_run_at => now() + interval '3 s')"
                    ).fetchone()[0]  # type: ignore[index]
                    for _ in range(20)
                ]

                def done() -> bool:
                    ran = conn.execute(
                        "select count(*) from awa_pool.jobs where id = any(%s) and state = 'completed'",
                        (due,),
                    ).fetchone()
                    return ran == (20,)

                wait_until("all due jobs are completed", done)
                (early_s, late_s) = conn.execute(
                    "select min(extract(epoch from attempted_at - run_at))::float8,"
                    " max(extract(epoch from attempted_at - run_at))::float8 from awa_pool.jobs where id = any(%s)",
                    (due,),
                ).fetchone() or (0.0, 0.0)
                assert early_s >= 0.0
                assert (
                    late_s < 5.0
                )  # a second on a quiet machine; ten minutes if anybody asked the host's clock

                def past_stale() -> bool:
                    row = conn.execute(
                        "select now() - attempted_at > make_interval(secs => %s) from awa_pool.jobs where id = %s",
                        (2.5 * STALE_S, held),
                    ).fetchone()
                    return bool(row and row[0])

                wait_until("it has run for far longer than the threshold", past_stale)
                # B099: the product itself holds no transaction open for long
                (oldest_s,) = conn.execute(
                    "select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8"
                    " from pg_stat_activity where datname = current_database() and application_name like 'awa-pool %'"
                ).fetchone() or (0.0,)
                assert oldest_s < 5.0
            Path(f"{long_one}.go").touch()
            wait_until("it is completed", lambda: client.get_job(held).state == "completed")  # type: ignore[union-attr]
            assert len(Path(long_one).read_text().splitlines()) == 1
            assert "rescued" not in ahead.log.replace("rescued 0", "") + behind.log.replace("rescued 0", "")
