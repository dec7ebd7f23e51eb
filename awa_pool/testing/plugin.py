"""Fixtures for pytest: a throw-away database for each test, and a client on it. docs/testing.md shows them.

Loaded by every pytest that runs where awa-pool is installed: nothing but this is imported before a fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from awa_pool.client import AsyncClient, Client
    from awa_pool.store.databases import Databases

_APP_HELP = "the app under test, module:attribute; its client is pointed at the throw-away database"
_DSN_HELP = "a PostgreSQL server for awa-pool's fixtures, whose user may create databases; without it an embedded one is started"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--awa-dsn` and the setting `awa_app`."""
    parser.getgroup("awa-pool").addoption("--awa-dsn", metavar="DSN", default=None, help=_DSN_HELP)
    parser.addini("awa_app", _APP_HELP, default="")


@pytest.fixture(scope="session")
def awa_databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    """The server: that of `--awa-dsn`, else an embedded one that is gone after the run."""
    from awa_pool.errors import AwaError, EmbeddedError

    with ExitStack() as stack:
        dsn = pytestconfig.getoption("--awa-dsn")
        try:
            if not dsn:
                from awa_pool.embedded import temporary_server

                dsn = stack.enter_context(temporary_server("awa-test-", in_memory=True)).dsn
            from awa_pool.store.databases import Databases

            databases = Databases(dsn)
        except EmbeddedError as problem:
            why = f"no database for awa-pool's fixtures: {problem}; or name a server with --awa-dsn"
            if os.environ.get("CI"):  # a run that tests nothing must not look like one that passed
                pytest.fail(why, pytrace=False)
            pytest.skip(why)
        except AwaError as problem:
            pytest.fail(f"no database for awa-pool's fixtures: {problem}", pytrace=False)
        stack.callback(databases.close)
        yield databases


@pytest.fixture
def awa_app(pytestconfig: pytest.Config) -> Client | AsyncClient | None:
    """The app under test; override it, or set `awa_app = "shop.jobs:client"` for pytest. None: no app."""
    named = pytestconfig.getini("awa_app")
    if not named:
        return None
    from awa_pool.worker.loading import load_named

    app: Client | AsyncClient = load_named(named)
    return app


@pytest.fixture
def awa_dsn(awa_databases: Databases, awa_app: Any) -> Iterator[str]:
    """DSN of a database of this test's own, with the schema installed.

    The app's client is pointed at it until the test ends: no handler can reach another database through it.
    """
    from awa_pool.errors import AwaError

    try:
        name = awa_databases.create("awa_pool" if awa_app is None else awa_app.schema)
    except AwaError as problem:
        pytest.fail(f"no database for awa-pool's fixtures: {problem}", pytrace=False)
    dsn = awa_databases.dsn(name)
    with nullcontext() if awa_app is None else _pointed(awa_app, dsn):
        yield dsn
    awa_databases.drop(name)


@pytest.fixture
def awa_client(awa_dsn: str, awa_app: Any) -> Iterator[Client | AsyncClient]:
    """The app's own client, on this test's database until it ends; without an app a client of the test's own."""
    if awa_app is not None:
        yield awa_app
        return
    from awa_pool.client import Client

    with Client(awa_dsn, schema="awa_pool") as client:
        yield client


@pytest.fixture
def awa_async_client(awa_dsn: str, awa_app: Any) -> Iterator[AsyncClient]:
    """An AsyncClient on this test's database, with the tasks of the app; the app's own where it is one."""
    from awa_pool.client import AsyncClient

    if isinstance(awa_app, AsyncClient):
        yield awa_app
        return
    client = AsyncClient(awa_dsn, schema="awa_pool" if awa_app is None else awa_app.schema)
    if awa_app is not None:
        client.registry = awa_app.registry
    with _pointed(client, awa_dsn):
        yield client


@contextmanager
def _pointed(client: Any, dsn: str) -> Iterator[None]:
    """Point a client at another database; what it had open stays open, unused."""
    kept = client.dsn, client._pool
    client.dsn, client._pool = dsn, None
    try:
        yield
    finally:
        pool = client._pool
        client.dsn, client._pool = kept
        if pool is not None:
            from awa_pool.store.pool import Pool

            if isinstance(pool, Pool):
                pool.close()
            del pool  # an asynchronous one ends its connections by itself: its event loop may be closed
