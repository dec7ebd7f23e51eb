"""What an attempt may stage is counted from its beginning to its end, whatever its handler has waited for in between."""

from __future__ import annotations

from pathlib import Path

import psycopg
from apps.waiting import Pay, PayAsync
from apps.waiting import client as app
from pool_rig import pool, wait_until

from awa_pool import Client

LIMITS = {"many": "TooMany", "large": "TooLarge"}


def test_what_was_staged_before_a_wait_counts_after_it(dsn: str, tmp_path: Path) -> None:
    client = Client(dsn)
    client.registry = app.registry
    with pool(tmp_path, dsn, app="apps.waiting:client", queues=["default"], workers=1) as process, client:
        notes = {
            tmp_path / f"{how}_{asks.__name__}": (asks, how) for how in LIMITS for asks in (Pay, PayAsync)
        }
        jobs = {note: client.insert(asks(str(note), how=how)) for note, (asks, how) in notes.items()}
        for note, job_id in jobs.items():
            asked = Path(f"{note}.1")
            wait_until("the wait", lambda asked=asked: asked.exists())
            client.resume_external(asked.read_text(), 1)
            wait_until(
                f"{note.name} to fail",
                lambda job_id=job_id: (row := client.get_job(job_id)) is not None and row.state == "failed",
            )
            row = client.get_job(job_id)
            assert row is not None and row.attempt == 1, process.log
            assert row.errors[-1]["type"].endswith(f"StagingError.{LIMITS[notes[note][1]]}")
        with psycopg.connect(dsn) as conn:
            assert conn.execute(
                "select count(*) from awa_pool.jobs where queue = 'looked_at'"
            ).fetchone() == (0,)
