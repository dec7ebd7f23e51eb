"""What the tests of the ring share: sessions, claims and completions as plain calls, and waiting with a deadline."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

DEADLINE_S = 30.0
MIB = 1 << 20
Session = psycopg.Connection[tuple[Any, ...]]


class Receipt(NamedTuple):
    """A claimed receipt, as `claim` returns it."""

    queue: str
    slot: int
    receipt_id: int
    nonce: int
    priority: int
    job_ids: list[int]
    bodies: list[str]

    @property
    def full(self) -> int:
        return (1 << len(self.job_ids)) - 1


@contextmanager
def session(dsn: str, autocommit: bool = True) -> Iterator[Session]:
    """A connection of its own, closed at the end."""
    conn = psycopg.connect(dsn, autocommit=autocommit, prepare_threshold=None)
    try:
        conn.execute("set statement_timeout = '30s'")
        if not autocommit:
            conn.commit()
        yield conn
    finally:
        conn.close()


def enqueue(
    conn: Session, count: int = 1, queue: str = "a", priority: int = 2, args: str = "{}"
) -> list[int]:
    """Insert jobs the way COPY does, by column defaults; returns their ids in order."""
    rows = conn.execute(
        "insert into awa_pool.jobs_ready (kind, args, queue, priority) "
        "select 'k', %s::json, %s, %s from generate_series(1, %s) returning job_id",
        (args, queue, priority, count),
    ).fetchall()
    return [row[0] for row in rows]


def claim_rows(
    conn: Session,
    queues: list[str],
    total: int = 100,
    chunk: int = 8,
    max_bytes: int = 64 * MIB,
    runtime: uuid.UUID | None = None,
    request: int = 0,
    waiting: bool = False,
) -> list[tuple[Any, ...]]:
    """Every row of one claim."""
    return conn.execute(
        "select queue, note, slot, receipt_id, nonce, priority, job_ids, bodies "
        "from awa_pool.claim(%s::text[], %s::int[], %s, %s::bigint, %s, %s::uuid, %s::bigint, %s)",
        (queues, [total] * len(queues), total, max_bytes, chunk, runtime or uuid.uuid4(), request, waiting),
    ).fetchall()


def claim(conn: Session, queue: str = "a", total: int = 100, chunk: int = 8, **more: Any) -> list[Receipt]:
    """The receipts of a claim of one queue."""
    rows = claim_rows(conn, [queue], total, chunk, **more)
    return [Receipt(r[0], *r[2:]) for r in rows if r[1] == "receipt"]


def note(conn: Session, queue: str = "a", **more: Any) -> str:
    """What a claim that should give nothing says about the queue."""
    (row,) = claim_rows(conn, [queue], **more)
    return str(row[1])


def ids(receipts: list[Receipt]) -> list[int]:
    """The job ids of receipts, in order."""
    return [job_id for receipt in receipts for job_id in receipt.job_ids]


def complete(conn: Session, *pieces: tuple[Receipt, int]) -> dict[int, tuple[int, int, int]]:
    """Complete masks of receipts: receipt id -> (done, stale, busy)."""
    rows = conn.execute(
        "select receipt_id, done, stale, busy "
        "from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[])",
        (
            [r.slot for r, _ in pieces],
            [r.receipt_id for r, _ in pieces],
            [r.nonce for r, _ in pieces],
            [mask for _, mask in pieces],
        ),
    ).fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


def finish_all(conn: Session, receipts: list[Receipt]) -> None:
    """Complete every attempt of these receipts."""
    for receipt in receipts:
        assert complete(conn, (receipt, receipt.full))[receipt.receipt_id] == (receipt.full, 0, 0)


def give_back(conn: Session, receipts: list[Receipt]) -> None:
    """End every attempt of these receipts as returned."""
    items = [
        {"slot": r.slot, "receipt_id": r.receipt_id, "nonce": r.nonce, "index": i, "job_id": job,
         "run_lease": json.loads(r.bodies[i])[4], "outcome": "return"}
        for r in receipts for i, job in enumerate(r.job_ids)
    ]  # fmt: skip
    answers = conn.execute("select status from awa_pool.finish(%s::json)", (json.dumps(items),)).fetchall()
    assert {row[0] for row in answers} == {"done"}


def call(conn: Session, expression: str, *values: Any) -> Any:
    """The value of one function of the schema."""
    row = conn.execute(f"select awa_pool.{expression}", values).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


def value(conn: Session, query: str, *values: Any) -> Any:
    """The first column of the first row."""
    row = conn.execute(query, values).fetchone()  # type: ignore[arg-type]
    return None if row is None else row[0]


def until(true: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Ask again until it is true; fails naming what was awaited."""
    end = time.monotonic() + deadline_s
    while True:
        found = true()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.005)


def exhaust(conn: Session, *slots: int) -> None:
    """Run exhaust_slots until these slots are exhausted (other sessions' short transactions may stand in between)."""
    until(
        lambda: (
            call(conn, "exhaust_slots()")
            and value(
                conn,
                "select count(*) = %s from awa_pool.slots where state = 'exhausted' and slot = any(%s)",
                len(slots),
                list(slots),
            )
        ),
        f"slots {slots} exhausted",
    )


def exhaust_first_slot(conn: Session) -> None:
    """Let one job pass through slot 0, seal it and wait until it is exhausted."""
    enqueue(conn)
    finish_all(conn, claim(conn))
    call(conn, "rotate(0, null)")
    exhaust(conn, 0)


def state(conn: Session, slot: int) -> str:
    """The state of a slot."""
    return str(value(conn, "select state from awa_pool.slots where slot = %s", slot))
