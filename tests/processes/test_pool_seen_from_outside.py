"""What a pool shows while it works: the live picture, its connections, its files, its descriptors."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apps import supervised
from pool_rig import pool, wait_until

from awa_pool import Client, InsertRequest
from awa_pool.config.settings import PoolConfig
from awa_pool.supervisor import run_pool
from awa_pool.supervisor.snapshot import PoolSnapshot

CONNECTIONS = 8  # the stated budget of a host


class Album:
    """Keeps every picture."""

    def __init__(self) -> None:
        self.pictures: list[PoolSnapshot] = []

    def show(self, snapshot: PoolSnapshot) -> None:
        self.pictures.append(snapshot)


@pytest.fixture
def quiet_logging() -> Iterator[None]:
    yield
    logger = logging.getLogger("awa_pool")
    logger.handlers.clear()
    logger.propagate = True


def put(client: Client, *acts: supervised.Act) -> None:
    client.insert_many([InsertRequest(args=act, kind="act", max_attempts=3) for act in acts])


@pytest.mark.usefixtures("quiet_logging")
def test_an_observer_sees_workers_rates_and_queues_while_the_pool_drains(dsn: str) -> None:
    with Client(dsn) as client:
        put(client, *[supervised.Act("sleep", 0.1) for _ in range(40)])
    album = Album()
    config = PoolConfig(dsn=dsn, workers=2, drain=True)
    assert run_pool(config, "apps.supervised:client", observer=album) == 0
    last = album.pictures[-1]
    assert last.ended == {"completed": 40} and last.phase == "stopping"
    busy = [worker for picture in album.pictures for worker in picture.workers if worker.state == "busy"]
    assert {worker.number for worker in busy} == {1, 2}
    assert {worker.kind for worker in busy} == {"act"}
    assert max(worker.jobs_done for picture in album.pictures for worker in picture.workers) > 5
    assert max(worker.rss_bytes for worker in busy) > 1 << 20
    assert max(picture.jobs_per_s for picture in album.pictures) > 0
    assert any(queue.queue == "default" for picture in album.pictures for queue in picture.queues)


def test_connections_stay_within_the_budget_whatever_the_number_of_workers(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn, workers=12, metrics_port=0) as running:
        running.ready(12)
        with Client(dsn) as client:
            put(client, *[supervised.Act() for _ in range(2000)])
            wait_until(
                "they are completed", lambda: sum(row.completed for row in client.queue_stats()) == 2000
            )
        with psycopg.connect(dsn) as conn:
            rows = conn.execute(
                "select application_name, state from pg_stat_activity "
                "where datname = current_database() and application_name like 'awa-pool %'"
            ).fetchall()
        assert 0 < len([name for name, _ in rows if "client" not in name]) <= CONNECTIONS, rows
        assert not [name for name, state in rows if state and "in transaction" in state]


def test_workers_that_come_and_go_leave_no_file_and_no_descriptor_behind(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn, workers=2) as running:
        running.ready()
        folder = Path(_run_dir(running.pid))
        for round_number in range(2, 12):
            for title in ("worker 1", "worker 2"):
                for pid in running.children(title):
                    os.kill(pid, signal.SIGKILL)
            running.logged("worker 1 is ready", count=round_number)
            running.logged("worker 2 is ready", count=round_number)
            if round_number == 3:
                descriptors = len(os.listdir(f"/proc/{running.pid}/fd"))
        assert len(list(folder.glob("*.page*"))) == 2
        assert len(os.listdir(f"/proc/{running.pid}/fd")) <= descriptors + 1
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
        assert not folder.exists()


def _run_dir(pid: int) -> str:
    """The folder whose lock that process holds open."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if target.endswith("/lock") and "awa-pool-" in target:
            return os.path.dirname(target)
    raise AssertionError("the supervisor holds no lock")


def test_a_handler_puts_jobs_in_where_its_pool_takes_them_from(tmp_path: Path, dsn: str) -> None:
    with Client(dsn) as client:
        client.insert(supervised.Relay(), kind="relay")
        with pool(tmp_path, dsn, drain=True) as running:
            assert running.ended() == 0, running.log
        assert sorted(row.kind for row in client.list_jobs(state="completed")) == ["act", "relay"]
