"""A few connections, opened when first needed and kept for the next call.

No threads and nothing in the background: a connection that died while it lay idle is noticed before it is handed
out, by a look at its socket, which costs a microsecond and no round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

from awa_pool.errors import StoreUnavailable

from .asynchronous import AsyncStore
from .statements import Call
from .store import Store

T = TypeVar("T")
POOL_SIZE = 4
WAIT_S = 30.0
_of_a_parent: list[
    Any
] = []  # connections found after a fork: never closed here, as that would end the parent's


class Pool:
    """At most `size` stores for the threads of one process."""

    def __init__(self, connect: Callable[[], Store], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        self._idle: list[Store] = []
        self._renew()
        weakref.finalize(self, _finish_all, self._idle, os.getpid())

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._free = threading.BoundedSemaphore(self._size)

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """Lend a store outside any transaction. Errors: StoreUnavailable when all are busy for 30 s."""
        store = self._borrow()
        try:
            yield store
        finally:
            self._give_back(store)

    def run(self, call: Call[T]) -> T:
        """Run one call on a store of the pool."""
        store = self._borrow()
        try:
            return store.run(call)
        finally:
            self._give_back(store)

    def _borrow(self) -> Store:
        if self._pid != os.getpid():
            _of_a_parent.extend(self._idle)
            self._idle.clear()
            self._renew()
        free = self._free
        if not free.acquire(timeout=WAIT_S):
            raise StoreUnavailable(f"all {self._size} connections of this client are busy")
        try:
            return self._take() or self._connect()
        except BaseException:
            free.release()
            raise

    def _give_back(self, store: Store) -> None:
        if _is_at_rest(store.conn):
            self._idle.append(store)
        else:
            store.close()
        self._free.release()

    def _take(self) -> Store | None:
        while True:
            try:
                store = self._idle.pop()
            except IndexError:
                return None
            if _is_alive(store.conn):
                return store
            store.close()

    def close(self) -> None:
        """Close what lies idle; what is lent is closed by a later `close`."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


class AsyncPool:
    """At most `size` stores for the tasks of one event loop; another loop starts with none."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncStore]], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        self._idle: list[AsyncStore] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free = asyncio.Semaphore(size)
        self._pid = os.getpid()
        weakref.finalize(self, _finish_all, self._idle, os.getpid())

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[AsyncStore]:
        """Lend a store outside any transaction. Errors: StoreUnavailable when all are busy for 30 s."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._pid != os.getpid():
            self._leave(loop)
        free = self._free
        await _acquire(free, self._size)
        try:
            store = self._take() or await self._connect()
            try:
                yield store
            finally:
                usable = not store.conn.closed and not store.conn.broken
                if (
                    usable
                    and store.conn.info.transaction_status == TransactionStatus.IDLE
                    and self._loop is loop
                ):
                    self._idle.append(store)
                else:
                    await store.conn.close()
        finally:
            free.release()

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        _finish_all(self._idle, self._pid)
        self._loop, self._pid = loop, os.getpid()
        self._free = asyncio.Semaphore(self._size)

    def _take(self) -> AsyncStore | None:
        while self._idle:
            store = self._idle.pop()
            if _is_alive(store.conn):
                return store
            store.conn.pgconn.finish()
        return None

    async def close(self) -> None:
        """Close what lies idle."""
        while self._idle:
            await self._idle.pop().conn.close()


async def _acquire(free: asyncio.Semaphore, size: int) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await free.acquire()
    except TimeoutError:
        raise StoreUnavailable(f"all {size} connections of this client are busy") from None


def _finish_all(idle: list[Any], pid: int) -> None:
    """Close connections without an event loop, at exit too; those of a parent process are left alone."""
    stores = idle[:]
    idle.clear()
    if pid != os.getpid():
        _of_a_parent.extend(stores)
        return
    for store in stores:
        with contextlib.suppress(psycopg.Error):
            store.conn.pgconn.finish()


def _is_at_rest(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    pgconn = conn.pgconn
    return pgconn.status == ConnStatus.OK and pgconn.transaction_status == TransactionStatus.IDLE


def _is_alive(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say whether an idle connection is silent. What a server says unasked is nearly always its farewell."""
    poller = select.poll()
    poller.register(conn.pgconn.socket, select.POLLIN)
    return conn.pgconn.status == ConnStatus.OK and not poller.poll(0)
