"""Many jobs in one transaction, on either kind of connection.

Documents are sent in pipeline mode: while the server takes one in, the next is being written here.
A connection in the caller's own transaction is used as it stands, and neither committed nor rolled back.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from awa_pool.errors import AwaError, ValidationError

from . import statements as do
from .asynchronous import AsyncConn, AsyncStore
from .sqlstates import translate
from .store import Conn, Store, query_text

Document = tuple[int, str]
"""(index of its first job in the whole call, JSON text)"""

_ITEM = re.compile(r"^jobs\[(\d+)\]")


def enqueue_documents(store: Store, documents: Iterable[Document]) -> list[int]:
    """Put the jobs of all documents in, all or none; their ids in order. `documents` may be lazy."""
    conn = store.conn
    sent: list[tuple[int, psycopg.Cursor[Any]]] = []
    try:
        with _transaction(conn), conn.pipeline():
            for first, text in documents:
                call = do.enqueue_many(text)
                cursor = psycopg.Cursor(conn, row_factory=tuple_row)
                sent.append((first, cursor))
                text_of = query_text(call.query, store.schema)
                cursor.execute(text_of, call.params, prepare=False, binary=call.binary)
        return [job_id for _, cursor in sent for job_id in cursor.fetchall()[0][0]]
    except psycopg.Error as problem:
        raise _located(translate(problem, store.schema, store.secrets), sent) from None


async def enqueue_documents_async(store: AsyncStore, documents: Iterable[Document]) -> list[int]:
    """Do what `enqueue_documents` does on an asynchronous connection."""
    conn = store.conn
    sent: list[tuple[int, psycopg.AsyncCursor[Any]]] = []
    try:
        async with _transaction_async(conn), conn.pipeline():
            for first, text in documents:
                call = do.enqueue_many(text)
                cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
                sent.append((first, cursor))
                text_of = query_text(call.query, store.schema)
                await cursor.execute(text_of, call.params, prepare=False, binary=call.binary)
        return [job_id for _, cursor in sent for job_id in (await cursor.fetchall())[0][0]]
    except psycopg.Error as problem:
        raise _located(translate(problem, store.schema, store.secrets), sent) from None


def copy_jobs(store: Store, blocks: Iterable[bytes], later: list[Document], queues: set[str]) -> None:
    """Send rows by COPY, then what `blocks` put into `later` and `queues` on its way; all or none."""
    conn = store.conn
    try:
        with _transaction(conn):
            statement = _copy_into(store.run(do.copy_target()), store.schema)
            with psycopg.Cursor(conn) as cursor, cursor.copy(statement) as copy:
                for block in blocks:
                    copy.write(block)
            for _, text in later:
                store.run(do.enqueue_many(text))
            store.run(do.notify_waiters(sorted(queues)))
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None


async def copy_jobs_async(
    store: AsyncStore, blocks: Iterable[bytes], later: list[Document], queues: set[str]
) -> None:
    """Do what `copy_jobs` does on an asynchronous connection."""
    conn = store.conn
    try:
        async with _transaction_async(conn):
            statement = _copy_into(await store.run(do.copy_target()), store.schema)
            async with (
                psycopg.AsyncCursor(conn) as cursor,
                cursor.copy(statement) as copy,
            ):
                for block in blocks:
                    await copy.write(block)
            for _, text in later:
                await store.run(do.enqueue_many(text))
            await store.run(do.notify_waiters(sorted(queues)))
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None


def _copy_into(target: str, schema: str) -> bytes:
    """The COPY statement for a table that the database named."""
    return query_text("copy_jobs", schema).replace(b"{target}", target.encode())


def _owns_transaction(conn: Conn | AsyncConn) -> bool:
    """Say whether several statements need a transaction of ours: under autocommit, outside any other."""
    return conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE


def _transaction(conn: Conn) -> contextlib.AbstractContextManager[Any]:
    return conn.transaction() if _owns_transaction(conn) else contextlib.nullcontext()


def _transaction_async(conn: AsyncConn) -> contextlib.AbstractAsyncContextManager[Any]:
    return conn.transaction() if _owns_transaction(conn) else contextlib.nullcontext()


def _located(problem: AwaError, sent: list[tuple[int, Any]]) -> AwaError:
    """Count the item that the server names in one document from the start of the whole call."""
    if isinstance(problem, ValidationError) and (found := _ITEM.match(problem.path)):
        text = str(problem).removeprefix(f"{problem.path}: ")
        for first, cursor in sent:
            result = cursor.pgresult
            if result is None or result.status == ExecStatus.FATAL_ERROR:
                path = f"jobs[{first + int(found[1])}]{problem.path[found.end() :]}"
                return ValidationError(text, path=path)
    return problem
