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
from .body import INT64
from .declarations import Declarations
from .errors import ValidationError
from .inserting import CopyLoad, documents, held, note_skips, put_call
from .job import JobRow
from .lent import check_lent
from .requests import InsertRequest, chunks_of
from .resolving import AsyncResolving, Resolving
from .states import State
from .unique import checked_on_conflict

if TYPE_CHECKING:  # psycopg costs a worker 20 MB: a client that only declares tasks must not load it
    from .store.asynchronous import AsyncConn, AsyncStore
    from .store.calls import Call
    from .store.inspecting import QueueStats
    from .store.migrate import MigrationReport
    from .store.pool import Pool
    from .store.store import Conn, Store

T = TypeVar("T")
PAGE_JOBS = 1000
_opening = threading.Lock()


class Client(Resolving):
    """Puts jobs into the queue and looks after them, from synchronous code; may be shared between threads.

    With `conn=` a method uses the caller's psycopg connection inside the caller's transaction, and never commits it; one whose
    transaction has failed, or whose client_encoding is not UTF8, is refused.
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
        unique_opts: dict[str, Any] | bool | None = None,
        on_conflict: str = "raise",
        conn: Conn | None = None,
    ) -> int:
        """Put one job in; returns its id.

        `args` is a dataclass, msgspec.Struct, pydantic model or dict (with `kind`). Queue, priority (1 first, to 4)
        and max_attempts default to the task's. `run_at` is an aware datetime; one that has passed means now.
        `deadline`: seconds or a timedelta that each attempt may take (docs/deadlines.md); None: the task's or queue's.
        `unique_opts` (docs/unique-jobs.md): {} takes the defaults, None the task's, False none. Where another job holds
        the key, `on_conflict="raise"` raises UniqueConflict, which names it, and "skip" returns its id.
        """
        request = InsertRequest(
            args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
            metadata=metadata, run_at=run_at, ordering_key=ordering_key, deadline=deadline,
            unique_opts=unique_opts,
        )  # fmt: skip
        put = self._run(put_call(self, request, on_conflict), conn)
        note_skips(self, not put.is_new, put.job_id)
        return put.job_id

    def insert_many(
        self, items: Iterable[Any], *, on_conflict: str = "raise", conn: Conn | None = None
    ) -> list[int]:
        """Put many jobs in, all or none; returns their ids in order.

        An item is an args object, a pair (args, options) with the options of `insert`, or an InsertRequest.
        A ValidationError names the item: `jobs[7].args.name`; so does a UniqueConflict: `jobs[7]`.
        """
        from .store.bulk import enqueue_documents

        policy = checked_on_conflict(on_conflict)
        made = documents(self, items, at_once=conn is not None)  # the caller's transaction sees all or none
        first = next(made, None)
        if first is None:
            return []
        with self._store(conn) as store:
            put = enqueue_documents(store, itertools.chain((first,), made), policy)
        note_skips(self, put.skipped)
        return put.job_ids

    def insert_many_copy(
        self, items: Iterable[Any], *, on_conflict: str = "raise", conn: Conn | None = None
    ) -> int:
        """Put very many jobs in by COPY, all or none; returns how many. Items as of `insert_many`.

        Those with a due time and unique ones go as documents.
        """
        from .store.bulk import copy_jobs

        policy = checked_on_conflict(on_conflict)
        chunks = chunks_of(self.registry, held(items))
        if conn is not None:
            chunks = iter(list(chunks))
        first = next(chunks, None)
        if first is None:
            return 0
        load = CopyLoad(itertools.chain((first,), chunks))
        with self._store(conn) as store:
            skipped = copy_jobs(store, load, load.documents, load.queues, policy)
        note_skips(self, skipped)
        return load.count - skipped

    def get_job(self, job_id: int, *, conn: Conn | None = None) -> JobRow | None:
        """Return a job as the database knows it, or None."""
        from .store import inspecting

        return self._run(inspecting.job(_checked_id(job_id)), conn)

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

    def retry(self, job_id: int, *, conn: Conn | None = None) -> State:
        """Make a failed, cancelled, retryable or scheduled job available now; returns its new state.

        Errors: JobNotFound; TransitionRefused.
        """
        from .store import statements as do

        return State(self._run(do.retry(_checked_id(job_id)), conn))

    def queue_stats(self, *, conn: Conn | None = None) -> list[QueueStats]:
        """Return the number of jobs per queue and state."""
        from .store import inspecting

        return self._run(inspecting.queue_stats(), conn)

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


class AsyncClient(AsyncResolving):
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
        unique_opts: dict[str, Any] | bool | None = None,
        on_conflict: str = "raise",
        conn: AsyncConn | None = None,
    ) -> int:
        """Put one job in; returns its id. See `Client.insert`."""
        request = InsertRequest(
            args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
            metadata=metadata, run_at=run_at, ordering_key=ordering_key, deadline=deadline,
            unique_opts=unique_opts,
        )  # fmt: skip
        put = await self._run(put_call(self, request, on_conflict), conn)
        note_skips(self, not put.is_new, put.job_id)
        return put.job_id

    async def insert_many(
        self, items: Iterable[Any], *, on_conflict: str = "raise", conn: AsyncConn | None = None
    ) -> list[int]:
        """Put many jobs in, all or none; returns their ids in order. See `Client.insert_many`."""
        from .store.bulk import enqueue_documents_async

        policy = checked_on_conflict(on_conflict)
        made = documents(self, items, at_once=conn is not None)  # the caller's transaction sees all or none
        first = next(made, None)
        if first is None:
            return []
        async with self._store(conn) as store:
            put = await enqueue_documents_async(store, itertools.chain((first,), made), policy)
        note_skips(self, put.skipped)
        return put.job_ids

    async def insert_many_copy(
        self, items: Iterable[Any], *, on_conflict: str = "raise", conn: AsyncConn | None = None
    ) -> int:
        """Put very many jobs in by COPY, all or none; returns how many. See `Client.insert_many_copy`."""
        from .store.bulk import copy_jobs_async

        policy = checked_on_conflict(on_conflict)
        chunks = chunks_of(self.registry, held(items))
        if conn is not None:
            chunks = iter(list(chunks))
        first = next(chunks, None)
        if first is None:
            return 0
        load = CopyLoad(itertools.chain((first,), chunks))
        async with self._store(conn) as store:
            skipped = await copy_jobs_async(store, load, load.documents, load.queues, policy)
        note_skips(self, skipped)
        return load.count - skipped

    async def get_job(self, job_id: int, *, conn: AsyncConn | None = None) -> JobRow | None:
        """Return a job as the database knows it, or None."""
        from .store import inspecting

        return await self._run(inspecting.job(_checked_id(job_id)), conn)

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

    async def retry(self, job_id: int, *, conn: AsyncConn | None = None) -> State:
        """Make a job available now; returns its new state. See `Client.retry`."""
        from .store import statements as do

        return State(await self._run(do.retry(_checked_id(job_id)), conn))

    async def queue_stats(self, *, conn: AsyncConn | None = None) -> list[QueueStats]:
        """Return the number of jobs per queue and state."""
        from .store import inspecting

        return await self._run(inspecting.queue_stats(), conn)

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


def _list_call(
    state: str | None, queue: str | None, kind: str | None, limit: int, before_id: int | None
) -> Call[list[JobRow]]:
    from .store import inspecting

    if state is not None and state not in set(State):
        raise ValidationError(f"expected one of {', '.join(State)}", path="state")
    return inspecting.list_jobs(
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
    check_lent(conn)
    return conn


def _migrate(client: Declarations) -> MigrationReport:
    from .store.migrate import migrate

    return migrate(client._found_dsn(), client.schema)
