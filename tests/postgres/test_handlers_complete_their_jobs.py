"""`job.completing`: rows of a handler and its job's completion commit together, on whatever connection it brings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from completing_rig import App, Bill, Ship, never, shipped, ships
from general_rig import Queue
from psycopg.rows import dict_row

from awa_pool import AsyncClient, LeaseLost, Snooze, StagingError, State, TransitionRefused
from awa_pool.job import Job
from awa_pool.testing import WorkResult, work_one


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    found = App(dsn)
    with found.client:
        yield found


@pytest.mark.parametrize("options", [{}, {"autocommit": True}, {"row_factory": dict_row}])
def test_the_block_commits_rows_and_completion_by_itself(app: App, options: dict[str, Any]) -> None:
    def handle(job: Job[Ship]) -> None:
        with contextlib.closing(psycopg.connect(app.dsn, **options)) as conn:
            ships(job, conn)

    job_id, result = app.ship(handle)
    assert result.is_completed and result.state is State.COMPLETED and result.error is None
    assert shipped(app) == [7]
    row = app.client.get_job(job_id)
    assert row is not None and row.state == "completed" and row.attempt == 1 and row.errors == []
    assert app.heard == ["Started", "Completed"]


def test_within_a_transaction_of_the_handlers_own_that_one_decides(app: App) -> None:
    def commits(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            conn.execute("insert into shipped values (1)")
            ships(job, conn)
            conn.execute("insert into shipped values (9)")

    assert app.ship(commits)[1].is_completed
    assert shipped(app) == [1, 7, 9]

    def forgets(job: Job[Ship]) -> None:
        with contextlib.closing(psycopg.connect(app.dsn)) as conn:
            conn.execute("insert into shipped values (2)")
            with job.completing(conn):
                conn.execute("insert into shipped values (8)")

    job_id, result = app.ship(forgets)
    assert result.is_retryable and result.state is State.RETRYABLE
    assert result.error_type == "NotCommitted" and "was not committed" in (result.error or "")
    assert shipped(app) == [1, 7, 9]
    row = app.client.get_job(job_id)
    assert row is not None and row.attempt == 1


def test_an_exception_in_the_block_completes_nothing_and_ends_the_attempt_as_any(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            conn.execute("insert into shipped values (7)")
            raise KeyError("no such carrier")

    _, result = app.ship(handle)
    assert result.is_retryable and result.error_type == "KeyError"
    assert shipped(app) == [] and app.heard == ["Started", "Retried"]


def test_a_block_that_failed_may_be_tried_again_in_the_same_attempt(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn, autocommit=True) as conn:
            conn.execute("insert into shipped values (7)")
            with contextlib.suppress(psycopg.errors.UniqueViolation):
                ships(job, conn)
            conn.execute("delete from shipped")
            ships(job, conn)

    assert app.ship(handle)[1].is_completed
    assert shipped(app) == [7]


def test_a_rolled_back_block_completes_nothing(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            conn.execute("insert into shipped values (7)")
            raise psycopg.Rollback

    _, result = app.ship(handle)
    assert result.is_retryable and result.error_type == "NotCompleted" and shipped(app) == []


def test_a_handler_that_returns_without_completing_has_failed(app: App) -> None:
    job_id, result = app.ship(lambda job: None)
    assert result.is_retryable and result.error_type == "NotCompleted"
    assert "job.completing(conn)" in (result.error or "")
    assert app.heard == ["Started", "Retried"]
    row = app.client.get_job(job_id)
    assert row is not None and row.state == "retryable"


def test_other_endings_are_what_they_are_everywhere(app: App) -> None:
    job_id, result = app.ship(lambda job: Snooze(60))
    assert result.is_snoozed
    app.client.cancel(job_id)


def test_what_a_handler_raises_after_its_commit_is_logged_and_the_job_is_completed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(job: Job[Ship]) -> None:
        with contextlib.closing(psycopg.connect(app.dsn)) as conn:
            ships(job, conn)
        raise ValueError("a se" + "cret of the args")

    job_id, result = app.ship(handle)
    assert result.is_completed and isinstance(result.exception, ValueError)
    assert f"job {job_id}, kind ship" in caplog.text and "ValueError" in caplog.text
    assert "secret" not in caplog.text
    assert app.heard == ["Started", "Completed"]


def test_what_it_raises_while_the_commit_is_still_to_come_undoes_both(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            conn.execute("select 1")
            ships(job, conn)
            raise ValueError("after all")

    _, result = app.ship(handle)
    assert result.is_retryable and result.error_type == "ValueError"
    assert shipped(app) == [] and app.heard == ["Started", "Retried"]
    assert "counts if that was not committed" in caplog.text


def test_a_cancel_before_the_end_of_the_block_rolls_the_rows_back(app: App, q: Queue) -> None:
    seen: list[BaseException] = []

    def handle(job: Job[Ship]) -> None:
        try:
            with psycopg.connect(app.dsn) as conn, job.completing(conn):
                conn.execute("insert into shipped values (7)")
                q.one("select awa_pool.cancel(%s)", job.id)
        except LeaseLost as lost:
            seen.append(lost)
            raise

    job_id, result = app.ship(handle)
    assert result.is_stale and len(seen) == 1 and shipped(app) == []
    assert q.state(job_id) == "cancelled"


def test_one_that_ended_before_the_block_is_told_so_at_once(app: App, q: Queue) -> None:
    def handle(job: Job[Ship]) -> None:
        q.one("select awa_pool.cancel(%s)", job.id)
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            raise AssertionError("the block has begun")

    _, result = app.ship(handle)
    assert result.is_stale and isinstance(result.exception, LeaseLost)


def test_jobs_put_in_with_the_connection_exist_exactly_if_it_commits(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            with job.completing(conn):
                app.client.insert(Bill(7), conn=conn)
            if job.attempt == 1:
                raise ValueError("once")

    def bills() -> int:
        return len(app.client.list_jobs(queue="bills"))

    with contextlib.suppress(ValueError):
        app.ship(lambda job: _first(job, app))
    assert bills() == 0
    assert app.ship(handle)[1].is_completed
    assert bills() == 1


def _first(job: Job[Ship], app: App) -> None:
    with psycopg.connect(app.dsn) as conn, job.completing(conn):
        app.client.insert(Bill(7), conn=conn)
        raise ValueError("undone")


def test_staging_is_refused_and_then_the_attempt_cannot_complete(app: App) -> None:
    said: list[str] = []

    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            conn.execute("insert into shipped values (7)")
            try:
                job.enqueue_on_completion(Bill(7))
            except StagingError as refused:
                said.append(str(refused))

    _, result = app.ship(handle)
    assert "client.insert(…, conn=conn)" in said[0]
    assert result.is_failed and isinstance(result.exception, StagingError) and shipped(app) == []


def test_kinds_that_do_not_declare_it_are_refused(app: App) -> None:
    def handle(job: Job[Any]) -> None:
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            pass

    app.client.insert(Bill(1))
    result = work_one(app.client, Bill, handle)
    assert isinstance(result, WorkResult)
    assert isinstance(result.exception, TransitionRefused) and "caller_completes=True" in str(
        result.exception
    )


def test_a_second_block_is_refused_before_and_after_the_first_has_come_to_its_end(app: App) -> None:
    refused: list[str] = []

    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            with job.completing(conn):
                for again in (conn, conn):
                    with pytest.raises(TransitionRefused) as twice, job.completing(again):
                        pass
                    refused.append(str(twice.value))
            with pytest.raises(TransitionRefused) as after, job.completing(conn):
                pass
            refused.append(str(after.value))

    assert app.ship(handle)[1].is_completed
    assert "one block" in refused[0] and "for once" in refused[-1]


def test_two_connections_that_would_wait_for_each_other_are_refused(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as first, psycopg.connect(app.dsn) as second:
            first.execute("select 1")
            ships(job, first)
            with pytest.raises(TransitionRefused, match="open still"):
                ships(job, second)
            with pytest.raises(LeaseLost):
                ships(job, first)

    assert app.ship(handle)[1].is_completed


def test_async_handlers_complete_with_connections_of_theirs(app: App) -> None:
    async def handle(job: Job[Ship]) -> None:
        async with await psycopg.AsyncConnection.connect(app.dsn) as conn, job.completing(conn) as same:
            assert same is conn
            await conn.execute("insert into shipped values (7)")

    async def fails(job: Job[Ship]) -> None:
        async with await psycopg.AsyncConnection.connect(app.dsn) as conn, job.completing(conn):
            await conn.execute("insert into shipped values (8)")
            raise KeyError("no such carrier")

    assert app.ship(handle)[1].is_completed
    assert app.ship(fails)[1].error_type == "KeyError"
    assert shipped(app) == [7]


def test_an_async_client_works_them_too(app: App) -> None:
    async def handle(job: Job[Ship]) -> None:
        async with await psycopg.AsyncConnection.connect(app.dsn) as conn, job.completing(conn):
            await conn.execute("insert into shipped values (7)")

    def plain(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn, job.completing(conn):
            conn.execute("insert into shipped values (8)")

    async def both() -> None:
        async with AsyncClient(app.dsn) as client:
            client.task(Ship, caller_completes=True)(never)
            for handler in (handle, plain):
                await client.insert(Ship())
                result = await work_one(client, Ship, handler)
                assert result.is_completed, result

    asyncio.run(both())
    assert shipped(app) == [7, 8]


def test_once_the_handler_has_returned_its_block_is_refused(app: App) -> None:
    kept: list[Job[Ship]] = []
    app.ship(lambda job: kept.append(job))
    with psycopg.connect(app.dsn) as conn, pytest.raises(LeaseLost, match="handlers that run"):
        ships(kept[0], conn)
    assert shipped(app) == []


class Unlucky(psycopg.Connection[Any]):
    """Loses its session right before its commit, or the answer to that."""

    before: Callable[[int], Any] | None = None

    @contextlib.contextmanager
    def transaction(self, *args: Any, **more: Any) -> Iterator[psycopg.Transaction]:
        with super().transaction(*args, **more) as transaction:
            yield transaction
            if self.before is not None:
                self.before(self.info.backend_pid)
        raise psycopg.OperationalError("the answer is lost")


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_is_lost_counts_exactly_if_it_landed(
    app: App, q: Queue, landed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(job: Job[Ship]) -> None:
        with contextlib.closing(Unlucky.connect(app.dsn)) as conn:
            if not landed:
                conn.before = lambda pid: q.one("select pg_terminate_backend(%s)", pid)
            ships(job, conn)

    job_id, result = app.ship(handle)
    assert isinstance(result.exception, psycopg.OperationalError)
    assert result.is_completed is landed and result.is_retryable is not landed
    assert (shipped(app), q.state(job_id)) == (([7], "completed") if landed else ([], "retryable"))
    assert "Completed" not in app.heard or landed
