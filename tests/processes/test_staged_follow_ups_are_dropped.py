"""What a handler has staged is gone with an attempt that ends from outside before its completion is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.staging import Follow, Stage, StageAsync
from pool_rig import pool, wait_until
from staging_rig import client_for, ended, follow_ups

from awa_pool import Client

OPTIONS: dict[str, Any] = {"app": "apps.staging:client", "queues": ["default"]}
FORMS = (Stage, StageAsync)


def insert(client: Client, folder: Path, how: str, **options: Any) -> dict[Path, int]:
    """Put in a job of each form that stages two follow-ups of its own name -> its mark and id."""
    marks = {folder / f"{how}_{form.__name__}": form for form in FORMS}
    return {
        mark: client.insert(form(mark.name, how, count=2, mark=str(mark)), **options)
        for mark, form in marks.items()
    }


def have_staged(marks: dict[Path, int]) -> None:
    for mark in marks:
        wait_until(f"{mark.name} to have staged", Path(f"{mark}.staged").exists)


def go(marks: dict[Path, int]) -> None:
    for mark in marks:
        Path(f"{mark}.go").touch()


def none(dsn: str, marks: dict[Path, int]) -> bool:
    return not any(follow_ups(dsn, mark.name) for mark in marks)


@pytest.mark.parametrize(("end", "state"), [("cancel", "cancelled"), ("rescue", "retryable")])
def test_a_job_that_was_cancelled_or_rescued_meanwhile_completes_too_late(
    dsn: str, tmp_path: Path, end: str, state: str
) -> None:
    with (
        pool(tmp_path, dsn, metrics_port=0, heartbeat_s=60.0, stale_s=180.0, **OPTIONS) as process,
        client_for(dsn) as client,
    ):
        jobs = insert(client, tmp_path, "deaf")
        have_staged(jobs)
        with psycopg.connect(dsn) as conn:
            if end == "cancel":
                for job_id in jobs.values():
                    conn.execute("select awa_pool.cancel(%s)", [job_id])
            else:
                conn.execute("update awa_pool.runtimes set heartbeat_at = now() - interval '1 hour'")
                conn.execute("select * from awa_pool.rescue_stale(30, 100)")
        go(jobs)
        late = re.compile(r"^awa_pool_stale_results_total [2-9]", re.MULTILINE)
        wait_until("both completions to come too late", lambda: late.search(process.fetch("/metrics")[1]))
        assert none(dsn, jobs)
        for job_id in jobs.values():
            assert ended(client, job_id, state, process).attempt == 1


def test_a_deadline_that_the_handler_hears_of_or_is_killed_for_leaves_nothing(
    dsn: str, tmp_path: Path
) -> None:
    with pool(tmp_path, dsn, workers=4, kill_grace_s=0.5, **OPTIONS) as process, client_for(dsn) as client:
        ids = {}
        for how in (
            "rest",
            "deaf",
        ):  # one after the other: an async handler that is deaf makes those beside it deaf too
            ids[how] = insert(client, tmp_path, how, deadline=1.0)
            for job_id in ids[how].values():
                row = ended(client, job_id, "retryable", process)
                assert row.errors[-1]["reason"] == "deadline_exceeded"
                assert ("SIGKILL" in row.errors[-1]["error"]) == (how == "deaf"), row.errors
        assert none(dsn, ids["rest"] | ids["deaf"])


def test_a_worker_killed_after_it_staged_leaves_nothing_and_the_next_attempt_all(
    dsn: str, tmp_path: Path
) -> None:
    with pool(tmp_path, dsn, **OPTIONS) as process, client_for(dsn) as client:
        jobs = insert(client, tmp_path, "die")
        for mark, job_id in jobs.items():
            row = ended(client, job_id, "completed", process)
            assert row.attempt == 2 and ["SIGKILL" in error["error"] for error in row.errors] == [True]
            assert [n for n, _ in follow_ups(dsn, mark.name)] == [0, 1]


def test_a_stop_before_the_handlers_are_done_leaves_nothing_and_the_next_pool_all(
    dsn: str, tmp_path: Path
) -> None:
    with client_for(dsn) as client:
        with pool(tmp_path, dsn, drain_timeout_s=0.5, **OPTIONS) as process:
            jobs = insert(client, tmp_path, "rest")
            have_staged(jobs)
            process.process.terminate()
            assert process.ended() == 0, process.log
        for job_id in jobs.values():
            row = client.get_job(job_id)
            assert row is not None and (row.state, row.attempt, row.errors) == ("available", 0, [])
        assert none(dsn, jobs)
        go(jobs)
        with pool(tmp_path, dsn, **OPTIONS) as process:
            for mark, job_id in jobs.items():
                assert ended(client, job_id, "completed", process).attempt == 1
                assert [n for n, _ in follow_ups(dsn, mark.name)] == [0, 1]


def test_a_stop_while_results_wait_to_be_written_leaves_nothing_and_the_next_pool_all(
    dsn: str, tmp_path: Path
) -> None:
    """The handlers have returned; a producer holds the keys of their follow-ups."""
    with client_for(dsn) as client, psycopg.connect(dsn) as producer:
        forms = {form.__name__: form for form in FORMS}
        for name in forms:
            client.insert(Follow(f"key of {name}"), unique_opts={}, conn=producer)
        with pool(tmp_path, dsn, drain_timeout_s=0.5, **OPTIONS) as process:
            jobs = {
                name: client.insert(form(name, keys=[f"key of {name}"], mark=str(tmp_path / name)))
                for name, form in forms.items()
            }
            have_staged({tmp_path / name: job_id for name, job_id in jobs.items()})
            process.process.terminate()
            process.logged("finalizer.draining held_jobs=2")
            process.process.terminate()  # nobody waits for the producer
            process.ended()
            process.logged("2 results were not stored: after --stale-after they are rescued")
        for name, job_id in jobs.items():
            row = client.get_job(job_id)
            assert row is not None and (row.state, row.attempt, row.errors) == ("available", 0, [])
            assert follow_ups(dsn, name) == follow_ups(dsn, f"key of {name}") == []
        producer.rollback()
        with pool(tmp_path, dsn, **OPTIONS) as process:
            for name, job_id in jobs.items():
                assert ended(client, job_id, "completed", process).attempt == 1
                assert [len(follow_ups(dsn, of)) for of in (name, f"key of {name}")] == [1, 1]
