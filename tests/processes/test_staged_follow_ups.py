"""What a handler stages exists exactly if its attempt's completion has committed: the whole table, against a real pool (B130)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from apps.staging import Follow, Stage, StageAsync
from pool_rig import PoolProcess, pool, wait_until
from staging_rig import client_for, ended, follow_ups


class Case(NamedTuple):
    """How a handler ends, the state that its job comes to, and how many follow-ups there are then."""

    how: str
    state: str
    follow_ups: int


TABLE = [
    Case("complete", "completed", 2),
    Case("value", "completed", 2),
    Case("threads", "completed", 4),
    Case("raise", "retryable", 0),
    Case("terminal", "failed", 0),
    Case("retry_after", "retryable", 0),
    Case("snooze", "scheduled", 0),
    Case("cancel", "cancelled", 0),
    Case("swallow", "failed", 0),
    Case("swallow_retry", "retryable", 0),
    Case("swallow_snooze", "scheduled", 0),
    Case("swallow_cancel", "cancelled", 0),
    Case("swallow_raise", "retryable", 0),
]


def check(dsn: str, process: PoolProcess, cases: list[Case]) -> None:
    """Put in these cases in both forms, and judge each when its job has ended."""
    with client_for(dsn) as client:
        jobs = {
            client.insert(form(f"{form.__name__} {case.how}", case.how, count=2)): (form, case)
            for case in cases
            for form in (Stage, StageAsync)
        }
        for job_id, (form, case) in jobs.items():
            row = ended(client, job_id, case.state, process)
            found = follow_ups(dsn, f"{form.__name__} {case.how}")
            assert len(found) == case.follow_ups, (case, found)
            assert [n for n, _ in found][:2] == [0, 1][: len(found)]  # ids in the order of staging
            assert all(metadata["awa:parent"] == job_id for _, metadata in found)
            if case.how == "swallow":
                assert row.errors[-1]["type"].endswith("StagingError.Invalid")
                assert "priority" in row.errors[-1]["error"]
            if case.how == "swallow_raise":
                assert (row.errors[-1]["type"], row.errors[-1]["error"]) == ("ValueError", "no")


def test_follow_ups_exist_exactly_if_the_attempt_completed(dsn: str, tmp_path: Path) -> None:
    with pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process:
        check(dsn, process, TABLE)


@pytest.mark.parametrize("time", [1, 3])
def test_they_do_with_a_finalizer_killed_between_a_commit_and_its_acknowledgement(
    dsn: str, tmp_path: Path, time: int
) -> None:
    faults = f"marks={tmp_path} finalizer.committed=kill:{time}"
    with pool(tmp_path, dsn, app="apps.staging:client", queues=["default"], faults=faults) as process:
        check(dsn, process, TABLE)
        wait_until("a finalizer ended there", (tmp_path / "finalizer.committed").exists)


def test_shared_keys_in_opposite_orders_give_one_job_each(dsn: str, tmp_path: Path) -> None:
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        orders = (["k1", "k2"], ["k2", "k1"])
        ids = client.insert_many([Stage(f"s{n}", count=0, keys=orders[n % 2]) for n in range(300)])
        wait_until(
            "all have completed",
            lambda: all(
                (row := client.get_job(job_id)) is not None and row.state == "completed" for job_id in ids
            ),
        )
        assert [len(follow_ups(dsn, key)) for key in ("k1", "k2")] == [1, 1], process.log
        assert all(len(client.get_job(job_id).errors) == 0 for job_id in ids)  # type: ignore[union-attr]


def test_a_producer_that_holds_a_key_stops_only_who_wants_it(dsn: str, tmp_path: Path) -> None:
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        with psycopg.connect(dsn) as producer:
            client.insert(Follow("held"), unique_opts={}, conn=producer)
            waiting = client.insert(Stage("waits", count=0, keys=["held"]))
            others = client.insert_many([Stage(f"other{n}", count=1) for n in range(50)])
            for job_id in others:
                ended(client, job_id, "completed", process)
            row = client.get_job(waiting)
            assert row is not None and row.state == "running"
            producer.rollback()
        ended(client, waiting, "completed", process)
        assert len(follow_ups(dsn, "held")) == 1
        row = client.get_job(waiting)
        assert row is not None and row.attempt == 1


@pytest.mark.parametrize("how", ["complete", "raise"])
def test_a_follow_up_that_the_database_refuses_undoes_the_completion_promptly(
    dsn: str, tmp_path: Path, how: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "create function refuse() returns trigger language plpgsql as "
            "$$ begin if new.kind = 'follow' then raise 'not this one'; end if; return new; end $$"
        )
        conn.execute(
            "create trigger refuse before insert on awa_pool.jobs_ready for each row execute function refuse()"
        )
    with (
        pool(tmp_path, dsn, app="apps.staging:client", queues=["default"]) as process,
        client_for(dsn) as client,
    ):
        job_id = client.insert(Stage("refused", how))
        row = ended(client, job_id, "retryable", process)
        assert follow_ups(dsn, "refused") == []
        wanted = "not this one" if how == "complete" else "no"
        assert wanted in row.errors[-1]["error"]
