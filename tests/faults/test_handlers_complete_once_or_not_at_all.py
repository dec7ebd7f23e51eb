"""Workers and actors that die while handlers complete their jobs: the row of the app and the completion are there together, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.completing import TABLE, Ship, ShipAsync
from apps.completing import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client, JobRow

OPTIONS: dict[str, Any] = {"app": "apps.completing:client", "queues": ["default"], "workers": 3}


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLE)
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def bring_forward(dsn: str) -> None:
    """Do not wait for back-offs."""
    with psycopg.connect(dsn) as conn:
        conn.execute("update awa_pool.jobs_deferred set run_at = now() where state = 'retryable'")


def all_end(client: Client, dsn: str, job_ids: list[int], process: PoolProcess) -> list[JobRow]:
    """Wait until all jobs are completed, their back-offs cut short."""

    def rows() -> list[JobRow]:
        bring_forward(dsn)
        found = [client.get_job(job_id) for job_id in job_ids]
        done = [each for each in found if each is not None and each.state == "completed"]
        return done if len(done) == len(job_ids) else []

    try:
        return wait_until("all jobs to be completed", rows)
    except AssertionError as late:
        raise AssertionError(f"{late}\n{process.log[-8000:]}") from None


def shipped(dsn: str) -> list[tuple[int, int]]:
    """Job and attempt of each row."""
    with psycopg.connect(dsn) as conn:
        return conn.execute("select job_id, attempt from shipped order by 1").fetchall()


@pytest.mark.parametrize("point", ["leased", "completed", "committed"])
@pytest.mark.parametrize("kind", [Ship, ShipAsync])
def test_a_worker_that_is_killed_in_any_window_leaves_rows_and_completion_together(
    client: Client, dsn: str, tmp_path: Path, point: str, kind: type[Ship]
) -> None:
    """Before the commit the attempt is lost and the job runs again; after it nothing runs again."""
    marks = tmp_path / "marks"
    marks.mkdir()
    job_ids = [client.insert(kind()) for _ in range(12)]
    with pool(tmp_path, dsn, faults=f"marks={marks} handler.{point}=kill:3", **OPTIONS) as process:
        wait_until("the point is met", (marks / f"handler.{point}").exists)
        done = all_end(client, dsn, job_ids, process)
        process.process.terminate()
        assert process.ended() == 0
    rows = shipped(dsn)
    assert rows == [(each.id, each.attempt) for each in sorted(done, key=lambda each: each.id)]
    attempts = [each.attempt for each in done]
    # Async handlers that ran beside the one that met the point are lost with it.
    assert attempts.count(2) == (point != "committed") or kind is ShipAsync, attempts


@pytest.mark.parametrize("point", ["finalizer.heard", "finalizer.committed"])
def test_a_finalizer_that_is_killed_hears_of_the_completions_again(
    client: Client, dsn: str, tmp_path: Path, point: str
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    job_ids = [client.insert(kind()) for kind in (Ship, ShipAsync) * 8]
    with pool(tmp_path, dsn, faults=f"marks={marks} {point}=kill:2", **OPTIONS) as process:
        wait_until("the point is met", (marks / point).exists)
        done = all_end(client, dsn, job_ids, process)
        process.process.terminate()
        assert process.ended() == 0
    assert shipped(dsn) == [(each.id, 1) for each in sorted(done, key=lambda each: each.id)]


def test_messages_that_are_lost_doubled_and_late_cost_time_alone(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    job_ids = [client.insert(kind()) for kind in (Ship, ShipAsync) * 15]
    faults = "seed=5 drop=0.05 double=0.05 late=0.05 reorder=0.05"
    with pool(tmp_path, dsn, faults=faults, **OPTIONS) as process:
        done = all_end(client, dsn, job_ids, process)
        process.process.terminate()
        assert process.ended() == 0
    assert shipped(dsn) == [(each.id, 1) for each in sorted(done, key=lambda each: each.id)]
