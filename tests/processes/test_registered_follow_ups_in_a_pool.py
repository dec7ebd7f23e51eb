"""What an app registers for an outcome comes with it, whether a handler was there to hear of it or not."""

from __future__ import annotations

from pathlib import Path

import psycopg
from apps.registered import Try
from apps.registered import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client


def client_for(dsn: str) -> Client:
    client = Client(dsn)
    client.registry = app.registry
    return client


def told(dsn: str, job_id: int) -> list[tuple[str, list[str]]]:
    """What came of a job: outcome, and what the spec was told."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select args ->> 'outcome', array(select json_array_elements_text(args -> 'more')) from awa_pool.jobs "
            "where kind = 'told' and (args ->> 'of')::bigint = %s and metadata ->> 'awa:parent' is not null order by id",
            (job_id,),
        ).fetchall()


def await_told(dsn: str, job_id: int, count: int, process: PoolProcess) -> list[tuple[str, list[str]]]:
    try:
        return wait_until(
            f"{count} follow-ups of job {job_id}", lambda: len(found := told(dsn, job_id)) >= count and found
        )
    except AssertionError as late:
        raise AssertionError(f"{late}: {told(dsn, job_id)}\n{process.log}") from None


def test_each_outcome_brings_its_follow_up(dsn: str, tmp_path: Path) -> None:
    with (
        pool(tmp_path, dsn, app="apps.registered:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        cases = {
            "complete": [("completed", [])],
            "raise": [("retried", ["no", "1", "datetime"])],
            "terminal": [("exhausted", ["never", "1"])],
            "cancel": [("cancelled", ["not wanted"])],
        }
        jobs = {how: client.insert(Try(how)) for how in cases}
        for how, wanted in cases.items():
            assert await_told(dsn, jobs[how], 1, process) == wanted, how


def test_outcomes_without_a_handler_bring_theirs_even_where_the_evaluating_worker_is_killed_once(
    dsn: str, tmp_path: Path
) -> None:
    with (
        pool(
            tmp_path, dsn, app="apps.registered:client", queues=["default"], workers=3, kill_grace_s=0.5
        ) as process,
        client_for(dsn) as client,
    ):
        killed = client.insert(Try("die"))
        last = client.insert(Try("die", mark=str(tmp_path / "evaluated")), max_attempts=1)
        late = client.insert(Try("hang", mark=str(tmp_path / "evaluated too")), deadline=1.0)
        (retried,) = await_told(dsn, killed, 1, process)
        assert retried[0] == "retried" and "SIGKILL" in retried[1][0] and retried[1][1:] == ["1", "datetime"]
        (exhausted,) = await_told(dsn, last, 1, process)
        assert exhausted[0] == "exhausted" and "SIGKILL" in exhausted[1][0]
        assert (tmp_path / "evaluated").exists()
        assert await_told(dsn, late, 1, process) == [("rescued", ["deadline_exceeded"])]
        assert (tmp_path / "evaluated too").exists()
        with psycopg.connect(dsn, autocommit=True) as conn:
            by_hand = client.insert(Try("wait"))
            wait_until(
                "it runs", lambda: (row := client.get_job(by_hand)) is not None and row.state == "running"
            )
            conn.execute("select awa_pool.cancel(%s)", (by_hand,))
        assert await_told(dsn, by_hand, 1, process) == [("cancelled", ["cancelled_by_hand"])]


def test_a_rescued_attempt_brings_its_follow_up_in_another_pool_even_where_that_evaluating_worker_is_killed_once(
    dsn: str, tmp_path: Path
) -> None:
    options = {"app": "apps.registered:client", "queues": ["default"], "heartbeat_s": 0.5, "stale_s": 2.0}
    mark = tmp_path / "evaluated"
    with client_for(dsn) as client:
        with pool(tmp_path, dsn, **options) as first:
            job_id = client.insert(Try("wait", mark=str(mark)))
            wait_until(
                "it runs", lambda: (row := client.get_job(job_id)) is not None and row.state == "running"
            )
            first.process.kill()
        with pool(tmp_path, dsn, **options) as second:
            assert await_told(dsn, job_id, 1, second) == [("rescued", ["stale_heartbeat"])]
            assert mark.exists() and second.log.count("replacing it") == 1, second.log
            with psycopg.connect(dsn) as conn:
                owed = "select state, attempt from awa_pool.jobs where kind = 'awa:outcome'"
                assert conn.execute(owed).fetchall() == [("completed", 2)]
