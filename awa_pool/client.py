"""Client and AsyncClient: two doors to the same statements."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import validation as gate
from .administration import Administration, AsyncAdministration
from .body import INT64
from .declarations import Declarations
from .errors import ValidationError
from .job import JobRow
from .requests import Chunk, InsertRequest, chunks_of, options_of
from .states import State

if TYPE_CHECKING:  # psycopg costs a worker 20 MB: a client that only declares tasks must not load it
    from .store.asynchronous import AsyncConn, AsyncStore
    from .store.migrate import MigrationReport
    from .store.pool import Pool
    from .store.statements import Call, QueueStats
    from .store.store import Conn, Store

T = TypeVar("T")
PAGE_JOBS = 1000
_opening = threading.Lock()


class Client(Administration):
    """Puts jobs into the queue and looks after them, from synchronous code; may be shared between threads.

    With `conn=` a method uses the caller's psycopg connection inside the caller's transaction, and never commits it.
    Errors of all methods: ConfigError, ValidationError (before any SQL), StoreUnavailable, StoreConflict,
    SchemaMismatch (names the command to run), StoreRefused.
    """

    def insert(
        self,
        args: Any,
        *,
        kind: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        tags: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_at: datetime | None = None,
        ordering_key: str | None = None,
        deadline: float | timedelta | None = None,
        conn: Conn | None = None,
    ) -> int:
        """Put one job in; returns its id.

        `args` is a dataclass, msgspec.Struct, pydantic model or dict (with `kind`). Queue, priority (1 first, to 4)
        and max_attempts default to the task's. `run_at` is an aware datetime; one that has passed means now.
        `deadline`: seconds or a timedelta that each attempt may take (docs/deadlines.md); None: the task's or queue's.
        """
        request = InsertRequest(
            args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
            metadata=metadata, run_at=run_at, ordering_key=ordering_key, deadline=deadline,
        )  # fmt: skip
        return self._run(_enqueue_call(self, request), conn)

    def insert_many(self, items: Iterable[Any], *, conn: Conn | None = None) -> list[int]:
        """Put many jobs in, all or none; returns their ids in order.

        An item is an args object, a pair (args, options) with the options of `insert`, or an InsertRequest.
        A ValidationError names the item: `jobs[7].args.name`.
        """
        from .store.bulk import enqueue_documents

        documents: Iterator[tuple[int, str]] = (
            (chunk.first, chunk.json()) for chunk in chunks_of(self.registry, _held(items))
        )
        if conn is not None:
            documents = iter(list(documents))  # the caller's transaction sees all or none of it
        first = next(documents, None)
        if first is None:
            return []
        with self._store(conn) as store:
            return enqueue_documents(store, itertools.chain((first,), documents))

    def insert_many_copy(self, items: Iterable[Any], *, conn: Conn | None = None) -> int:
        """Put very many jobs in by COPY, all or none; returns their number. Items as of `insert_many`."""
        from .store.bulk import copy_jobs

        chunks = chunks_of(self.registry, _held(items))
        if conn is not None:
            chunks = iter(list(chunks))
        first = next(chunks, None)
        if first is None:
            return 0
        load = _CopyLoad(itertools.chain((first,), chunks))
        with self._store(conn) as store:
            copy_jobs(store, load, load.later, load.queues)
        return load.count

    def get_job(self, job_id: int, *, conn: Conn | None = None) -> JobRow | None:
        """Return a job as the database knows it, or None."""
        from .store import statements as do

        return self._run(do.job(_checked_id(job_id)), conn)

    def list_jobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        before_id: int | None = None,
        conn: Conn | None = None,
    ) -> list[JobRow]:
        """Return jobs, newest first, at most `limit` (to 1000); page on with `before_id`, the last id seen."""
        return self._run(_list_call(state, queue, kind, limit, before_id), conn)

    def cancel(self, job_id: int, *, conn: Conn | None = None) -> State:
        """Cancel a job; returns its new state. A running attempt can no longer change it.

        Errors: JobNotFound; TransitionRefused when the job has ended.
        """
        from .store import statements as do

        return State(self._run(do.cancel(_checked_id(job_id)), conn))

    def retry(self, job_id: int, *, conn: Conn | None = None) -> State:
        """Make a failed, cancelled, retryable or scheduled job available now; returns its new state.

        Errors: JobNotFound; TransitionRefused.
        """
        from .store import statements as do

        return State(self._run(do.retry(_checked_id(job_id)), conn))

    def queue_stats(self, *, conn: Conn | None = None) -> list[QueueStats]:
        """Return the number of jobs per queue and state."""
        from .store import statements as do

        return self._run(do.queue_stats(), conn)

    def migrate(self) -> MigrationReport:
        """Install or upgrade the schema; what stands is left alone. Errors: SchemaMismatch, StoreUnavailable."""
        return _migrate(self)

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _opened(self) -> Pool:
        from .store.connection import connect
        from .store.pool import Pool

        with _opening:  # else two threads would open a pool each at the first use
            if self._pool is None:
                self._pool = Pool(partial(connect, self._found_dsn(), self.schema))
            pool: Pool = self._pool
        return pool

    @contextlib.contextmanager
    def _store(self, conn: Conn | None) -> Iterator[Store]:
        if conn is None:
            with self._opened().store() as store:
                yield store
        else:
            yield self._store_on(conn)

    def _store_on(self, conn: Conn) -> Store:
        from .store.store import Store

        return Store(_checked_conn(conn, asynchronous=False), self.schema)

    def _run(self, call: Call[T], conn: Conn | None) -> T:
        if conn is not None:
            return self._store_on(conn).run(call)
        pool: Pool = self._pool or self._opened()
        return pool.run(call)


class AsyncClient(AsyncAdministration):
    """The same as `Client` for asynchronous code: same names, same arguments, awaited."""

    async def insert(
        self,
        args: Any,
        *,
        kind: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        tags: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_at: datetime | None = None,
        ordering_key: str | None = None,
        deadline: float | timedelta | None = None,
        conn: AsyncConn | None = None,
    ) -> int:
        """Put one job in; returns its id. See `Client.insert`."""
        request = InsertRequest(
            args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
            metadata=metadata, run_at=run_at, ordering_key=ordering_key, deadline=deadline,
        )  # fmt: skip
        return await self._run(_enqueue_call(self, request), conn)

    async def insert_many(self, items: Iterable[Any], *, conn: AsyncConn | None = None) -> list[int]:
        """Put many jobs in, all or none; returns their ids in order. See `Client.insert_many`."""
        from .store.bulk import enqueue_documents_async

        documents: Iterator[tuple[int, str]] = (
            (chunk.first, chunk.json()) for chunk in chunks_of(self.registry, _held(items))
        )
        if conn is not None:
            documents = iter(list(documents))
        first = next(documents, None)
        if first is None:
            return []
        async with self._store(conn) as store:
            return await enqueue_documents_async(store, itertools.chain((first,), documents))

    async def insert_many_copy(self, items: Iterable[Any], *, conn: AsyncConn | None = None) -> int:
        """Put very many jobs in by COPY, all or none; returns their number. See `Client.insert_many_copy`."""
        from .store.bulk import copy_jobs_async

        chunks = chunks_of(self.registry, _held(items))
        if conn is not None:
            chunks = iter(list(chunks))
        first = next(chunks, None)
        if first is None:
            return 0
        load = _CopyLoad(itertools.chain((first,), chunks))
        async with self._store(conn) as store:
            await copy_jobs_async(store, load, load.later, load.queues)
        return load.count

    async def get_job(self, job_id: int, *, conn: AsyncConn | None = None) -> JobRow | None:
        """Return a job as the database knows it, or None."""
        from .store import statements as do

        return await self._run(do.job(_checked_id(job_id)), conn)

    async def list_jobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        before_id: int | None = None,
        conn: AsyncConn | None = None,
    ) -> list[JobRow]:
        """Return jobs, newest first. See `Client.list_jobs`."""
        return await self._run(_list_call(state, queue, kind, limit, before_id), conn)

    async def cancel(self, job_id: int, *, conn: AsyncConn | None = None) -> State:
        """Cancel a job; returns its new state. See `Client.cancel`."""
        from .store import statements as do

        return State(await self._run(do.cancel(_checked_id(job_id)), conn))

    async def retry(self, job_id: int, *, conn: AsyncConn | None = None) -> State:
        """Make a job available now; returns its new state. See `Client.retry`."""
        from .store import statements as do

        return State(await self._run(do.retry(_checked_id(job_id)), conn))

    async def queue_stats(self, *, conn: AsyncConn | None = None) -> list[QueueStats]:
        """Return the number of jobs per queue and state."""
        from .store import statements as do

        return await self._run(do.queue_stats(), conn)

    async def migrate(self) -> MigrationReport:
        """Install or upgrade the schema. See `Client.migrate`."""
        import asyncio

        return await asyncio.to_thread(_migrate, self)

    async def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    @contextlib.asynccontextmanager
    async def _store(self, conn: AsyncConn | None) -> AsyncIterator[AsyncStore]:
        from .store.asynchronous import AsyncPool, AsyncStore, connect_async

        if conn is not None:
            yield AsyncStore(_checked_conn(conn, asynchronous=True), self.schema)
            return
        if self._pool is None:
            self._pool = AsyncPool(partial(connect_async, self._found_dsn(), self.schema))
        async with self._pool.store() as store:
            yield store

    async def _run(self, call: Call[T], conn: AsyncConn | None) -> T:
        async with self._store(conn) as store:
            return await store.run(call)


class _CopyLoad:
    """Rows for COPY, written while they are sent; collects what cannot go that way and whom to wake."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = chunks
        self.count = 0
        self.later: list[tuple[int, str]] = []
        self.queues: set[str] = set()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.count += len(chunk)
            now = chunk
            if chunk.has_due_times():
                now, later = chunk.split()
                self.later.append((later.first, later.json()))
            self.queues |= now.queues()
            if len(now):
                yield now.copy_rows()


def _held(items: Iterable[Any]) -> Sequence[Any]:
    """Hold the items in memory: a generator of the caller's must not run inside our transaction."""
    if isinstance(items, dict | str | bytes):
        raise ValidationError(f"expected an iterable of jobs, got {type(items).__name__}", path="jobs")
    return items if isinstance(items, list | tuple) else list(items)


def _enqueue_call(client: Declarations, request: InsertRequest) -> Call[int]:
    from .store import statements as do

    options = options_of(client.registry, request)
    args = gate.args_json(request.args).decode()
    metadata = options.metadata.decode() if options.metadata is not None else None
    return do.enqueue(
        options.kind, args, options.queue, options.priority, options.max_attempts, options.run_at, metadata,
        options.tags, options.ordering_key, options.deadline_s,
    )  # fmt: skip


def _list_call(
    state: str | None, queue: str | None, kind: str | None, limit: int, before_id: int | None
) -> Call[list[JobRow]]:
    from .store import statements as do

    if state is not None and state not in set(State):
        raise ValidationError(f"expected one of {', '.join(State)}", path="state")
    return do.list_jobs(
        None if state is None else str(state),
        None if queue is None else gate.checked_queue(queue),
        None if kind is None else gate.checked_kind(kind),
        gate.checked_int(limit, (1, PAGE_JOBS), "limit"),
        None if before_id is None else _checked_id(before_id),
    )


def _checked_id(job_id: Any) -> int:
    return gate.checked_int(job_id, INT64, "job_id")


def _checked_conn(conn: Any, *, asynchronous: bool) -> Any:
    import psycopg

    wanted = psycopg.AsyncConnection if asynchronous else psycopg.Connection
    if not isinstance(conn, wanted):
        raise ValidationError(f"expected a psycopg.{wanted.__name__}, got {type(conn).__name__}", path="conn")
    return conn


def _migrate(client: Declarations) -> MigrationReport:
    from .store.migrate import migrate

    return migrate(client._found_dsn(), client.schema)
