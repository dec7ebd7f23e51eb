"""Workers that have done enough, or grown too large, make room for others and leave nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from apps import unruly
from pool_rig import PoolProcess, alive, pool, wait_until

from awa_pool import Client, InsertRequest

APP = "apps.unruly:client"


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def counted(running: PoolProcess) -> float:
    return sum(
        float(line.split()[-1])
        for line in running.fetch("/metrics")[1].splitlines()
        if line.startswith("awa_pool_attempts_total{")
    )


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_workers_replaced_every_five_jobs_lose_nothing_and_leave_nothing(tmp_path: Path, dsn: str) -> None:
    """B007, B030, B149."""
    ledger, jobs = tmp_path / "ledger", 300
    with (
        Client(dsn) as client,
        pool(
            tmp_path, dsn, prefix=("env", "NOISY_THREADS=4"), app=APP, workers=2, max_jobs_per_worker=5,
            metrics_port=0, run_dir=str(tmp_path), log_level="info",
        ) as running,
    ):  # fmt: skip
        running.logged("metrics and health on")
        seen = 0.0
        for batch in range(2):
            client.insert_many(
                [
                    InsertRequest(args=unruly.Mark(str(ledger)), kind=("mark", "mark_async")[n % 2])
                    for n in range(jobs)
                ]
            )
            wanted = jobs * (batch + 1)
            while completed(client) < wanted:
                now = counted(running)
                assert now >= seen  # counters never go back
                seen = now
                running.logged("is replaced after", count=1)
            wait_until("they are counted", lambda wanted=wanted: counted(running) == wanted)  # type: ignore[misc]
            wait_until("retired workers have left", lambda: len(running.children("worker ")) == 2)
            files = sum(1 for _ in next(tmp_path.glob("awa-pool-*")).iterdir())
            held = len(os.listdir(f"/proc/{running.pid}/fd")), threads_of(running.pid)
            if batch == 0:
                before = held, files
        assert files <= before[1] and held[0] <= before[0][0] + 2 and held[1] <= before[0][1], (before, held)
        assert "failed" not in running.log and "killed" not in running.log
        below = running.children()
        running.signal(signal.SIGTERM)
        assert running.ended() == 0, running.log
        wait_until("nobody is left", lambda: not any(alive(pid) for pid in below), 10.0)
    rows = [line.split() for line in ledger.read_text().splitlines()]
    assert len(rows) == len({job for _, job, _ in rows}) == 2 * jobs
    assert {attempt for _, _, attempt in rows} == {"1"}
    by_pid: dict[str, int] = {}
    for pid, _, _ in rows:
        by_pid[pid] = by_pid.get(pid, 0) + 1
    assert max(by_pid.values()) <= 6  # five, and one more where both lanes start at the same moment


def test_a_memory_cap_below_a_fresh_worker_is_refused_and_one_above_it_works(
    tmp_path: Path, dsn: str
) -> None:
    """B007."""
    with pool(tmp_path, dsn, app=APP, max_rss_bytes=4 << 20) as running:
        assert running.ended() == 2
        (line,) = [line for line in running.log.splitlines() if "--max-rss 4.0 MiB is not above the" in line]
    baseline = float(line.split("not above the ")[1].split()[0])
    assert baseline > 4
    ledger = tmp_path / "ledger"
    with Client(dsn) as client:
        client.insert_many(
            [InsertRequest(args=unruly.Mark(str(ledger), 0.01), kind="mark") for _ in range(200)]
        )
        with pool(tmp_path, dsn, app=APP, max_rss_bytes=int(baseline + 5) << 20, drain=True) as running:
            assert running.ended() == 0, running.log
        assert completed(client) == 200
    assert len(ledger.read_text().splitlines()) == 200
