"""The connections of a client: psycopg_pool's pools, opened when first needed, and what they leave to their user.

psycopg_pool connects in the background and tries again by itself, so a caller would learn of a wrong password only
that it took too long; and a connection that its `check` finds dead costs a caller a second's pause. Therefore the
first connection is opened here, in the caller's own call, and handed to a new pool; and when one connection turns
out to be lost the whole pool is left, so that the next call opens one in the same way. A lost idle connection is
noticed before it is lent by a look at its socket, which costs a microsecond and no round trip.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import os
import select
import threading
import weakref
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from awa_pool.errors import AwaError, StoreUnavailable

from .calls import Call
from .store import Conn, Store

T = TypeVar("T")
AnyConn = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
POOL_SIZE = 4
WAIT_S = 30.0
END_S = 1.0  # for the pool's two threads, which stop within a millisecond unless one is connecting
NAME = "awa-pool client"
_numbers = itertools.count(1)
# found after a fork: never closed here, as that would end the parent's connections
of_a_parent: list[Any] = []


class Pool:
    """At most `size` stores for the threads of one process; a forked child starts with none."""

    def __init__(self, connect: Callable[[], Store], size: int = POOL_SIZE) -> None:
        self._connect = connect
        self._size = size
        self._homes: dict[int, _Home] = {}  # by process; changed by single, atomic operations only
        weakref.finalize(self, _end_homes, self._homes)

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """Lend a store outside any transaction. Errors: StoreUnavailable when all are busy for 30 s."""
        lender, store = self._borrow()
        try:
            yield store
        finally:
            self._give_back(lender, store.conn)

    def run(self, call: Call[T]) -> T:
        """Run one call on a store of the pool."""
        lender, store = self._borrow()
        try:
            return store.run(call)
        finally:
            self._give_back(lender, store.conn)

    def _borrow(self) -> tuple[_Lender, Store]:
        until = monotonic() + WAIT_S
        while True:
            home = self._home()
            lender = home.lender or self._opened(home, until)
            try:
                conn = lender.pool.getconn(until - monotonic())
            except PoolClosed:  # left by another thread, which found a lost connection in it
                continue
            except PoolTimeout:
                raise lender.source.reason(self._size) from None
            if is_alive(conn):
                return lender, Store(conn, lender.schema, lender.secrets, ours=True)
            home.leave(lender)
            lender.pool.putconn(conn)

    def _give_back(self, lender: _Lender, conn: Conn) -> None:
        if lender.pid != os.getpid():  # lent before a fork
            of_a_parent.append((lender, conn))
            return
        if not is_at_rest(conn):
            self._home().leave(lender)
        lender.pool.putconn(conn)

    def _home(self) -> _Home:
        pid = os.getpid()
        return self._homes.get(pid) or self._homes.setdefault(pid, _Home())

    def _opened(self, home: _Home, until: float) -> _Lender:
        failures = home.failures
        if not home.opening.acquire(timeout=max(0.0, until - monotonic())):
            raise no_turn()
        try:
            if home.lender is None:
                home.share_failure_since(failures)
                try:
                    first = self._connect()
                except AwaError as problem:
                    home.note(problem)
                    raise
                home.lender = _lender(first, self._connect, self._size)
            return home.lender
        finally:
            home.opening.release()

    def close(self) -> None:
        """Close what lies idle; what is lent is closed when it comes back."""
        home = self._homes.pop(os.getpid(), None)
        if home is not None and home.lender is not None:
            home.leave(home.lender)


class Failures:
    """How many attempts to open a pool failed, and the last one: whoever waited for it fails with it."""

    def __init__(self) -> None:
        self.failures = 0
        self._last: AwaError | None = None

    def note(self, problem: AwaError) -> None:
        """Count a failed attempt."""
        self._last = copy.copy(problem)  # without its traceback, which would keep the caller's variables
        self.failures += 1

    def share_failure_since(self, failures: int) -> None:
        """Raise the last failure if there was one after that many."""
        if self.failures != failures and self._last is not None:
            raise copy.copy(self._last)


class Source:
    """Where psycopg_pool gets its connections: the first is open already, more are opened by `connect`."""

    def __init__(self, first: Any, connect: Callable[[], Any]) -> None:
        self._first = [first]
        self._connect = connect
        self._problem: AwaError | None = None
        self.made: weakref.WeakSet[Any] = weakref.WeakSet([first])

    def connect(self, conninfo: str = "", **kwargs: Any) -> Any:
        """Give psycopg_pool one more connection; it takes this object for a class of connections."""
        with contextlib.suppress(IndexError):
            return self._first.pop()
        with self._noting():
            return self._made(self._connect())

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except AwaError as problem:
            self._problem = copy.copy(problem)
            raise
        self._problem = None

    def _made(self, store: Any) -> Any:
        self.made.add(store.conn)
        return store.conn

    def reason(self, size: int) -> AwaError:
        """Say why nothing could be lent in time."""
        if self._problem is not None:
            return copy.copy(self._problem)
        return StoreUnavailable(f"all {size} connections of this client are busy")

    def unused(self) -> list[Any]:
        """Take back the first connection if the pool was left before it came for it."""
        first, self._first = self._first, []
        return first


class _Lender(NamedTuple):
    pool: ConnectionPool[Any]
    source: Source
    schema: str
    secrets: tuple[str, ...]
    pid: int

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # dropped, by chance, in one of the pool's own threads
            self.pool.close(timeout=END_S)
        for conn in self.source.unused():
            conn.close()


class _Home(Failures):
    """The pool of one process, if one is open."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = threading.Lock()
        self.lender: _Lender | None = None

    def leave(self, lender: _Lender) -> None:
        """Close a pool and let the next call open another. What is lent of it is closed when it comes back."""
        if self.lender is lender:
            self.lender = None
        lender.end()


def options(source: Source, size: int) -> dict[str, Any]:
    """Return what both kinds of psycopg_pool's pools are made with."""
    _quieten()
    return {
        "connection_class": source,
        "name": f"{NAME} {next(_numbers)}",
        "min_size": 1,
        "max_size": size,
        "num_workers": 1,
        "max_lifetime": math.inf,  # it would be replaced in the background, where nobody hears of a failure
        "reconnect_timeout": WAIT_S,
    }


def _lender(first: Store, connect: Callable[[], Store], size: int) -> _Lender:
    source = Source(first.conn, connect)
    pool: ConnectionPool[Any] = ConnectionPool(open=False, **options(source, size))
    lender = _Lender(pool, source, first.schema, first.secrets, os.getpid())
    try:
        pool.open(wait=True, timeout=WAIT_S)  # else the first call would make it grow
    except BaseException as problem:
        lender.end()
        if isinstance(problem, PoolTimeout):
            raise no_turn() from None
        raise
    return lender


def _end_homes(homes: dict[int, _Home]) -> None:
    """Close what is open, at exit too; what is a parent process's is left alone."""
    while homes:
        pid, home = homes.popitem()
        if home.lender is None:
            continue
        if pid == os.getpid():
            home.lender.end()
        else:
            of_a_parent.append(home)
            # its __del__ would use the locks and wait for the threads of a process that this one is not
            home.lender.pool._closed = True


def _quieten() -> None:
    """Keep three lines per call, which psycopg_pool logs at INFO, out of the user's log; warnings pass."""
    logger = logging.getLogger("psycopg.pool")
    if _is_worth_a_line not in logger.filters:
        logger.addFilter(_is_worth_a_line)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    ours = isinstance(record.args, tuple) and any(
        isinstance(arg, str) and arg.startswith(NAME) for arg in record.args
    )
    return record.levelno >= logging.WARNING or not ours


def no_turn() -> StoreUnavailable:
    """Say that others were still opening a connection when the time was over."""
    return StoreUnavailable(f"no connection within {WAIT_S:.0f} s")


def is_at_rest(conn: AnyConn) -> bool:
    """Say whether a connection is open and outside any transaction."""
    pgconn = conn.pgconn
    return pgconn.status == ConnStatus.OK and pgconn.transaction_status == TransactionStatus.IDLE


def is_alive(conn: AnyConn) -> bool:
    """Say whether an idle connection is silent. What a server says unasked is nearly always its farewell."""
    pgconn = conn.pgconn
    if pgconn.status != ConnStatus.OK:
        return False
    poller = select.poll()
    poller.register(pgconn.socket, select.POLLIN)
    return not poller.poll(0)
