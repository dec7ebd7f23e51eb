"""Which connections `job.completing` takes, and what is said of those that could not complete the job with their rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from completing_rig import UNTIL_DONE, App, Ship, never, ships
from servers import Server

from awa_pool import Client, SchemaMismatch, StoreRefused, ValidationError
from awa_pool.job import Job
from awa_pool.store.migrate import migrate
from awa_pool.testing import WorkResult, work_one


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    found = App(dsn)
    with found.client:
        yield found


def test_connections_of_other_kinds_are_refused(app: App) -> None:
    async def mixed(job: Job[Ship]) -> None:
        async with await psycopg.AsyncConnection.connect(app.dsn) as conn:
            says = "needs a psycopg.Connection, not AsyncConnection"
            with pytest.raises(ValidationError, match=says), job.completing(conn):
                pass
        with psycopg.connect(app.dsn) as plain:
            with pytest.raises(ValidationError, match="needs a psycopg.AsyncConnection, not Connection"):
                async with job.completing(plain):
                    pass
            with pytest.raises(ValidationError, match="not str"), job.completing(app.dsn):
                pass

    assert app.ship(mixed)[1].error_type == "NotCompleted"


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(
    "statement", ["commit", "rollback", "commit and chain", "rollback and chain", "rollback; begin"]
)
def test_a_block_whose_transaction_was_ended_by_a_statement_in_it_does_not_complete(
    app: App, statement: str, within: bool
) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            if within:
                conn.execute("select 1")
            with job.completing(conn):
                conn.execute("insert into shipped values (7)")
                conn.execute(statement)  # type: ignore[arg-type]

    _, result = app.ship(handle)
    assert result.is_retryable and result.error_type == "TransitionRefused"
    assert "ended within its block" in (result.error or "")

    async def handle_async(job: Job[Ship]) -> None:
        async with await psycopg.AsyncConnection.connect(app.dsn) as conn, job.completing(conn):
            await conn.execute(statement)  # type: ignore[arg-type]

    assert app.ship(handle_async)[1].error_type == "TransitionRefused"


def test_connections_that_can_do_nothing_are_refused(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn) as conn:
            with contextlib.suppress(psycopg.Error):
                conn.execute("select 1 / 0")
            with pytest.raises(ValidationError, match="roll it back first"):
                ships(job, conn)
        unfit = pytest.raises(ValidationError, match="its client_encoding is SQL_ASCII")
        with psycopg.connect(app.dsn, client_encoding="SQL_ASCII") as conn, unfit:
            ships(job, conn)
        with pytest.raises(ValidationError, match="closed"):
            ships(job, conn)
        for setting, says in [
            ("isolation level repeatable read", "READ COMMITTED only"), ("read only", "read-only")
        ]:  # fmt: skip
            with psycopg.connect(app.dsn) as conn:
                conn.execute(f"set transaction {setting}")  # type: ignore[arg-type]
                with pytest.raises(ValidationError, match=says):
                    ships(job, conn)

    assert app.ship(handle)[1].error_type == "NotCompleted"


def test_connections_that_lead_elsewhere_are_refused(app: App, pg_server: Server, empty_dsn: str) -> None:
    migrate(empty_dsn, "awa_pool")

    def handle(job: Job[Ship]) -> None:
        missing = pytest.raises(SchemaMismatch, match="awa-pool migrate --schema awa_pool")
        with psycopg.connect(pg_server.dsn("postgres")) as conn, missing:
            ships(job, conn)
        foreign = pytest.raises(ValidationError, match="another database")
        with psycopg.connect(empty_dsn) as conn, foreign:
            ships(job, conn)

    assert app.ship(handle)[1].error_type == "NotCompleted"


def test_a_role_without_the_rights_is_refused_by_name(app: App) -> None:
    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn, autocommit=True) as conn:
            conn.execute("create role poor")
            conn.execute("set role poor")
            with pytest.raises(StoreRefused, match="may not use schema"):
                ships(job, conn)
            conn.execute("reset role")
            conn.execute("drop role poor")

    assert app.ship(handle)[1].error_type == "NotCompleted"


def test_the_rights_that_the_page_lists_are_enough(app: App) -> None:
    page = (Path(__file__).parents[2] / "docs" / "caller-owned-completion.md").read_text()
    (grants,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)

    def handle(job: Job[Ship]) -> None:
        with psycopg.connect(app.dsn, autocommit=True) as conn:
            conn.execute("set role shop_app")
            with job.completing(conn):
                pass

    with psycopg.connect(app.dsn, autocommit=True) as conn:
        conn.execute("create role shop_app")
        conn.execute(grants)
        try:
            assert app.ship(handle)[1].is_completed
            assert app.ship(handle, unique_opts={"states": UNTIL_DONE})[1].is_completed
        finally:
            conn.execute("drop owned by shop_app; drop role shop_app")


def test_the_schema_of_the_pool_is_meant(empty_dsn: str) -> None:
    migrate(empty_dsn, "my jobs")
    with Client(empty_dsn, schema="my jobs") as client:
        client.task(Ship, caller_completes=True)(never)
        client.insert(Ship())

        def handle(job: Job[Ship]) -> None:
            with psycopg.connect(empty_dsn) as conn, job.completing(conn):
                pass

        result = work_one(client, Ship, handle)
        assert isinstance(result, WorkResult) and result.is_completed
