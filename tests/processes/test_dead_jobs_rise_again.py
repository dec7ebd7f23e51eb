"""From a failing handler into the dead letter queue and, by the shell's word, through the same pool to the end."""

from __future__ import annotations

import json
from pathlib import Path

import cli_rig
from pool_rig import pool, wait_until

from awa_pool import Client

HOW = {"raise": "max_attempts_exhausted", "terminal": "terminal_error", "ask": "max_attempts_exhausted",
       "kill": "max_attempts_exhausted"}  # fmt: skip


def test_jobs_that_died_in_every_way_complete_once_the_world_is_well_and_a_person_says_so(
    tmp_path: Path, dsn: str
) -> None:
    """B135, in a whole pool."""
    well = tmp_path / "well"
    with Client(dsn) as client, pool(tmp_path, dsn, app="apps.mortal:client"):
        ids = {
            how: client.insert({"how": how, "well": str(well)}, kind="mortal", max_attempts=1) for how in HOW
        }
        client.insert({}, kind="no_such_kind")
        wait_until("all are dead", lambda: client.count_dead().jobs == 5)
        shown = cli_rig.run("dlq", "list", "--kind", "mortal", "--json", "--dsn", dsn, cwd=tmp_path)
        rows = {row["id"]: row for row in map(json.loads, shown.stdout.splitlines())}
        assert {how: rows[ids[how]]["reason"] for how in HOW} == HOW
        assert "SIGKILL" in rows[ids["kill"]]["error"]
        assert all(row["attempt"] == 1 for row in rows.values())
        well.touch()
        told = cli_rig.run("dlq", "retry", "--kind", "mortal", "--yes", "--dsn", dsn, cwd=tmp_path)
        assert (told.returncode, told.stdout) == (0, "4 jobs retried\n"), told.stderr
        wait_until("all have completed", lambda: len(client.list_jobs(state="completed")) == 4)
        for job_id in ids.values():
            row = client.get_job(job_id)
            assert row is not None and (row.state, row.attempt, row.dead) == ("completed", 1, False)
            assert row.run_lease >= 2  # more where it was given back unstarted beside the killed one
            assert len(row.errors) == 1
        assert [job.kind for job in client.list_dead()] == ["no_such_kind"]
