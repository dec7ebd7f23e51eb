"""One connection and the SQL functions as methods, for tests of the general path."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any, Self

import psycopg

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Attempt:
    """One claimed attempt, as `finish` wants it named."""

    slot: int
    receipt_id: int
    nonce: int
    index: int
    job_id: int
    run_lease: int
    attempt: int

    def ended(self, outcome: str, **more: Any) -> dict[str, Any]:
        """Return the item for `finish` that ends this attempt."""
        return {
            "slot": self.slot, "receipt_id": self.receipt_id, "nonce": self.nonce, "index": self.index,
            "job_id": self.job_id, "run_lease": self.run_lease, "outcome": outcome, **more,
        }  # fmt: skip


class Queue:
    """One queue of a test database through one autocommit connection; tests that share a database give each its own name."""

    def __init__(self, dsn: str, name: str = "default") -> None:
        self.dsn = dsn
        self.name = name
        self.conn = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        self.runtime = uuid.uuid4()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.conn.close()

    def rows(self, statement: str, *values: Any) -> list[Row]:
        cursor = self.conn.execute(statement, values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *values: Any) -> Any:
        ((value,),) = self.rows(statement, *values)
        return value

    def enqueue(self, kind: str = "k", **named: Any) -> int:
        casts = {"args": "json", "metadata": "json", "tags": "text[]", "run_at": "timestamptz",
                 "priority": "int", "max_attempts": "int"}  # fmt: skip
        named = {"args": {}, "queue": self.name, **named}
        words = "".join(f", p_{name} => %s::{casts.get(name, 'text')}" for name in named)
        values = [json.dumps(v) if casts.get(n) == "json" and v is not None else v for n, v in named.items()]
        return self.one(f"select awa_pool.enqueue(p_kind => %s::text{words})", kind, *values)

    def enqueue_many(self, jobs: Any) -> list[int]:
        return self.one("select awa_pool.enqueue_many(%s::json)", json.dumps(jobs))

    def claim(
        self, limit: int = 100, queue: str | None = None, runtime: uuid.UUID | None = None
    ) -> list[Attempt]:
        rows = self.rows(
            "select slot, receipt_id, nonce, bodies from awa_pool.claim(%s, %s, %s, 1 << 26, 63, %s, 1, false)"
            " where note = 'receipt'",
            [queue or self.name], [limit], limit, runtime or self.runtime,
        )  # fmt: skip
        return [
            Attempt(slot, receipt, nonce, i, body[0], body[4], body[3])
            for slot, receipt, nonce, bodies in rows
            for i, body in enumerate(map(json.loads, bodies))
        ]

    def claimed(self, **named: Any) -> Attempt:
        """Enqueue one job and claim it."""
        self.enqueue(**named)
        (attempt,) = self.claim()
        return attempt

    def finish(self, *items: Any) -> list[tuple[str, str | None]]:
        rows = self.rows("select item, status, state from awa_pool.finish(%s::json)", json.dumps(items))
        assert [r[0] for r in rows] == list(range(len(items)))
        return [(r[1], r[2]) for r in rows]

    def job(self, job_id: int) -> dict[str, Any] | None:
        cursor = self.conn.execute("select * from awa_pool.job(%s)", [job_id])
        row = cursor.fetchone()
        if row is None:
            return None
        return dict(zip((c.name for c in cursor.description or ()), row, strict=True))

    def state(self, job_id: int) -> str | None:
        found = self.job(job_id)
        viewed = self.rows("select state from awa_pool.jobs where id = %s", job_id)
        assert viewed == ([(found["state"],)] if found else []), "the view and job() disagree"
        return found["state"] if found else None

    def make_due(self, queue: str | None = None) -> None:
        self.rows(
            "update awa_pool.jobs_deferred set run_at = now() - interval '1 s' where queue = %s",
            queue or self.name,
        )

    def fill(self, count: int) -> list[int]:
        """Enqueue so many jobs by one call."""
        return self.enqueue_many([{"kind": "k", "args": {"n": n}, "queue": self.name} for n in range(count)])

    def promote(self, limit: int = 1000) -> Row:
        return self.rows("select promoted, next_due_s from awa_pool.promote(%s)", limit)[0]

    def move(self, attempt: Attempt) -> None:
        """Move an open attempt out of the ring, as maintenance does with one that outlives its slot."""
        self.rows(
            f"""with body as (select * from awa_pool.bodies_{attempt.slot}(array[%s::bigint], array[1::bigint << %s])),
            shut as (select * from awa_pool.close_bits_{attempt.slot}(
                array[%s::bigint], array[%s::bigint], array[1::bigint << %s], 8))
            insert into awa_pool.leases (job_id, queue, priority, kind, args, attempt, max_attempts, run_lease, run_at,
                created_at, metadata, tags, ordering_key, errors, snoozes, unique_key, unique_states, receipt_id,
                nonce, idx, slot, runtime_id, claimed_at)
            select b.job_id, b.queue, b.priority, b.kind, b.args, b.attempt, b.max_attempts, b.run_lease, b.run_at,
                b.created_at, b.metadata, b.tags, b.ordering_key, b.errors, b.snoozes, b.unique_key,
                b.unique_states, b.receipt_id, %s, b.idx, %s, %s, now()
            from body as b, shut where shut.done <> 0""",
            attempt.receipt_id, attempt.index, attempt.receipt_id, attempt.nonce, attempt.index,
            attempt.nonce, attempt.slot, self.runtime,
        )  # fmt: skip

    def retry_dead(self, *ids: int, **named: Any) -> list[Row]:
        """Retry dead jobs by id (of this queue, without ids); return (id, status, detail) of each."""
        return self.rows(
            "select job_id, status, detail from awa_pool.retry_dead(%s::bigint[], null, %s, null, null, null, null,"
            " null, null, 1000, %s::timestamptz, %s::int, %s::text)",
            list(ids) or None, None if ids else self.name, named.get("run_at"), named.get("priority"),
            named.get("to_queue"),
        )  # fmt: skip

    def bring_back_to_the_history(self, job_id: int) -> None:
        """Make of a dead job one that failed while its queue kept no dead letters."""
        self.rows(
            "with x as (delete from awa_pool.jobs_dead where job_id = %s returning *)"
            " insert into awa_pool.jobs_finished select * from x", job_id,
        )  # fmt: skip
