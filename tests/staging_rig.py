"""What there is of a pool's follow-ups, for tests with the app `apps.staging`."""

from __future__ import annotations

from typing import Any

import psycopg
from apps.staging import client as app
from pool_rig import PoolProcess, wait_until

from awa_pool import Client


def client_for(dsn: str) -> Client:
    """A client that knows the app's tasks."""
    client = Client(dsn)
    client.registry = app.registry
    return client


def follow_ups(dsn: str, name: str) -> list[tuple[int, dict[str, Any]]]:
    """Number and metadata of the follow-ups of that name, in the order of their ids."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select (args ->> 'n')::int, metadata from awa_pool.jobs "
            "where kind = 'follow' and args ->> 'of' = %s order by id",
            (name,),
        ).fetchall()


def ended(client: Client, job_id: int, state: str, process: PoolProcess) -> Any:
    """Wait for a job's state; returns the job."""
    try:
        return wait_until(
            f"job {job_id} is {state}",
            lambda: (row := client.get_job(job_id)) is not None and row.state == state and row,
        )
    except AssertionError as late:
        raise AssertionError(f"{late}\n{client.get_job(job_id)}\n{process.log}") from None
