"""The same statements on an asynchronous connection."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from awa_pool.sqlfiles import quoted_schema

from . import statements as do
from .connection import refuse_mismatch, target
from .sqlstates import translate
from .statements import Call
from .store import query_text

T = TypeVar("T")
AsyncConn = psycopg.AsyncConnection[Any]


class AsyncStore:
    """A `Store` whose calls are awaited."""

    def __init__(self, conn: AsyncConn, schema: str = "awa_pool", secrets: tuple[str, ...] = ()) -> None:
        self.conn = conn
        self.schema = schema
        self.secrets = secrets

    async def run(self, call: Call[T]) -> T:
        """Run one call in the connection's present transaction (of its own under autocommit)."""
        try:
            async with psycopg.AsyncCursor(self.conn, row_factory=tuple_row) as cursor:
                await cursor.execute(
                    query_text(call.query, self.schema),
                    call.params or None,
                    prepare=False,
                    binary=call.binary,
                )
                rows = await cursor.fetchall() if cursor.description else []
        except psycopg.Error as problem:
            raise translate(problem, self.schema, self.secrets) from None
        return call.read(rows)


async def connect_async(dsn: str, schema: str = "awa_pool", role: str = "client") -> AsyncStore:
    """Open a connection under autocommit and check the schema; errors as of `connect`."""
    quoted_schema(schema)
    where = target(dsn, role)
    try:
        conn: AsyncConn = await psycopg.AsyncConnection.connect(
            where.conninfo, autocommit=True, prepare_threshold=None
        )
    except psycopg.Error as problem:
        raise translate(problem, schema, where.secrets) from None
    store = AsyncStore(conn, schema, where.secrets)
    try:
        refuse_mismatch(await store.run(do.schema_facts()), schema)
    except BaseException:
        await conn.close()
        raise
    return store
