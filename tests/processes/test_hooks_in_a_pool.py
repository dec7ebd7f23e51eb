"""Hooks hear of what has been committed, in a worker, whether a handler was there or not; they hold up nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import psycopg
from apps.hooked import AsyncWork, Unheard, Work
from apps.hooked import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client

ENDS: dict[str, dict[str, Any]] = {
    "complete": {"event": "Completed"},
    "raise": {"event": "Retried", "error": "no", "attempt": 1},
    "terminal": {"event": "Exhausted", "error": "never", "attempt": 1},
    "cancel": {"event": "Cancelled", "reason": "not wanted"},
}


def client_for(dsn: str) -> Client:
    client = Client(dsn)
    client.registry = app.registry
    return client


def events(file: Path, job_id: int) -> list[dict[str, Any]]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [heard for line in lines if (heard := orjson.loads(line))["id"] == job_id]


def await_events(file: Path, job_id: int, names: list[str], process: PoolProcess) -> list[dict[str, Any]]:
    """Wait until these are the first events of a job that were told; a killed worker may take its Started along."""

    def ended() -> list[dict[str, Any]]:
        found = events(file, job_id)
        return [event for event in found if "Started" in names or event["event"] != "Started"][: len(names)]

    try:
        wait_until(f"{names} of job {job_id}", lambda: [event["event"] for event in ended()] == names)
    except AssertionError as late:
        raise AssertionError(f"{late}: {events(file, job_id)}\n{process.log}") from None
    return ended()


def says_what_it_waits_for(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return (
            conn.execute("select 1 from awa_pool.runtimes where info -> 'outcomes' ? 'work'").fetchone()
            is not None
        )


def test_each_event_is_told_once_with_what_belongs_to_it(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "heard"
    with (
        pool(tmp_path, dsn, app="apps.hooked:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        client.insert(Unheard())
        jobs = {
            (how, kind): client.insert(kind(str(file), how)) for how in ENDS for kind in (Work, AsyncWork)
        }
        for (how, _), job_id in jobs.items():
            started, ended = await_events(file, job_id, ["Started", ENDS[how]["event"]], process)
            assert ENDS[how].items() <= ended.items(), how
            assert started["pid"] == ended["pid"]
            assert (how == "complete") == ("duration_s" in ended)
            assert (how == "raise") == ("next_run_at" in ended)
            row = client.get_job(job_id)
            assert row is not None and row.state in ("completed", "retryable", "failed", "cancelled")
        assert "broken failed on Completed" in process.log and "secret" not in process.log


def test_events_without_a_handler_are_told_by_some_worker(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "heard"
    with (
        pool(
            tmp_path, dsn, app="apps.hooked:client", queues=["default"], workers=3, kill_grace_s=0.5
        ) as process,
        client_for(dsn) as client,
    ):
        killed = client.insert(Work(str(file), "die"))
        last = client.insert(Work(str(file), "die"), max_attempts=1)
        late = client.insert(Work(str(file), "hang"), deadline=1.0)
        (retried,) = await_events(file, killed, ["Retried"], process)
        assert "SIGKILL" in retried["error"] and retried["attempt"] == 1
        (exhausted,) = await_events(file, last, ["Exhausted"], process)
        assert "SIGKILL" in exhausted["error"]
        assert await_events(file, late, ["Rescued"], process)[0]["reason"] == "deadline_exceeded"


def test_hooks_of_a_cancel_in_somebodys_transaction_are_told_once_it_is_committed(
    dsn: str, tmp_path: Path
) -> None:
    file = tmp_path / "heard"
    with (
        pool(tmp_path, dsn, app="apps.hooked:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        wait_until("the pool to say what its app waits for", lambda: says_what_it_waits_for(dsn))
        client.pause_queue("default")
        first, second = client.insert(Work(str(file))), client.insert(Work(str(file)))
        with psycopg.connect(dsn) as conn:
            client.cancel(first, conn=conn)
            conn.rollback()
            client.cancel(second, conn=conn)
            assert not file.exists()
        client.resume_queue("default")
        assert await_events(file, second, ["Cancelled"], process)[0]["reason"] == "cancelled_by_hand"
        await_events(file, first, ["Started", "Completed"], process)
