"""The same statements on an asynchronous connection, and a pool of such; `pool` says why it is as it is."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from awa_pool.errors import AwaError
from awa_pool.sqlfiles import quoted_schema

from . import statements as do
from .calls import Call
from .connection import accept, target, with_address
from .pool import (
    END_S,
    POOL_SIZE,
    WAIT_S,
    Failures,
    Source,
    is_alive,
    is_at_rest,
    no_turn,
    of_a_parent,
    options,
)
from .sqlstates import translate
from .store import gives_rows, needs_begin, query_text

T = TypeVar("T")
AsyncConn = psycopg.AsyncConnection[Any]
_pools: weakref.WeakSet[AsyncPool] = weakref.WeakSet()


class AsyncStore:
    """A `Store` whose calls are awaited."""

    def __init__(
        self, conn: AsyncConn, schema: str = "awa_pool", secrets: tuple[str, ...] = (), *, ours: bool = False
    ) -> None:
        self.conn = conn
        self.schema = schema
        self.secrets = secrets
        self._ours = ours

    async def run(self, call: Call[T]) -> T:
        """Run one call in the connection's present transaction (of its own under autocommit)."""
        try:
            async with psycopg.AsyncCursor(self.conn, row_factory=tuple_row) as cursor:
                await cursor.execute(
                    query_text(call.query, self.schema),
                    call.params or None,
                    prepare=None if call.prepared and self._ours else False,
                    binary=True,
                )
                rows = await cursor.fetchall() if gives_rows(self.conn, cursor) else []
        except psycopg.Error as problem:
            raise translate(problem, self.schema, self.secrets) from None
        return call.read(rows)

    @contextlib.asynccontextmanager
    async def undone_if_it_fails(self) -> AsyncIterator[None]:
        """As `Store.undone_if_it_fails`."""
        if needs_begin(self.conn):
            await self.run(do.prove_alive())
        try:
            async with self.conn.transaction():
                yield
        except psycopg.Error as problem:
            raise translate(problem, self.schema, self.secrets) from None


async def connect_async(dsn: str, schema: str = "awa_pool", role: str = "client") -> AsyncStore:
    """Open a connection under autocommit and check the schema; errors as of `connect`."""
    quoted_schema(schema)
    where = target(dsn, role)
    try:
        conn: AsyncConn = await psycopg.AsyncConnection.connect(
            where.conninfo, autocommit=True, prepare_threshold=None
        )
    except psycopg.Error as problem:
        raise translate(with_address(problem, where), schema, where.secrets) from None
    store = AsyncStore(conn, schema, where.secrets, ours=True)
    try:
        accept(conn, await store.run(do.schema_facts()), schema)
    except BaseException:
        await conn.close()
        raise
    return store


class AsyncPool:
    """At most `size` stores for the tasks of one event loop; another loop starts with none."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncStore]], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        self._homes: dict[_Place, _Home] = {}
        weakref.finalize(self, _end_homes, self._homes).atexit = False
        _pools.add(self)

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[AsyncStore]:
        """Lend a store outside any transaction. Errors: StoreUnavailable when all are busy for 30 s."""
        home = self._home()
        lender, store = await self._borrow(home)
        try:
            yield store
        finally:
            if lender.pid != os.getpid():  # lent before a fork
                of_a_parent.append((lender, store.conn))
            else:
                if not is_at_rest(store.conn):
                    await home.leave(lender)
                await lender.pool.putconn(store.conn)

    async def _borrow(self, home: _Home) -> tuple[_Lender, AsyncStore]:
        until = monotonic() + WAIT_S
        while True:
            lender = home.lender or await self._opened(home, until)
            try:
                conn = await lender.pool.getconn(until - monotonic())
            except PoolClosed:
                continue
            except PoolTimeout:
                raise lender.source.reason(self._size) from None
            if is_alive(conn):
                return lender, AsyncStore(conn, lender.schema, lender.secrets, ours=True)
            await home.leave(lender)
            await lender.pool.putconn(conn)

    def _home(self) -> _Home:
        place = (os.getpid(), asyncio.get_running_loop())
        home = self._homes.get(place)
        if home is None:
            _end_homes(self._homes, only_closed_loops=True)
            home = self._homes[place] = _Home()
        return home

    async def _opened(self, home: _Home, until: float) -> _Lender:
        failures = home.failures
        try:
            async with asyncio.timeout(max(0.0, until - monotonic())):
                await home.opening.acquire()
        except TimeoutError:
            raise no_turn() from None
        try:
            if home.lender is None:
                home.share_failure_since(failures)
                try:
                    first = await self._connect()
                except AwaError as problem:
                    home.note(problem)
                    raise
                home.lender = await _lender(first, self._connect, self._size)
            return home.lender
        finally:
            home.opening.release()

    async def close(self) -> None:
        """Close what lies idle; what is lent is closed when it comes back."""
        home = self._homes.pop((os.getpid(), asyncio.get_running_loop()), None)
        if home is not None and home.lender is not None:
            await home.leave(home.lender)
        _end_homes(self._homes, only_closed_loops=True)


class _AsyncSource(Source):
    async def connect(self, conninfo: str = "", **kwargs: Any) -> Any:
        if self._first:
            return self._first.pop()
        with self._noting():
            return self._made(await self._connect())


class _Lender(NamedTuple):
    pool: AsyncConnectionPool[Any]
    source: Source
    schema: str
    secrets: tuple[str, ...]
    pid: int
    tasks: tuple[asyncio.Task[Any], ...]


_Place = tuple[int, asyncio.AbstractEventLoop]


class _Home(Failures):
    """The pool of one event loop in one process, if one is open."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = asyncio.Lock()
        self.lender: _Lender | None = None

    async def leave(self, lender: _Lender) -> None:
        """Close a pool and let the next call open another. What is lent of it is closed when it comes back."""
        if self.lender is lender:
            self.lender = None
        await _end(lender.pool, lender.source)


async def _lender(first: AsyncStore, connect: Callable[[], Awaitable[AsyncStore]], size: int) -> _Lender:
    source = _AsyncSource(first.conn, connect)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(open=False, **options(source, size))
    try:
        await pool.open(wait=True, timeout=WAIT_S)
    except BaseException as problem:  # cancelled, perhaps
        await _end(pool, source)
        if isinstance(problem, PoolTimeout):
            raise no_turn() from None
        raise
    tasks = tuple(task for task in asyncio.all_tasks() if task.get_name().startswith(f"{pool.name}-"))
    return _Lender(pool, source, first.schema, first.secrets, os.getpid(), tasks)


async def _end(pool: AsyncConnectionPool[Any], source: Source) -> None:
    try:
        await pool.close(timeout=END_S)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        for conn in filter(
            is_at_rest, source.made
        ):  # not we: the pool's own tasks, by who cancelled all tasks
            conn.pgconn.finish()
    for conn in source.unused():
        await conn.close()


def _end_homes(homes: dict[_Place, _Home], *, only_closed_loops: bool = False) -> None:
    """Close connections without their event loop; those of a parent process are left alone."""
    for place, home in list(homes.items()):
        pid, loop = place
        if only_closed_loops and pid == os.getpid() and not loop.is_closed():
            continue
        del homes[place]
        if pid != os.getpid():
            of_a_parent.append(home)
        elif home.lender is not None:
            for task in home.lender.tasks:
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(task.cancel)
            for conn in filter(is_at_rest, home.lender.source.made):  # another thread's loop may use the rest
                with contextlib.suppress(psycopg.Error):
                    conn.pgconn.finish()


@atexit.register
def _end_pools() -> None:
    """Let the pools' tasks end on loops that were left but not closed, else asyncio complains of them."""
    for pool in list(_pools):
        homes = dict(pool._homes)
        _end_homes(pool._homes)
        for (pid, loop), home in homes.items():
            if pid == os.getpid() and home.lender and not loop.is_closed() and not loop.is_running():
                loop.run_until_complete(asyncio.wait(home.lender.tasks, timeout=END_S))
