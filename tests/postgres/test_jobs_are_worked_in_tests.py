"""`work_one` and `drain`: jobs worked in the test's process, ended by the code that a pool ends them with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from general_rig import Queue

from awa_pool import AsyncClient, Cancel, Client, RetryAfter, Snooze, StagingError, State, TerminalError
from awa_pool.job import Job
from awa_pool.store import statements as do
from awa_pool.testing import assert_enqueued, drain, refute_enqueued, work_one


@dataclass
class Stage:
    name: str
    count: int = 1
    keys: list[str] = field(default_factory=list)


@dataclass
class Follow:
    of: str
    n: int = 0


def stage(job: Job[Stage]) -> None:
    for n in range(job.args.count):
        job.enqueue_on_completion(Follow(job.args.name, n))
    for key in job.args.keys:
        job.enqueue_on_completion(Follow(key), unique_opts={})


async def follow(job: Job[Follow]) -> None:
    await asyncio.sleep(0)


def declare(app: Client | AsyncClient) -> Any:
    app.task(Stage, queue="stages", max_attempts=2, backoff=3600.0)(stage)
    app.task(Follow, queue="follows")(follow)
    return app


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with declare(Client(dsn)) as client:
        yield client


def test_a_job_is_claimed_handled_and_completed_with_its_follow_ups(client: Client) -> None:
    job_id = client.insert(Stage("a", 2))
    result = work_one(client, Stage)
    assert result and (result.outcome, result.state) == ("completed", State.COMPLETED)
    assert result.job is not None and (result.job.id, result.job.attempt, result.job.run_lease) == (
        job_id,
        1,
        1,
    )
    assert [(each.kind, each.args["n"], each.queue) for each in result.staged] == [
        ("follow", 0, "follows"), ("follow", 1, "follows"),
    ]  # fmt: skip
    rows = assert_enqueued(client, Follow, parent=job_id, count=2)
    assert [row.args["n"] for row in rows] == [0, 1]
    row = client.get_job(job_id)
    assert row is not None and (row.state, row.attempt, row.run_lease) == ("completed", 1, 1)
    assert not work_one(client, Stage)


def fail(job: Job[Any]) -> None:
    stage(job)
    raise ValueError("no luck")


def end_terminally(job: Job[Any]) -> None:
    raise TerminalError("never")


def swallow(job: Job[Any]) -> None:
    try:
        job.enqueue_on_completion(Follow("x"), priority=9)
    except StagingError:
        return


@pytest.mark.parametrize(
    ("handler", "outcome", "state", "error"),
    [
        (fail, "retryable", "retryable", "no luck"),
        (end_terminally, "failed", "failed", "never"),
        (swallow, "failed", "failed", "priority"),
        (lambda job: RetryAfter(3600), "retryable", "retryable", "another try"),
        (lambda job: Snooze(3600), "snoozed", "scheduled", None),
        (lambda job: Cancel("not wanted"), "cancelled", "cancelled", "not wanted"),
        (lambda job: 7, "completed", "completed", None),
    ],
)
def test_every_outcome_is_that_of_a_pool(
    client: Client, handler: Any, outcome: str, state: str, error: str | None
) -> None:
    job_id = client.insert(Stage("a"))
    result = work_one(client, Stage, handler)
    assert (result.outcome, result.state) == (outcome, state)
    assert (error or "") in (result.error or "")
    row = client.get_job(job_id)
    assert row is not None and row.state == state
    assert row.attempt == (0 if outcome == "snoozed" else 1)
    refute_enqueued(client, Follow)


def test_the_last_attempt_fails_the_job_and_leases_rise(client: Client) -> None:
    job_id = client.insert(Stage("a"))
    assert work_one(client, Stage, fail).is_retryable
    refute_enqueued(client, Stage, state="available")
    assert not work_one(client, Stage, fail)  # it waits for its time
    client.retry(job_id)
    with psycopg.connect(client._found_dsn(), autocommit=True) as conn:
        conn.execute("update awa_pool.jobs_returned set attempt = 1")
    result = work_one(client, Stage, fail)
    assert result.is_failed and result.job is not None
    assert result.job.run_lease > 1


def test_a_job_cancelled_while_its_handler_runs_is_stale_and_leaves_nothing(client: Client) -> None:
    job_id = client.insert(Stage("a"))

    def cancel_and_stage(job: Job[Stage]) -> None:
        client.cancel(job_id)
        stage(job)

    result = work_one(client, Stage, cancel_and_stage)
    assert result.is_stale and result.staged == ()
    refute_enqueued(client, Follow)
    row = client.get_job(job_id)
    assert row is not None and row.state == "cancelled"


def test_a_key_that_another_job_holds_skips_the_follow_up(client: Client) -> None:
    holder = client.insert(Follow("k"), unique_opts={})
    client.insert(Stage("a", 0, ["k"]))
    result = work_one(client, Stage)
    assert result.is_completed and result.skipped == (("follow", holder),)
    assert_enqueued(client, Follow, count=1)


def test_a_follow_up_that_the_database_refuses_undoes_the_completion(client: Client) -> None:
    with psycopg.connect(client._found_dsn(), autocommit=True) as conn:
        conn.execute(
            "create function refuse() returns trigger language plpgsql as "
            "$$ begin if new.kind = 'follow' then raise 'not this one'; end if; return new; end $$"
        )
        conn.execute(
            "create trigger refuse before insert on awa_pool.jobs_ready for each row execute function refuse()"
        )
    client.insert(Stage("a"))
    result = work_one(client, Stage)
    assert result.is_retryable and result.staged == ()
    assert "not this one" in (result.error or "")
    refute_enqueued(client, Follow)


def test_specs_run_and_a_failing_one_undoes_the_completion(client: Client) -> None:
    client.on_completed_enqueue(Stage, lambda args, job: Follow("spec"))
    client.insert(Stage("a"))
    assert [each.args["of"] for each in work_one(client, Stage).staged] == ["spec", "a"]

    def broken(args: Stage, job: Job[Stage]) -> None:
        raise ValueError("a broken spec")

    client.on_completed_enqueue(Stage, broken)
    client.insert(Stage("b"))
    result = work_one(client, Stage)
    assert result.is_retryable and "a broken spec" in (result.error or "")
    refute_enqueued(client, Follow("b"))


def test_hooks_hear_what_was_committed_and_nothing_else(client: Client) -> None:
    heard: list[tuple[str, str]] = []
    client.on_event(Stage)(lambda event: heard.append((type(event).__name__, event.args.name)))
    client.insert(Stage("a"))
    work_one(client, Stage)
    client.insert(Stage("b"))
    work_one(client, Stage, fail)
    cancelled = client.insert(Stage("c"))
    work_one(client, Stage, lambda job: client.cancel(cancelled))
    assert heard == [
        ("Started", "a"), ("Completed", "a"), ("Started", "b"), ("Retried", "b"), ("Started", "c"),
        ("Cancelled", "c"),
    ]  # fmt: skip


def test_what_a_failed_attempt_said_of_its_progress_is_there_for_the_next(client: Client) -> None:
    def halfway(job: Job[Stage]) -> None:
        job.set_progress(50, "half way")
        raise ValueError("no luck")

    job_id = client.insert(Stage("a"))
    assert work_one(client, Stage, halfway).is_retryable
    seen: list[Any] = []
    client.retry(job_id)
    assert work_one(client, Stage, lambda job: seen.append(job.progress)).is_completed
    assert seen == [{"percent": 50, "message": "half way"}]


def test_only_the_wanted_kind_is_worked_and_the_others_wait_on(client: Client) -> None:
    others = [client.insert({"n": n}, kind="other", queue="stages") for n in range(3)]
    wanted = client.insert(Stage("a"))
    result = work_one(client, Stage)
    assert result.job is not None and result.job.id == wanted
    rows = assert_enqueued(client, "other", state="available", count=3)
    assert [(row.id, row.attempt) for row in rows] == [(job_id, 0) for job_id in others]
    worked = [work_one(client, "other", lambda job: None).job for _ in others]
    assert [job.id for job in worked if job] == others


def test_a_job_is_found_in_whatever_queue_it_lies(client: Client) -> None:
    client.insert(Stage("a"), queue="elsewhere")
    assert work_one(client, Stage).is_completed
    client.insert(Stage("a"), queue="elsewhere")
    assert not work_one(client, Stage, queue="stages")
    assert work_one(client, queue="elsewhere").is_completed


def test_a_due_job_is_worked_and_a_later_one_is_not(client: Client) -> None:
    client.insert(Stage("a"), run_at=datetime.now(UTC) - timedelta(seconds=5))
    client.insert(Stage("b"), run_at=datetime.now(UTC) + timedelta(hours=1))
    result = work_one(client, Stage)
    assert result.job is not None and result.job.args.name == "a"
    none = work_one(client, Stage)
    assert none.no_job and "no job of kind 'stage'" in (none.error or "")
    assert [each.job.args.name for each in drain(client, later=True, queue="stages") if each.job] == ["b"]


def test_no_job_says_why(client: Client) -> None:
    client.insert(Stage("a"))
    client.pause_queue("stages")
    assert "queue 'stages' is paused" in (work_one(client, Stage).error or "")


def test_args_that_do_not_decode_fail_as_in_a_worker(client: Client) -> None:
    client.insert({"name": 3}, kind="stage", queue="stages")
    result = work_one(client, Stage)
    assert result.is_failed and result.error_type == "DecodeError"


def test_drain_works_all_there_is_and_what_comes_of_it(client: Client) -> None:
    client.insert_many([Stage("a", 2), Stage("b", 1)])
    client.insert({"n": 1}, kind="somebody_elses", queue="not_ours")
    done = drain(client)
    assert [each.outcome for each in done] == ["completed"] * 5
    assert [each.job.kind for each in done if each.job] == ["stage", "stage", "follow", "follow", "follow"]
    refute_enqueued(client, Stage)
    assert_enqueued(client, "somebody_elses", count=1)
    assert drain(client) == []


def test_drain_pays_the_follow_ups_of_an_end_that_no_handler_heard_of(client: Client) -> None:
    client.on_exhausted_enqueue(Stage, lambda args, job, error, attempt: Follow(f"after {args.name}"))
    job_id = client.insert(Stage("a"), max_attempts=1)
    info = json.dumps({"outcomes": client.registry.triggers.wanted([("stage", Stage)])})
    with Queue(client._found_dsn(), "stages") as queue:
        client._run(do.register_runtime(queue.runtime, "elsewhere", 1, info), None)
        (attempt,) = queue.claim()
        lost = attempt.ended("lost", error={"error": "its worker was killed"})
        queue.rows("select * from awa_pool.finish(%s::json)", json.dumps([lost]))
    owed, paid = drain(client)
    assert owed.job is not None and owed.job.kind == "awa:outcome" and owed.is_completed
    assert paid.job is not None and paid.job.args == Follow("after a")
    assert paid.job.metadata["awa:parent"] == job_id


def test_drain_leaves_what_is_due_later_unless_told(client: Client) -> None:
    client.task(kind="stubborn", queue="stages", max_attempts=3, backoff=0.01)(fail)
    client.insert(
        {"name": "x"}, kind="stubborn", queue="stages", run_at=datetime.now(UTC) + timedelta(hours=1)
    )
    assert drain(client) == []
    done = drain(client, later=True)
    assert [each.outcome for each in done] == ["retryable", "retryable", "failed"]


def test_drain_ends_where_a_job_puts_itself_in_again(client: Client) -> None:
    def again(job: Job[Any]) -> None:
        job.enqueue_on_completion({}, kind="endless", queue="stages")

    client.registry.add(dict, again, kind="endless", queue="stages")
    client.insert({}, kind="endless", queue="stages")
    with pytest.raises(AssertionError, match="5 jobs have been worked.*endless"):
        drain(client, most=5)


def test_the_tests_own_failure_goes_through_and_the_job_goes_back(client: Client) -> None:
    client.insert(Stage("a"))
    with pytest.raises(pytest.fail.Exception):
        work_one(client, Stage, lambda job: pytest.fail("not to be called"))
    (row,) = assert_enqueued(client, Stage, state="available")
    assert row.attempt == 0


@pytest.mark.parametrize(
    ("what", "handler", "wanted"),
    [("unknown", None, "no handler"), (None, stage, "needs the args type"), ({}, None, "kind=")],
)
def test_what_cannot_be_worked_is_refused_before_anything_is_claimed(
    client: Client, what: Any, handler: Any, wanted: str
) -> None:
    with pytest.raises(TypeError, match=wanted):
        work_one(client, what, handler)


def test_the_same_with_an_async_client(dsn: str) -> None:
    async def check() -> None:
        async with declare(AsyncClient(dsn)) as client:
            job_id = await client.insert(Stage("a", 1))
            result = await work_one(client, Stage)
            assert result.is_completed
            await assert_enqueued(client, Follow("a"), parent=job_id)
            followed = await work_one(client, Follow)
            assert followed.is_completed
            await client.insert(Stage("b", 2))
            assert [each.outcome for each in await drain(client)] == ["completed"] * 3
            await refute_enqueued(client, Follow)
            await client.insert(Stage("c"))
            assert (await work_one(client, Stage, fail)).is_retryable
            with pytest.raises(AssertionError, match="found none"):
                await assert_enqueued(client, Follow("z"))

    asyncio.run(check())


def test_a_test_that_is_cut_gives_the_job_back(dsn: str) -> None:
    async def hang(job: Job[Follow]) -> None:
        await asyncio.sleep(60)

    async def check() -> None:
        async with declare(AsyncClient(dsn)) as client:
            await client.insert(Follow("a"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await work_one(client, Follow, hang)
            (row,) = await assert_enqueued(client, Follow, state="available")
            assert row.attempt == 0

    asyncio.run(check())


@pytest.mark.parametrize(
    "raised", [StopIteration(), SystemExit(3), GeneratorExit(), asyncio.CancelledError()]
)
def test_whatever_a_handler_raises_ends_its_attempt(dsn: str, raised: BaseException) -> None:
    def handler(job: Job[Stage]) -> None:
        raise raised

    async def async_handler(job: Job[Stage]) -> None:
        raise raised

    async def check() -> None:
        async with declare(AsyncClient(dsn)) as client:
            for each in (handler, async_handler):
                await client.insert(Stage("a"))
                assert (await work_one(client, Stage, each)).is_retryable

    asyncio.run(check())
    with declare(Client(dsn)) as client:
        for each in (handler, async_handler):
            client.insert(Stage("a"))
            assert work_one(client, Stage, each).is_retryable


def test_a_sync_client_inside_a_loop_runs_no_async_handler_and_keeps_the_job(client: Client) -> None:
    async def check() -> None:
        with pytest.raises(TypeError, match="AsyncClient"):
            work_one(client, Follow)

    client.insert(Follow("a"))
    asyncio.run(check())
    assert_enqueued(client, Follow, state="available", count=1)


# --- assertions ----------------------------------------------------------------------------------------------


def test_a_job_is_found_by_what_is_said_of_it(client: Client) -> None:
    client.insert(Stage("a", 2), priority=1, tags=["x", "y"], metadata={"m": 1, "n": 2}, ordering_key="o")
    for which in (
        {"queue": "stages"}, {"priority": 1}, {"tags": ["x"]}, {"metadata": {"m": 1}}, {"ordering_key": "o"},
        {"args": {"name": "a"}}, {"state": "available"}, {"state": ["available", "failed"]}, {"count": 1},
        {"max_attempts": 2},
    ):  # fmt: skip
        assert len(assert_enqueued(client, Stage, **which)) == 1  # type: ignore[arg-type]
    for which in (
        {"queue": "q"}, {"priority": 2}, {"tags": ["z"]}, {"metadata": {"m": 2}}, {"ordering_key": "p"},
        {"args": {"name": "b"}}, {"state": "failed"}, {"parent": 1}, {"max_attempts": 3},
    ):  # fmt: skip
        refute_enqueued(client, Stage, **which)  # type: ignore[arg-type]
    assert_enqueued(client, Stage("a", 2))
    refute_enqueued(client, Stage("a", 1))


def test_a_failure_shows_what_is_there_instead(client: Client) -> None:
    with pytest.raises(AssertionError, match="there is no job at all"):
        assert_enqueued(client, Stage)
    client.insert(Follow("a"))
    with pytest.raises(
        AssertionError, match=r"(?s)none is of this kind.*#1 follow  available  queue follows"
    ):
        assert_enqueued(client, Stage)
    client.insert(Stage("a"), tags=["t"])
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(client, Stage("b"), queue="stages")
    assert "#2 stage" in str(failed.value) and '<- args are not {"name":"b"' in str(failed.value)
    with pytest.raises(AssertionError, match=r"(?s)2 jobs of kind 'stage'.*found 1.*this one fits"):
        assert_enqueued(client, Stage, count=2)
    work_one(client, Stage)
    with pytest.raises(AssertionError, match="it is completed"):
        assert_enqueued(client, Stage)
    with pytest.raises(AssertionError, match=r"expected no job.*found 2(?s:.*)#1 follow"):
        refute_enqueued(client, Follow)


def test_a_misspelt_criterion_is_no_silent_success(client: Client) -> None:
    with pytest.raises(TypeError, match="queu"):
        refute_enqueued(client, Stage, queu="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="expected one of"):
        refute_enqueued(client, Stage, state="finished")
