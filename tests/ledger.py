"""What happened, written down outside the pool: handlers append a line each, a reader judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psycopg
from apps import supervised
from pool_rig import DEADLINE_S, wait_until

from awa_pool import Client, InsertRequest

_UNENDED = """
select count(*) from awa_pool.jobs where id = any(%s) and state not in ('completed', 'failed', 'cancelled')
"""
_COMPLETIONS = """
select r.job_ids[i.idx + 1] as job_id, count(*)
from awa_pool.completions as c
join awa_pool.receipts as r using (slot, receipt_id)
cross join lateral generate_series(0, r.n - 1) as i(idx)
where c.outcome = 1 and c.mask >> i.idx & 1 = 1
group by 1
"""


class Ledger:
    """A file that only grows: `job attempt pid` for each start of a handler (tests/apps/supervised.py writes it)."""

    def __init__(self, path: Path, dsn: str) -> None:
        self.path = path
        self.jobs: list[int] = []
        self._dsn = dsn

    def put(self, count: int, what: str = "pass", s: float = 0.0, max_attempts: int = 5) -> list[int]:
        """Insert jobs that write themselves down."""
        args = supervised.Act(what, s, str(self.path))
        requests = [InsertRequest(args=args, kind="act", max_attempts=max_attempts) for _ in range(count)]
        with Client(self._dsn) as client:
            ids = client.insert_many(requests)
        self.jobs += ids
        return ids

    def starts(self) -> Counter[int]:
        """Return how often each job's handler has begun."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        assert all(len(line.split()) == 3 for line in lines), "a torn line"
        return Counter(int(line.split()[0]) for line in lines)

    def attempts(self, jobs: Iterable[int] | None = None) -> dict[int, int]:
        """Return the number of attempts used up to the end -> how many of these jobs (default: all)."""
        with psycopg.connect(self._dsn) as conn:
            rows = conn.execute(
                "select attempt, count(*) from awa_pool.jobs where id = any(%s) group by 1",
                (list(self.jobs if jobs is None else jobs),),
            ).fetchall()
        return dict(rows)

    def unended(self) -> int:
        """Return how many jobs have not ended."""
        with psycopg.connect(self._dsn) as conn:
            row = conn.execute(_UNENDED, (self.jobs,)).fetchone()
            assert row is not None
            return int(row[0])

    def await_ends(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait until every job has ended."""
        wait_until("every job has ended", lambda: not self.unended(), deadline_s)

    def judge(self) -> None:
        """Each job's handler ran at least once, each completed exactly once, nothing is left running."""
        starts = self.starts()
        unrun = [job for job in self.jobs if not starts[job]]
        assert not unrun, f"{len(unrun)} jobs never ran: {unrun[:5]}"
        strangers = starts.keys() - set(self.jobs)
        assert not strangers, f"jobs ran that nobody has put in: {list(strangers)[:5]}"
        with psycopg.connect(self._dsn) as conn:
            states = dict(
                conn.execute(
                    "select state::text, count(*) from awa_pool.jobs where id = any(%s) group by 1",
                    (self.jobs,),
                ).fetchall()
            )
            times = Counter(dict(conn.execute(_COMPLETIONS).fetchall()))
        assert states == {"completed": len(self.jobs)}, states
        twice = [job for job in self.jobs if times[job] > 1]
        assert not twice, f"{len(twice)} jobs were finished twice: {twice[:5]}"
