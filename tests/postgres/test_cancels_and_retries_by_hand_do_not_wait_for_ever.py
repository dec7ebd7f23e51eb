"""What a person asks for ends in time where another session's transaction holds the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from callbacks_rig import waiting
from general_rig import Queue

from awa_pool import Client
from awa_pool.errors import StoreConflict


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def running(q: Queue) -> tuple[int, str]:
    attempt, _ = waiting(q)
    return attempt.job_id, "leases"


def scheduled(q: Queue) -> tuple[int, str]:
    return q.enqueue(run_at="2099-01-01T00:00:00Z"), "jobs_deferred"


@pytest.mark.parametrize(
    ("make", "act"),
    [(running, Client.cancel), (scheduled, Client.cancel), (scheduled, Client.retry)],
    ids=["cancel running", "cancel scheduled", "retry scheduled"],
)
def test_a_job_that_another_transaction_holds_is_a_conflict_with_clear_words(
    queue: Queue, dsn: str, make: Callable[[Queue], tuple[int, str]], act: Callable[[Client, int], object]
) -> None:
    job_id, table = make(queue)
    with psycopg.connect(dsn) as holder, Client(dsn) as client:
        holder.execute(f"select from awa_pool.{table} where job_id = %s for update", [job_id])
        with pytest.raises(
            StoreConflict, match="another session's transaction holds what this needs"
        ) as busy:
            act(client, job_id)
        assert busy.value.sqlstate == "55P03" and "try again" in str(busy.value)
        holder.rollback()
        act(client, job_id)
    assert queue.state(job_id) in ("cancelled", "available")
