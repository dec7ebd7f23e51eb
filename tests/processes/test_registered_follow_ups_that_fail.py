"""A spec that raises, or whose follow-up the database refuses: what comes of each outcome, in a real pool, and no loop."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from apps.broken_specs import Raising, Refused
from apps.broken_specs import client as app
from pool_rig import pool, wait_until

from awa_pool import Client


class Case(NamedTuple):
    """How the handler ends, in which attempt of at most so many; the state, the reason and a text of the error."""

    how: str
    attempts: int
    state: str
    reason: str | None
    error: str


SPEC = "{spec}"
CASES = [
    Case("complete", 2, "retryable", None, SPEC),
    Case("cancel", 2, "retryable", None, SPEC),
    Case("complete", 1, "failed", "follow_up_failed", SPEC),
    Case("raise", 2, "retryable", None, "no"),
    Case("raise at last", 1, "failed", "follow_up_failed", "no"),
    Case("terminal", 2, "failed", "follow_up_failed", "never"),
]


@pytest.mark.parametrize(
    ("form", "names"), [(Raising, "broken: the spec is broken"), (Refused, "not this one")]
)
def test_a_spec_that_fails_undoes_a_completion_and_never_an_end(
    dsn: str, tmp_path: Path, form: type[Raising], names: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "create function refuse() returns trigger language plpgsql as "
            "$$ begin if new.kind = 'told' then raise 'not this one'; end if; return new; end $$"
        )
        conn.execute(
            "create trigger refuse before insert on awa_pool.jobs_ready for each row execute function refuse()"
        )
    client = Client(dsn)
    client.registry = app.registry
    with pool(tmp_path, dsn, app="apps.broken_specs:client", queues=["default"]) as process, client:
        jobs = [(case, client.insert(form(case.how), max_attempts=case.attempts)) for case in CASES]
        for case, job_id in jobs:
            wait_until(
                f"{case} has ended",
                lambda job_id=job_id: (
                    (row := client.get_job(job_id)) is not None and row.state not in ("available", "running")
                ),
            )
            row = client.get_job(job_id)
            assert row is not None
            assert (row.state, row.reason, row.attempt) == (case.state, case.reason, 1), (
                case,
                row,
                process.log,
            )
            assert (names if case.error is SPEC else case.error) in row.errors[-1]["error"], (
                case,
                row.errors,
            )
            assert row.dead == (case.state == "failed")  # kept where dead jobs are
        with psycopg.connect(dsn) as conn:
            assert conn.execute("select count(*) from awa_pool.jobs where kind = 'told'").fetchone() == (0,)


def test_one_that_fails_for_a_rescued_attempt_is_given_up_after_three_tries_and_says_so(
    dsn: str, tmp_path: Path
) -> None:
    client = Client(dsn)
    client.registry = app.registry
    with (
        pool(
            tmp_path,
            dsn,
            app="apps.broken_specs:client",
            queues=["default"],
            workers=3,
            kill_grace_s=0.5,
            metrics_port=0,
        ) as process,
        client,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        job_id = client.insert(Raising("hang"), deadline=1.0)

        def given_up() -> (
            bool
        ):  # the pauses between the tries are the database's; they are not waited for here
            conn.execute("update awa_pool.jobs_deferred set run_at = now() where kind = 'awa:outcome'")
            return f"follow-ups of job {job_id} are given up after 3 tries" in process.log

        wait_until("they are given up", given_up)
        row = client.get_job(job_id)
        assert row is not None and row.state == "retryable"  # whatever came of its follow-ups
        counts = [
            'awa_pool_follow_up_functions_failed_total{outcome="rescued"} 3.0',
            "awa_pool_owed_outcomes_given_up_total 1.0",
        ]
        wait_until("both are counted", lambda: all(count in process.fetch("/metrics")[1] for count in counts))
        ended = conn.execute("select state, dead from awa_pool.jobs where kind = 'awa:outcome'").fetchall()
        assert ended == [("cancelled", False)]
