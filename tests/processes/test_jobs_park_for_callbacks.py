"""A handler of a pool registers a callback and returns to wait for it; answered, its job runs again from the top."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.parking import Gate, GateAsync, Watch, WatchAsync
from apps.parking import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import CallbackNotFound, Client, JobRow

OPTIONS: dict[str, Any] = {"app": "apps.parking:client", "queues": ["default"]}


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def row(client: Client, job_id: int) -> JobRow:
    found = client.get_job(job_id)
    assert found is not None
    return found


def reaches(client: Client, job_id: int, state: str, process: PoolProcess) -> JobRow:
    """Wait until a job has come to a state."""
    try:
        return wait_until(
            f"job {job_id} to be {state}",
            lambda: (found := row(client, job_id)).state == state and found,
        )
    except AssertionError as late:
        raise AssertionError(f"{late}: {row(client, job_id)}\n{process.log[-8000:]}") from None


def id_in(note: Path) -> str:
    """What the handler has handed to the outside world."""
    return wait_until(f"an id in {note}", lambda: note.exists() and note.read_text())


def follow_ups(dsn: str, kind: str, job_id: int) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as conn:
        found = conn.execute(
            "select args from awa_pool.jobs where kind = %s and (args ->> 'of')::bigint = %s order by id",
            (kind, job_id),
        )
        return [args for (args,) in found.fetchall()]


@pytest.mark.parametrize("asks", [Gate, GateAsync])
def test_a_parked_job_outlives_its_pool_and_goes_on_with_the_answer(
    client: Client, dsn: str, tmp_path: Path, asks: type[Gate]
) -> None:
    note = tmp_path / "note"
    job_id = client.insert(asks(str(note)), metadata={"mine": 1})
    with pool(tmp_path, dsn, **OPTIONS) as process:
        reaches(client, job_id, "waiting_external", process)
        process.process.terminate()
        assert process.ended() == 0
    assert row(client, job_id).state == "waiting_external"
    callback_id = id_in(note)
    assert client.resume_external(callback_id, {"by": ["ann", 1]}).state == "available"
    with pytest.raises(CallbackNotFound):
        client.resume_external(callback_id, 2)
    with pool(tmp_path, dsn, **OPTIONS) as process:
        done = reaches(client, job_id, "completed", process)
    (answered,) = follow_ups(dsn, "answered", job_id)
    assert answered == {"of": job_id, "number": 1, "payload": {"by": ["ann", 1]}, "metadata": {"mine": 1}}
    assert done.errors == [] and done.attempt == 1


def test_each_way_of_parking_comes_to_its_state(client: Client, dsn: str, tmp_path: Path) -> None:
    def insert(how: str, **more: Any) -> tuple[int, Path]:
        note = tmp_path / how.replace(" ", "_")
        options = {name: more.pop(name) for name in ("max_attempts",) if name in more}
        return client.insert(Gate(str(note), how, **more), **options), note

    with pool(tmp_path, dsn, workers=2, metrics_port=0, **OPTIONS) as process:
        told, note = insert("told")
        reaches(client, told, "waiting_external", process)
        assert follow_ups(dsn, "asked", told) == [{"of": told}]
        client.resume_external(id_in(note), None)
        reaches(client, told, "completed", process)
        assert follow_ups(dsn, "answered", told)[0]["payload"] is None
        events = Path(f"{note}.told")
        wait_until("the hooks", lambda: events.read_text().split().count("Completed") == 1)
        assert events.read_text().split() == ["Started", "WaitingForCallback", "Started", "Completed"]

        staged, note = insert("staged")
        reaches(client, staged, "waiting_external", process)
        assert len(follow_ups(dsn, "asked", staged)) == 1  # of the spec; its own is dropped
        process.logged(f"job {staged}, kind gate, waits for a callback: the 1 follow-ups")
        alike = client.insert(GateAsync(str(tmp_path / "alike"), "staged"))
        reaches(client, alike, "waiting_external", process)
        assert follow_ups(dsn, "asked", alike) == []
        process.logged(f"job {alike}, kind gate_async, waits for a callback: the 1 follow-ups")
        wait_until(
            "the count of both",
            lambda: "awa_pool_follow_ups_dropped_total 2.0" in process.fetch("/metrics")[1],
        )
        client.resume_external(id_in(tmp_path / "alike"), 1)
        reaches(client, alike, "completed", process)
        assert follow_ups(dsn, "asked", alike) == [] and len(follow_ups(dsn, "answered", alike)) == 1
        assert client.cancel(staged) == "cancelled"
        reaches(client, staged, "cancelled", process)
        with pytest.raises(CallbackNotFound):
            client.resume_external(id_in(note))

        older, note = insert("older")
        error = reaches(client, older, "retryable", process).errors[-1]
        assert error["type"].endswith("CallbackNotFound") and "newer" in error["error"]

        bad, note = insert("bad spec")
        error = reaches(client, bad, "retryable", process).errors[-1]
        assert error["error"] == "ask: no letter today" and row(client, bad).attempt == 1
        with pytest.raises(CallbackNotFound):
            client.resume_external(id_in(note))

        late, note = insert("late")
        callback_id = id_in(note)
        assert client.resume_external(callback_id, 7).state == "running"
        Path(f"{note}.go").touch()
        reaches(client, late, "completed", process)
        assert follow_ups(dsn, "answered", late)[0]["payload"] == 7

        dead, note = insert("die")
        assert "SIGKILL" in reaches(client, dead, "retryable", process).errors[-1]["error"]
        with pytest.raises(CallbackNotFound):
            client.resume_external(id_in(note))

        timed, _ = insert("park", timeout_s=0.2)
        assert "callback" in reaches(client, timed, "retryable", process).errors[-1]["error"]
        last, _ = insert("park", timeout_s=0.2, max_attempts=1)
        assert reaches(client, last, "failed", process).reason == "callback_timeout"


@pytest.mark.parametrize("time", [1, 2])  # the commits of the callback, and of the parking
def test_a_finalizer_that_dies_before_it_answers_registers_once_and_parks_once(
    client: Client, dsn: str, tmp_path: Path, time: int
) -> None:
    note = tmp_path / "note"
    job_id = client.insert(Gate(str(note)))
    faults = f"marks={tmp_path} finalizer.committed=kill:{time}"
    with pool(tmp_path, dsn, faults=faults, **OPTIONS) as process:
        reaches(client, job_id, "waiting_external", process)
        process.logged("finalizer is ready", 2)
        assert (tmp_path / "finalizer.committed").exists()
        assert client.resume_external(id_in(note), "once").number == 1
        reaches(client, job_id, "completed", process)
    assert follow_ups(dsn, "answered", job_id)[0]["number"] == 1


def test_a_stop_and_a_deadline_reach_a_handler_that_waits_for_the_database(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    with pool(tmp_path, dsn, workers=2, **OPTIONS) as process, psycopg.connect(dsn) as conn:
        process.ready()
        # Nobody writes there, and all may read: the dispatcher's audit would else hold its claims up.
        conn.execute("lock table awa_pool.leases in share row exclusive mode")
        jobs = {}
        for asks in (Watch, WatchAsync):
            for deadline in (1.0, None):
                note = tmp_path / f"{asks.__name__}-{deadline}"
                jobs[note] = client.insert(asks(str(note)), deadline=deadline)
                wait_until("it asks", lambda path=Path(f"{note}.asked"): path.exists(), 30.0)
        for asks, word in ((Watch, "DeadlineExceeded"), (WatchAsync, "TaskDeadlineExceeded")):
            assert id_in(tmp_path / f"{asks.__name__}-1.0") == word
        process.process.terminate()
        for asks in (Watch, WatchAsync):
            assert id_in(tmp_path / f"{asks.__name__}-None") == "ShuttingDown"
        conn.rollback()
        assert process.ended() == 0, process.log
    for note, job_id in jobs.items():
        found = row(client, job_id)
        if note.name.endswith("None"):  # an interruption: no attempt is used
            assert (found.state, found.attempt, found.errors) == ("available", 0, []), process.log
        else:
            assert (found.state, found.attempt, len(found.errors)) == ("retryable", 1, 1), process.log


def test_messages_that_are_lost_doubled_and_reordered_register_and_park_once_all_the_same(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    notes = [tmp_path / f"note{n}" for n in range(10)]
    jobs = [client.insert((Gate, GateAsync)[n % 2](str(note))) for n, note in enumerate(notes)]
    with pool(tmp_path, dsn, faults="seed=5 drop=0.04 double=0.1 late=0.05", **OPTIONS) as process:
        for job_id, note in zip(jobs, notes, strict=True):
            callback_id = id_in(note)
            reaches(client, job_id, "waiting_external", process)
            assert client.resume_external(callback_id, job_id).number == 1
        for job_id in jobs:
            done = reaches(client, job_id, "completed", process)
            assert done.attempt == 1 and done.errors == []
    assert [follow_ups(dsn, "answered", job_id)[0]["payload"] for job_id in jobs] == jobs
