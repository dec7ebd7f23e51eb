"""Many jobs in one transaction, on either kind of connection.

Documents are sent in pipeline mode: while the server takes one in, the next is being written here.
A connection in the caller's own transaction is used as it stands, and neither committed nor rolled back.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from awa_pool.errors import AwaError, UniqueConflict, ValidationError
from awa_pool.requests import Document, Rows

from . import statements as do
from . import unique
from .asynchronous import AsyncConn, AsyncStore
from .calls import Call
from .sqlstates import translate
from .store import Conn, Store, query_text
from .unique import PutMany

_ITEM = re.compile(r"^jobs\[(\d+)\]")
_ITEMS = re.compile(r"\bjobs\[(\d+)\]")


def enqueue_documents(store: Store, documents: Iterable[Document], on_conflict: str = "raise") -> PutMany:
    """Put the jobs of all documents in, all or none; their ids in order. `documents` may be lazy."""
    conn = store.conn
    sent: list[tuple[Document, psycopg.Cursor[Any]]] = []
    try:
        with _transaction(conn), conn.pipeline():
            for document in documents:
                call = _call(document, on_conflict)
                cursor = psycopg.Cursor(conn, row_factory=tuple_row)
                sent.append((document, cursor))
                text_of = query_text(call.query, store.schema)
                cursor.execute(text_of, call.params, prepare=False, binary=True)
        return _gathered([(document, cursor.fetchall()) for document, cursor in sent])
    except psycopg.Error as problem:
        raise _located(translate(problem, store.schema, store.secrets), sent) from None


async def enqueue_documents_async(
    store: AsyncStore, documents: Iterable[Document], on_conflict: str = "raise"
) -> PutMany:
    """Do what `enqueue_documents` does on an asynchronous connection."""
    conn = store.conn
    sent: list[tuple[Document, psycopg.AsyncCursor[Any]]] = []
    try:
        async with _transaction_async(conn), conn.pipeline():
            for document in documents:
                call = _call(document, on_conflict)
                cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
                sent.append((document, cursor))
                text_of = query_text(call.query, store.schema)
                await cursor.execute(text_of, call.params, prepare=False, binary=True)
        return _gathered([(document, await cursor.fetchall()) for document, cursor in sent])
    except psycopg.Error as problem:
        raise _located(translate(problem, store.schema, store.secrets), sent) from None


def copy_jobs(
    store: Store,
    blocks: Iterable[Rows],
    later: Callable[[], Iterable[Document]],
    queues: set[str],
    on_conflict: str = "raise",
) -> int:
    """Send rows by COPY, then what `blocks` left for `later` and `queues`; all or none. Returns how many were skipped."""
    skipped = 0
    conn = store.conn
    try:
        with _transaction(conn):
            target = store.run(do.copy_target())
            for plain, group in itertools.groupby(blocks, key=_is_plain):
                statement = _copy_into(target, store.schema, plain)
                with psycopg.Cursor(conn) as cursor, cursor.copy(statement) as copy:
                    for rows in group:
                        copy.write(rows.text)
            for document in later():
                try:
                    answer = store.run(_call(document, on_conflict))
                except AwaError as problem:
                    raise _placed(problem, document) from None
                skipped += answer.skipped
            store.run(do.notify_waiters(sorted(queues)))
        return skipped
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None


async def copy_jobs_async(
    store: AsyncStore,
    blocks: Iterable[Rows],
    later: Callable[[], Iterable[Document]],
    queues: set[str],
    on_conflict: str = "raise",
) -> int:
    """Do what `copy_jobs` does on an asynchronous connection."""
    skipped = 0
    conn = store.conn
    try:
        async with _transaction_async(conn):
            target = await store.run(do.copy_target())
            for plain, group in itertools.groupby(blocks, key=_is_plain):
                statement = _copy_into(target, store.schema, plain)
                async with psycopg.AsyncCursor(conn) as cursor, cursor.copy(statement) as copy:
                    for rows in group:
                        await copy.write(rows.text)
            for document in later():
                try:
                    answer = await store.run(_call(document, on_conflict))
                except AwaError as problem:
                    raise _placed(problem, document) from None
                skipped += answer.skipped
            await store.run(do.notify_waiters(sorted(queues)))
        return skipped
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None


def _is_plain(rows: Rows) -> bool:
    return rows.plain


def _copy_into(target: str, schema: str, plain: bool) -> bytes:
    """The COPY statement for a table that the database named."""
    query = query_text("copy_plain_jobs" if plain else "copy_jobs", schema)
    return query.replace(b"{target}", target.encode())


def _owns_transaction(conn: Conn | AsyncConn) -> bool:
    """Say whether several statements need a transaction of ours: under autocommit, outside any other."""
    return conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE


def _transaction(conn: Conn) -> contextlib.AbstractContextManager[Any]:
    return conn.transaction() if _owns_transaction(conn) else contextlib.nullcontext()


def _transaction_async(conn: AsyncConn) -> contextlib.AbstractAsyncContextManager[Any]:
    return conn.transaction() if _owns_transaction(conn) else contextlib.nullcontext()


def _call(document: Document, on_conflict: str) -> Call[PutMany]:
    if document.keyed:
        return unique.enqueue_many(document.text, on_conflict)
    plain = do.enqueue_many(document.text)
    return Call(plain.query, plain.params, lambda rows: PutMany(rows[0][0], 0))


def _gathered(answers: list[tuple[Document, list[tuple[Any, ...]]]]) -> PutMany:
    """Join the answers to the documents of one call."""
    job_ids: list[int] = []
    skipped = 0
    for document, rows in answers:
        job_ids += rows[0][0]
        skipped += rows[0][1] if document.keyed else 0
    return PutMany(job_ids, skipped)


def _located(problem: AwaError, sent: list[tuple[Document, Any]]) -> AwaError:
    """Count the items that the server names in one document from the start of the whole call."""
    for document, cursor in sent:
        result = cursor.pgresult
        if result is None or result.status == ExecStatus.FATAL_ERROR:
            return _placed(problem, document)
    return problem


def _placed(problem: AwaError, document: Document) -> AwaError:
    if not isinstance(problem, ValidationError | UniqueConflict) or not _ITEM.match(problem.path):
        return problem

    def named(text: str) -> str:
        return _ITEMS.sub(lambda found: f"jobs[{document.places[int(found[1])]}]", text)

    text, path = str(problem).removeprefix(f"{problem.path}: "), named(problem.path)
    if isinstance(problem, UniqueConflict):
        return UniqueConflict(named(text), job_id=problem.job_id, path=path)
    return ValidationError(text, path=path)
