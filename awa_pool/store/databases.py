"""Throw-away databases for the tests of apps: made as copies of one that has the schema, and dropped afterwards."""

from __future__ import annotations

import itertools
import os

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from awa_pool import sqlfiles
from awa_pool.errors import ConfigError

from .calls import Call, nothing
from .connection import connect
from .migrate import migrate
from .sqlstates import translate

PREFIX = "awa_test_"
_NOT_ALLOWED = "42501"


class Databases:
    """Databases on one server, all with names that begin with `awa_test_`."""

    def __init__(self, dsn: str) -> None:
        """Connect to the server that `dsn` names, by whatever database it names.

        Errors: ConfigError (unreadable DSN), StoreUnavailable.
        """
        self._dsn = dsn
        self._store = connect(dsn, role="testing", check=False)
        self._templates: dict[str, str] = {}
        self._made: list[str] = []
        self._mark = f"{PREFIX}{os.getpid()}_{os.urandom(4).hex()}"
        self._numbers = itertools.count(1)

    def create(self, schema: str = "awa_pool") -> str:
        """Make a database with the schema installed; returns its name.

        Errors: ConfigError when the server's user may make none.
        """
        template = self._templates.get(schema)
        if template is None:
            template = self._make("create_database")
            migrate(self.dsn(template), schema)
            self._templates[schema] = template
        return self._make("copy_database", template=template)

    def dsn(self, name: str) -> str:
        """Return the DSN of a database on this server."""
        return make_conninfo(self._dsn, dbname=name)

    def drop(self, name: str) -> None:
        """Remove a database made here, whoever is connected to it."""
        self._run("drop_database", name=name)
        self._made.remove(name)

    def close(self) -> None:
        """Remove what was made here and is still there."""
        for name in reversed(self._made.copy()):
            self.drop(name)
        self._store.close()

    def _make(self, statement: str, **names: str) -> str:
        name = f"{self._mark}_{next(self._numbers)}"
        self._run(statement, name=name, **names)
        self._made.append(name)
        return name

    def _run(self, statement: str, **names: str) -> None:
        filled = sql.SQL(sqlfiles.read(f"testing/{statement}")).format(
            **{key: sql.Identifier(name) for key, name in names.items()}
        )
        try:
            self._store.conn.execute(filled)
        except psycopg.Error as problem:
            if problem.sqlstate == _NOT_ALLOWED:
                raise ConfigError(
                    "each test gets a database of its own, which this server's user may not make: "
                    "give it CREATEDB, or name another server with --awa-dsn"
                ) from None
            raise translate(problem, self._store.schema, self._store.secrets) from None


def bring_forward(queues: list[str]) -> Call[None]:
    """Make what waits for its time in these queues due now."""
    return Call("bring_forward", {"queues": queues}, nothing)
