"""`awa-pool maintain`: the housekeeping on a host without workers, and who takes over from whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from apps import supervised
from cli_rig import command, environment
from pool_rig import DEADLINE_S, PoolProcess, descendants, pool, title_of, wait_until

from awa_pool import Client

LEASE_S = 3.0  # the stale threshold, as that is below 15 s


class Keeper(PoolProcess):
    """`awa-pool maintain` as a process of its own."""

    def __init__(self, folder: Path, dsn: str, *words: str) -> None:
        self.log_path = folder / f"maintain-{time.monotonic_ns()}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command(["maintain", "--dsn", dsn, "--heartbeat", "1s", "--stale-after", f"{LEASE_S:g}s",
                         "--log-level", "debug", *words]),
                stdout=log, stderr=subprocess.STDOUT, env=environment(), start_new_session=True, cwd=folder,
            )  # fmt: skip
        self.pid = self.process.pid


@contextmanager
def keeper(folder: Path, dsn: str, *words: str) -> Iterator[Keeper]:
    running = Keeper(folder, dsn, *words)
    try:
        yield running
    finally:
        running.close()


def state_of(dsn: str, job_id: int) -> str:
    with Client(dsn) as client:
        row = client.get_job(job_id)
    assert row is not None
    return str(row.state)


def test_maintain_rescues_and_promotes_where_nobody_has_a_free_slot(tmp_path: Path, dsn: str) -> None:
    with keeper(tmp_path, dsn, "--metrics-port", "0") as alone:
        alone.logged("leads the housekeeping")
        assert [title_of(pid).strip() for pid in descendants(alone.pid) if "awa-pool: " in title_of(pid)] == [
            "awa-pool: maintenance"
        ]
        wait_until("it is ready", lambda: alone.fetch("/readyz")[0] == 200)
        assert json.loads(alone.fetch("/readyz")[1])["parts"] == {"maintaining": "ok", "database": "ok"}
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select info->>'workers' from awa_pool.runtimes").fetchall() == [("0",)]
        with Client(dsn) as client:
            job_id = client.insert(supervised.Act("sleep", 60.0, path=str(tmp_path / "started")), kind="act")
        with pool(tmp_path, dsn, workers=1, heartbeat_s=1.0, stale_s=LEASE_S) as short_lived:
            wait_until("the job runs", lambda: (tmp_path / "started").exists())
            os.kill(short_lived.pid, signal.SIGKILL)
        wait_until("it is rescued and, when due, promoted", lambda: state_of(dsn, job_id) == "available")
        assert "rescued 1 attempts" in alone.log
        assert "awa_pool_rescued_attempts_total 1.0" in alone.fetch("/metrics")[1]


def test_another_leads_within_the_lease_when_the_leader_is_killed(tmp_path: Path, dsn: str) -> None:
    with keeper(tmp_path, dsn) as first:
        first.logged("leads the housekeeping")
        with keeper(tmp_path, dsn) as second:
            second.logged("connected to the database")
            with psycopg.connect(dsn) as conn:  # B097: a lease, no lock of a session
                assert conn.execute(
                    "select count(*) from pg_locks where locktype = 'advisory' and database = "
                    "(select oid from pg_database where datname = current_database())"
                ).fetchone() == (0,)
            assert "leads the housekeeping" not in second.log
            os.kill(first.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            second.logged("leads the housekeeping")
            # the lease, a third of it until the next try, and as much again for a slow machine
            assert time.monotonic() - killed_s < LEASE_S * 4 / 3 + LEASE_S


def test_maintain_leaves_in_good_order_and_gives_the_lead_up(tmp_path: Path, dsn: str) -> None:
    with keeper(tmp_path, dsn) as alone:
        alone.logged("leads the housekeeping")
        alone.signal(signal.SIGTERM)
        assert alone.ended(DEADLINE_S) == 0
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from awa_pool.leader").fetchone() == (0,)
        assert conn.execute("select state from awa_pool.runtimes").fetchall() == [("gone",)]


def test_a_maintenance_that_is_killed_is_replaced(tmp_path: Path, dsn: str) -> None:
    with keeper(tmp_path, dsn) as alone:
        alone.logged("leads the housekeeping")
        (child,) = alone.children("awa-pool: maintenance")
        os.kill(child, signal.SIGKILL)
        alone.logged("leads the housekeeping", 2)
        assert alone.children("awa-pool: maintenance") != [child]


def test_maintain_refuses_what_no_pool_would_take(tmp_path: Path, dsn: str) -> None:
    for words, told in (
        (("--stale-after", "1s"), "heartbeat"),
        (("--dsn", "host=/nowhere port=x"), "port"),
        (("--schema", "nobodys"), "awa-pool migrate --schema nobodys"),
    ):
        done = subprocess.run(
            command(["maintain", "--dsn", dsn, *words]), env=environment(), cwd=tmp_path, capture_output=True,
            text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
