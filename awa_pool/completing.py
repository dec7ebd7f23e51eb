"""Completes a job in a transaction of its handler's own: `with job.completing(conn): …`, or `async with` and an AsyncConnection.

The rows that the block writes and the completion commit together, or neither does. Nothing here imports psycopg, which worker
processes do without: whoever gives a connection has loaded it.
"""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from types import TracebackType
from typing import Any, NamedTuple

from . import sqlfiles
from .errors import (
    AwaError,
    LeaseLost,
    SchemaMismatch,
    StagingError,
    StoreRefused,
    TransitionRefused,
    ValidationError,
)
from .faults import reach
from .lent import check_lent

_NOT_THERE = ("3F000", "42P01", "42883", "42703")  # no such schema, table, function, column
_NOT_FIT = ("AW002", "25006")  # another isolation level; read-only

Identity = dict[str, Any]
"""receipt_id, nonce, index, job_id and run_lease of an attempt."""


class Doors(NamedTuple):
    """How the attempt's own runtime is reached."""

    schema: str
    identity: Callable[[], Identity | None]
    """None: the handler has returned."""
    lease: Callable[[bool], None]
    """Have the attempt moved to leases; returns once that is committed. True: a transaction of the handler's is open meanwhile."""
    lease_async: Callable[[bool], Awaitable[None]]


class Completion:
    """What an attempt has done to complete itself, over all its blocks."""

    __slots__ = ("_conn", "_open", "committed", "problem", "ran")

    def __init__(self) -> None:
        self.ran = False
        """Its completion was written: it counts if that transaction was committed, which need not be known here."""
        self.committed = False
        """It is known to be."""
        self.problem: StagingError | None = None
        """Met by the attempt: it cannot complete any more."""
        self._open = threading.Lock()
        self._conn: Any = None

    @property
    def open(self) -> bool:
        """A block has not come to its end: a thread of the handler's is in it."""
        return self._open.locked()

    @contextmanager
    def block(self, conn: Any) -> Iterator[None]:
        """Let one block at a time complete the attempt, once. Errors: TransitionRefused; StagingError."""
        if not self._open.acquire(blocking=False):
            raise TransitionRefused("the job is being completed: one block of job.completing at a time")
        try:
            if self.committed:
                raise TransitionRefused("the job is completed: job.completing is for once")
            if self.ran and self._conn is not conn and _in_transaction(self._conn):
                raise TransitionRefused(
                    "the job is completed in a transaction that is open still: commit or roll back"
                )
            self.check()
            self._conn = conn
            yield
        finally:
            self._open.release()

    def check(self) -> None:
        """Raise the staging error that the attempt has met, if any."""
        if self.problem is not None:
            raise self.problem


class Completing(AbstractContextManager[Any], AbstractAsyncContextManager[Any]):
    """The block; `as` gives the connection. `doors` None: in a test without a database, whose connection is taken as it is."""

    def __init__(self, conn: Any, completion: Completion, doors: Doors | None) -> None:
        self._conn = conn
        self._completion = completion
        self._doors = doors
        self._within: Any = None

    def __enter__(self) -> Any:
        if self._doors is not None:
            _check_type(self._conn, "Connection", "with")
        within = self._sync()
        entered = within.__enter__()
        self._within = (
            within  # once it is open: one that was refused must not take the place of the one that is
        )
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        swallowed: bool | None = self._within.__exit__(kind, problem, trace)
        return swallowed

    async def __aenter__(self) -> Any:
        if self._doors is not None:
            _check_type(self._conn, "AsyncConnection", "async with")
        within = self._async()
        entered = await within.__aenter__()
        self._within = within
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        swallowed: bool | None = await self._within.__aexit__(kind, problem, trace)
        return swallowed

    @contextmanager
    def _sync(self) -> Iterator[Any]:
        conn, completion, doors = self._conn, self._completion, self._doors
        with completion.block(conn):
            alone = doors is None or _begins(conn)
            if doors is not None:
                _identity(doors)
                doors.lease(not alone)
                reach("handler.leased")
            done = False
            with conn.transaction():
                if doors is not None:
                    try:
                        found, xid = self._run("find_lease", doors, _identity(doors))
                    except Exception as problem:
                        raise _clearer(problem, doors.schema) from problem
                    _check_found(found)
                yield conn
                completion.check()
                if doors is not None:
                    identity = _identity(doors)
                    _check_still_open(conn)
                    completion.ran = True
                    (answer,) = self._run("complete_leased", doors, {**identity, "xid": xid})
                    _check_completed(answer)
                    reach("handler.completed")
                completion.ran = done = True
            if done and alone:
                completion.committed = True
                reach("handler.committed")

    @asynccontextmanager
    async def _async(self) -> AsyncIterator[Any]:
        conn, completion, doors = self._conn, self._completion, self._doors
        with completion.block(conn):
            alone = doors is None or _begins(conn)
            if doors is not None:
                _identity(doors)
                await doors.lease_async(not alone)
                reach("handler.leased")
            done = False
            async with conn.transaction():
                if doors is not None:
                    try:
                        found, xid = await self._run_async("find_lease", doors, _identity(doors))
                    except Exception as problem:
                        raise _clearer(problem, doors.schema) from problem
                    _check_found(found)
                yield conn
                completion.check()
                if doors is not None:
                    identity = _identity(doors)
                    _check_still_open(conn)
                    completion.ran = True
                    (answer,) = await self._run_async("complete_leased", doors, {**identity, "xid": xid})
                    _check_completed(answer)
                    reach("handler.completed")
                completion.ran = done = True
            if done and alone:
                completion.committed = True
                reach("handler.committed")

    def _run(self, name: str, doors: Doors, values: Identity) -> tuple[str, ...]:
        text = sqlfiles.query(name, doors.schema)
        with _psycopg().Cursor(self._conn, row_factory=_plain_rows()) as cursor:
            cursor.execute(text, values, prepare=False)
            (row,) = cursor.fetchall()
        return tuple(map(str, row))

    async def _run_async(self, name: str, doors: Doors, values: Identity) -> tuple[str, ...]:
        text = sqlfiles.query(name, doors.schema)
        async with _psycopg().AsyncCursor(self._conn, row_factory=_plain_rows()) as cursor:
            await cursor.execute(text, values, prepare=False)
            (row,) = await cursor.fetchall()
        return tuple(map(str, row))


def _psycopg() -> Any:
    return sys.modules["psycopg"]


def _plain_rows() -> Any:
    """Return the factory of rows that are tuples, whatever those of the caller's connection are."""
    return sys.modules["psycopg.rows"].tuple_row


def _check_type(conn: Any, wanted: str, statement: str) -> None:
    """Refuse what is no psycopg connection of that colour. Errors: ValidationError."""
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(conn, getattr(psycopg, wanted)):
        raise ValidationError(
            f"`{statement} job.completing(conn)` needs a psycopg.{wanted}, not {type(conn).__name__}",
            path="conn",
        )


def _begins(conn: Any) -> bool:
    """Say whether the block's transaction is one of its own, which it commits, and not a part of a caller's.

    Errors: ValidationError for a connection that can do nothing.
    """
    status = conn.info.transaction_status.name
    if status == "UNKNOWN":
        raise ValidationError("it is closed", path="conn")
    check_lent(conn)
    return bool(status == "IDLE")


def _check_still_open(conn: Any) -> None:
    """Refuse to complete where the block's transaction was ended by a statement in it. Errors: TransitionRefused."""
    if conn.info.transaction_status.name == "IDLE":
        raise _ended_within()


def _ended_within() -> TransitionRefused:
    return TransitionRefused(
        "the transaction of job.completing was ended within its block, by `commit` or `rollback` as a statement: its rows and "
        "the completion would not be one; leave the end to the block (to undo it: raise psycopg.Rollback)"
    )


def _in_transaction(conn: Any) -> bool:
    info = getattr(conn, "info", None)
    return getattr(getattr(info, "transaction_status", None), "name", "") in ("INTRANS", "INERROR", "ACTIVE")


def _identity(doors: Doors) -> Identity:
    identity = doors.identity()
    if identity is None:
        raise LeaseLost("the attempt has ended: job.completing is for handlers that run")
    return identity


def _check_found(found: str) -> None:
    if found == "ended":
        raise LeaseLost(
            "the attempt has ended: its job was completed, cancelled, rescued or answered meanwhile"
        )
    if found != "held":
        raise ValidationError(
            "it leads to another database than the pool's: this attempt is not known there", path="conn"
        )


def _check_completed(answer: str) -> None:
    if answer == "moved":  # ended, and another begun: `rollback and chain`
        raise _ended_within()
    if answer != "completed":
        raise LeaseLost("the attempt has ended meanwhile: its job was cancelled, rescued or answered")


def _clearer(problem: Exception, schema: str) -> Exception:
    """Return what to raise where a first look with the caller's connection failed."""
    sqlstate = getattr(problem, "sqlstate", None)
    if sqlstate is None or isinstance(problem, AwaError):
        return problem
    text = getattr(getattr(problem, "diag", None), "message_primary", None) or str(problem)
    if sqlstate in _NOT_FIT:
        return ValidationError(text, path="conn")
    if sqlstate in _NOT_THERE:
        return SchemaMismatch(
            f"the connection of job.completing leads to a database without schema {schema!r} of this version ({text}): "
            f"give one to the pool's own database, or run there: awa-pool migrate --schema {shlex.quote(schema)}",
            sqlstate=sqlstate,
        )
    if sqlstate == "42501":
        return StoreRefused(
            f"the connection of job.completing may not use schema {schema!r}: {text}", sqlstate=sqlstate
        )
    return problem
