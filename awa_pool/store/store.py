"""One connection and one method per SQL function."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from awa_pool import sqlfiles

from . import callbacks, dead, housekeeping, inspecting
from . import statements as do
from .calls import Call
from .sqlstates import translate

T = TypeVar("T")
Conn = psycopg.Connection[Any]


@cache
def query_text(name: str, schema: str) -> bytes:
    """Return the text of a statement, rendered once per schema."""
    return sqlfiles.query(name, schema).encode()


def is_in_transaction(conn: psycopg.BaseConnection[Any]) -> bool:
    """Say whether what is done now is kept only if somebody else commits."""
    return not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE


def gives_rows(
    conn: psycopg.BaseConnection[Any], cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]
) -> bool:
    """Say whether there are rows to fetch. In a pipeline of the caller's nothing has come yet: fetching waits for it."""
    if conn.pgconn.pipeline_status != PipelineStatus.OFF:
        return True
    result = cursor.pgresult  # asked itself: the cursor's description makes an object a column
    return result is not None and result.status == ExecStatus.TUPLES_OK


def is_alone(conn: Any) -> bool:
    """Say whether what is done now on a caller's connection may commit by itself: nothing else is part of its transaction."""
    return isinstance(conn, psycopg.BaseConnection) and not is_in_transaction(conn)


def needs_begin(conn: psycopg.BaseConnection[Any]) -> bool:
    """Say whether the caller's transaction has yet to begin: `transaction()` would take it for its own, and commit it."""
    return not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE


class Store:
    """The database as one process sees it. Not shared between threads.

    Errors of every method: StoreUnavailable (connection lost, server away or read-only), StoreConflict (deadlock,
    serialization, lock timeout), SchemaMismatch, StoreRefused; never psycopg's own.
    """

    def __init__(
        self, conn: Conn, schema: str = "awa_pool", secrets: tuple[str, ...] = (), *, ours: bool = False
    ) -> None:
        """`ours`: `connect` opened the connection, no user of the library."""
        self.conn = conn
        self.schema = schema
        self.secrets = secrets
        self._ours = ours

    def run(self, call: Call[T]) -> T:
        """Run one call in the connection's present transaction (of its own under autocommit)."""
        try:
            with psycopg.Cursor(
                self.conn, row_factory=tuple_row
            ) as cursor:  # whatever the caller's are made of
                cursor.execute(
                    query_text(call.query, self.schema),
                    call.params or None,
                    prepare=None if call.prepared and self._ours else False,
                    binary=True,
                )
                rows = cursor.fetchall() if gives_rows(self.conn, cursor) else []
        except psycopg.Error as problem:
            raise translate(problem, self.schema, self.secrets) from None
        return call.read(rows)

    @contextlib.contextmanager
    def undone_if_it_fails(self) -> Iterator[None]:
        """Keep all or nothing of what is done inside: a transaction of its own, or a savepoint in one that is open."""
        if needs_begin(self.conn):
            self.run(do.prove_alive())
        try:
            with self.conn.transaction():
                yield
        except psycopg.Error as problem:
            raise translate(problem, self.schema, self.secrets) from None

    @property
    def usable(self) -> bool:
        """Whether the connection is still open."""
        return not self.conn.closed and not self.conn.broken

    def ended_at_rest(self) -> bool:
        """Say whether the server has ended the connection while nothing was asked; asks nothing itself."""
        poll = select.poll()
        try:
            poll.register(self.conn.fileno(), select.POLLIN)
            # Who speaks unasked says its last words and ends soon after, or it was a notice.
            for patience_ms in (0, 100, 100):
                if not poll.poll(patience_ms):
                    break
                self.conn.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return not self.usable

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()

    # one method per SQL function: types and meaning stand in `statements`

    def claim(
        self,
        queues: list[str],
        limits: list[int],
        total: int,
        max_bytes: int,
        chunk: int,
        runtime_id: str | UUID,
        request_id: int,
        waiting: bool,
    ) -> do.Claimed:
        """Claim jobs of several queues; calling again after a lost answer is healed by the audit."""
        return self.run(do.claim(queues, limits, total, max_bytes, chunk, runtime_id, request_id, waiting))

    def complete(
        self, slots: list[int], receipts: list[int], nonces: list[int], masks: list[int]
    ) -> list[do.Closed]:
        """Complete attempts in bulk; repeating it is safe."""
        return self.run(do.complete(slots, receipts, nonces, masks))

    def finish(self, items: bytes | str) -> list[do.Finished]:
        """End attempts with any outcome; repeating it is safe."""
        return self.run(do.finish(items))

    def open_attempts(self, runtime_id: str | UUID) -> list[do.OpenAttempts]:
        """What the database believes this runtime holds."""
        return self.run(do.open_attempts(runtime_id))

    def register_runtime(self, runtime_id: str | UUID, host: str, pid: int, info: str) -> None:
        """Announce a host's runtime."""
        self.run(do.register_runtime(runtime_id, host, pid, info))

    def heartbeat(self, runtime_id: str | UUID, info: str) -> str:
        """Keep a runtime alive: 'alive', or 'gone' when it was rescued or is unknown."""
        return self.run(do.heartbeat(runtime_id, info))

    def say_goodbye(self, runtime_id: str | UUID) -> None:
        """End a runtime by its own will."""
        self.run(do.say_goodbye(runtime_id))

    def work_left(self, queues: Sequence[str]) -> inspecting.WorkLeft:
        """What a draining pool has before it; counts are capped."""
        return self.run(inspecting.work_left(queues))

    def known_queues(self) -> list[str]:
        """The names of all queues with settings, work or history."""
        return self.run(inspecting.known_queues())

    def promote(self, limit: int) -> housekeeping.Promoted:
        """Make due jobs available."""
        return self.run(housekeeping.promote(limit))

    def rescue_stale(
        self, stale_s: float, limit: int, connected_s: float | None = None
    ) -> list[housekeeping.Rescued]:
        """End what runtimes without a heartbeat still hold."""
        return self.run(housekeeping.rescue_stale(stale_s, limit, connected_s))

    def expire_callbacks(self, limit: int) -> callbacks.Expired:
        """End the attempts whose callback was not answered in time."""
        return self.run(callbacks.expire_callbacks(limit))

    def lead(self, name: str, holder: str | UUID, ttl_s: float) -> bool:
        """Take or renew the leadership."""
        return self.run(housekeeping.lead(name, holder, ttl_s))

    def step_down(self, name: str, holder: str | UUID) -> None:
        """Give the leadership up, if held."""
        self.run(housekeeping.step_down(name, holder))

    def rotate(self, min_age_s: float, max_bytes: int) -> str | None:
        """Seal the current slot and open the next free one."""
        return self.run(housekeeping.rotate(min_age_s, max_bytes))

    def exhaust_slots(self) -> str | None:
        """Mark sealed slots in which nothing is left to do."""
        return self.run(housekeeping.upkeep("exhaust_slots"))

    def sweep(self) -> str | None:
        """Look for late rows in free and exhausted slots."""
        return self.run(housekeeping.upkeep("sweep"))

    def trim_cursors(self) -> str | None:
        """Drop superseded cursor rows."""
        return self.run(housekeeping.upkeep("trim_cursors"))

    def prune(self, retention_s: float, history_bytes: int) -> str | None:
        """Empty exhausted slots whose history is old or large enough."""
        return self.run(housekeeping.prune(retention_s, history_bytes))

    def prune_dead(self, retention_s: float, limit: int) -> str:
        """Delete dead jobs that are older than their queue keeps them."""
        return self.run(dead.prune_dead(retention_s, limit))

    def move_open_attempts(self, limit: int) -> str | None:
        """Move what holds up the oldest slots out of the ring."""
        return self.run(housekeeping.move_open_attempts(limit))

    def ring_status(self) -> list[inspecting.SlotStatus]:
        """The slots of the ring that are not free, and what holds them back."""
        return self.run(inspecting.ring_status())

    def check_cluster(self) -> None:
        """Raise SchemaMismatch when this schema was made in another cluster."""
        self.run(do.check_cluster())

    def prove_alive(self) -> None:
        """Ask the smallest question."""
        self.run(do.prove_alive())

    def queue_depths(self) -> list[inspecting.QueueDepth]:
        """Depth and lag per queue."""
        return self.run(inspecting.queue_depths())

    def queues(self) -> list[inspecting.QueueRow]:
        """Every queue that has settings or work."""
        return self.run(inspecting.queues())

    def queue_stats(self) -> list[inspecting.QueueStats]:
        """Jobs per queue and state."""
        return self.run(inspecting.queue_stats())

    def runtimes(self) -> list[inspecting.RuntimeRow]:
        """Every runtime seen lately."""
        return self.run(inspecting.runtimes())
