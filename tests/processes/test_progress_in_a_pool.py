"""What a handler says of its progress is seen while it runs, is there for the next attempt, and goes with completion."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.progressing import AsyncStep, Step
from apps.progressing import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client

SAID = {"percent": 40, "message": "reading", "metadata": {"page": 3}}


def progress_of(client: Client, job_id: int) -> Any:
    row = client.get_job(job_id)
    assert row is not None
    return row.progress


def await_state(client: Client, job_id: int, state: str, process: PoolProcess) -> None:
    wait_until(
        f"job {job_id} {state}", lambda: (row := client.get_job(job_id)) is not None and row.state == state
    )


@pytest.mark.parametrize("how", ["retry", "raise", "die"])
def test_progress_is_seen_live_and_found_by_the_next_attempt(dsn: str, tmp_path: Path, how: str) -> None:
    with (
        pool(tmp_path, dsn, app="apps.progressing:client", queues=["default"]) as process,
        Client(dsn) as client,
    ):
        client.registry = app.registry
        kinds: list[type[Step]] = [Step, AsyncStep]
        for kind in kinds:
            go = tmp_path / kind.__name__
            job_id = client.insert(kind(str(go)))
            wait_until("it is seen live", lambda job_id=job_id: progress_of(client, job_id) == SAID)
            row = client.get_job(job_id)
            assert row is not None and (row.state, row.attempt) == ("running", 1)
            assert client.list_jobs(state="running", kind=row.kind)[0].progress == SAID
            (tmp_path / "go").write_text(how)
            (tmp_path / "go").rename(go)
            await_state(client, job_id, "completed", process)
            assert ast.literal_eval(Path(f"{go}.found").read_text()) == SAID
            assert progress_of(client, job_id) is None
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("update awa_pool.attempt_state set written_at = '2000-01-01'")
            conn.execute("select awa_pool.sweep_progress(1000)")
            assert conn.execute("select count(*) from awa_pool.attempt_state").fetchone() == (0,)
