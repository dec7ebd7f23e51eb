"""Handlers of a pool complete their jobs in transactions of their own; the pool learns of it from the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.completing import TABLE, Carry, Plain, Ship, ShipAsync
from apps.completing import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client, JobRow

OPTIONS: dict[str, Any] = {"app": "apps.completing:client", "queues": ["default"]}


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with psycopg.connect(dsn) as conn:
        conn.execute(TABLE)
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def row(client: Client, job_id: int) -> JobRow:
    found = client.get_job(job_id)
    assert found is not None
    return found


def reach(client: Client, job_ids: list[int], state: str, process: PoolProcess) -> list[JobRow]:
    """Wait until these jobs have come to a state."""
    try:
        for job_id in job_ids:
            wait_until(
                f"job {job_id} to be {state}", lambda job_id=job_id: row(client, job_id).state == state
            )  # type: ignore[misc]
    except AssertionError as late:
        raise AssertionError(f"{late}: {row(client, job_id)}\n{process.log[-8000:]}") from None
    return [row(client, job_id) for job_id in job_ids]


def shipped(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as conn:
        return [job_id for (job_id,) in conn.execute("select job_id from shipped order by 1")]


def told(note: Path) -> list[str]:
    path = Path(f"{note}.told")
    return path.read_text().split() if path.exists() else []


def ended(process: PoolProcess, kind: str) -> dict[str, float]:
    """What the metrics count of a kind, by outcome."""
    lines = process.fetch("/metrics")[1].splitlines()
    found = [
        line for line in lines if line.startswith("awa_pool_attempts_total") and f'kind="{kind}"' in line
    ]
    return {line.split('outcome="')[1].split('"')[0]: float(line.split()[-1]) for line in found}


def test_rows_and_completions_are_there_together_and_counted_and_told(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    jobs = [client.insert(Ship(how, str(note))) for how in ("", "outer", "raise")]
    others = [client.insert(ShipAsync()) for _ in range(20)]
    with pool(tmp_path, dsn, metrics_port=0, **OPTIONS) as process:
        done = reach(client, [*jobs, *others], "completed", process)
        assert {(each.attempt, len(each.errors)) for each in done} == {(1, 0)}
        assert shipped(dsn) == sorted([*jobs, *others])
        wait_until("hooks are told", lambda: told(note).count("Completed") == 3)
        counted = {"ship_async": {"completed": 20.0}, "ship": {"completed": 3.0}}
        wait_until("they are counted", lambda: {kind: ended(process, kind) for kind in counted} == counted)
        assert "awa_pool_leased_attempts_total 23.0" in process.fetch("/metrics")[1]
        assert "then ended with ValueError: it counts for nothing" in process.log
        process.process.terminate()
        assert process.ended() == 0
    assert "Retried" not in told(note)


def test_what_was_not_committed_has_failed_and_its_specs_and_hooks_hear_of_it(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = {how: tmp_path / how for how in ("forget", "nothing")}
    jobs = {how: client.insert(Ship(how, str(note))) for how, note in notes.items()}
    with pool(tmp_path, dsn, **OPTIONS) as process:
        forgot, nothing = reach(client, list(jobs.values()), "retryable", process)
        assert "was not committed" in forgot.errors[-1]["error"] and forgot.attempt == 1
        assert "without having completed its job" in nothing.errors[-1]["error"]
        for note in notes.values():
            wait_until("hooks are told", lambda note=note: "Retried" in told(note))  # type: ignore[misc]
            assert "Completed" not in told(note)
        wait_until("both are followed up", lambda: len(client.list_jobs(kind="sorry")) == 2)
    assert shipped(dsn) == []
    assert {each.args["of"] for each in client.list_jobs(kind="sorry")} == set(jobs.values())


def test_a_long_transaction_of_one_handler_holds_up_nobody_elses_finish(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    """All of them are claimed in one receipt."""
    note = tmp_path / "note"
    slow = client.insert(Ship("slow", str(note)))
    others = client.insert_many([Plain() for _ in range(30)])
    with pool(tmp_path, dsn, **OPTIONS) as process:
        wait_until("the block has begun", Path(f"{note}.begun").exists)
        reach(client, list(others), "completed", process)
        assert row(client, slow).state == "running" and shipped(dsn) == []
        Path(f"{note}.go").touch()
        reach(client, [slow], "completed", process)
    assert shipped(dsn) == [slow]


def test_a_transaction_that_a_handler_leaves_open_decides_when_its_process_ends(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    """Until then its job runs, as far as anybody knows, and all others go on."""
    note = tmp_path / "note"
    leaks = client.insert(Ship("leak", str(note)))
    with pool(tmp_path, dsn, drain_timeout_s=3.0, **OPTIONS) as process:
        wait_until("the handler has begun", lambda: "Started" in told(note))
        others = [client.insert(kind()) for kind in (Ship, Plain, ShipAsync) * 10]
        reach(client, others, "completed", process)
        assert row(client, leaks).state == "running"
        process.process.terminate()
        assert process.ended() == 0
    assert row(client, leaks).state in ("retryable", "available")
    assert leaks not in shipped(dsn)


def test_a_deadline_in_the_block_rolls_it_back(client: Client, dsn: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    job_id = client.insert(Ship("late", str(note)), deadline=1.0)
    with pool(tmp_path, dsn, **OPTIONS) as process:
        wait_until("the block has begun", Path(f"{note}.begun").exists)
        (late,) = reach(client, [job_id], "retryable", process)
        assert late.errors[-1]["reason"] == "deadline_exceeded"
        assert Path(f"{note}.late").exists()
    assert shipped(dsn) == []


def test_a_cancel_while_the_block_runs_wins_and_the_rows_are_gone(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    job_id = client.insert(Ship("slow", str(note)))
    with pool(tmp_path, dsn, **OPTIONS) as process:
        wait_until("the block has begun", Path(f"{note}.begun").exists)
        client.cancel(job_id)
        Path(f"{note}.go").touch()
        reach(client, [job_id], "cancelled", process)
        after = client.insert(Ship())
        reach(client, [after], "completed", process)
    assert shipped(dsn) == [after]


def test_a_handler_that_has_waited_for_a_callback_completes_the_same_way(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    job_id = client.insert(Carry(str(note)))
    with pool(tmp_path, dsn, **OPTIONS) as process:
        callback = wait_until("an id", lambda: note.exists() and note.read_text())
        client.resume_external(callback, 5)
        (done,) = reach(client, [job_id], "completed", process)
        assert done.attempt == 1
    assert shipped(dsn) == [job_id]
