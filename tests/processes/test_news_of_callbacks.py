"""An answer reaches the handler that waits for it by the database's notice, and without any in a moment more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apps.waiting import Pay, PayAsync
from apps.waiting import client as app
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client
from awa_pool.finalizer.waits import POLL_S

OPTIONS: dict[str, Any] = {"app": "apps.waiting:client", "queues": ["default"], "workers": 1}
TIMES = 6


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        found.registry = app.registry
        yield found


def state(client: Client, job_id: int) -> str:
    found = client.get_job(job_id)
    assert found is not None
    return found.state


def answered(client: Client, job_id: int, note: str, *, before: Any = lambda: None) -> float:
    """Answer one wait after the other, `before` each -> seconds from the first answer to the end of the job."""
    began_s = 0.0
    for number in range(1, TIMES + 1):
        wait_until(f"callback {number}", Path(f"{note}.{number}").exists)
        wait_until("the wait", lambda: state(client, job_id) == "waiting_external")
        began_s = began_s or time.monotonic()
        before()
        client.resume_external(Path(f"{note}.{number}").read_text(), number)
    wait_until("the end of the job", lambda: state(client, job_id) == "completed")
    return time.monotonic() - began_s


def scraped(process: PoolProcess, line: str) -> None:
    """Wait for a line of the metrics."""
    wait_until(line, lambda: line in process.fetch("/metrics")[1].splitlines(), 20.0)


@pytest.mark.parametrize("kind", [Pay, PayAsync])
def test_answers_are_heard_of_and_not_looked_for(
    client: Client, dsn: str, tmp_path: Path, kind: type[Pay]
) -> None:
    """Looked for every five seconds they would take half a minute."""
    note = str(tmp_path / "note")
    with pool(tmp_path, dsn, metrics_port=0, **OPTIONS) as process:
        job_id = client.insert(kind(note, times=TIMES))
        wait_until("the wait", lambda: state(client, job_id) == "waiting_external")
        scraped(process, "awa_pool_waiting_handlers 1.0")
        assert answered(client, job_id, note) < POLL_S * 2
        scraped(process, "awa_pool_waiting_handlers 0.0")
        scraped(process, f'awa_pool_callback_waits_total{{end="answered"}} {TIMES}.0')
        scraped(process, f'awa_pool_callback_news_total{{word="resumed"}} {TIMES}.0')
        scraped(process, f"awa_pool_callbacks_registered_total {TIMES}.0")


def test_without_a_listener_they_are_looked_for_four_times_a_second(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    note = str(tmp_path / "note")
    with pool(tmp_path, dsn, metrics_port=0, listen=False, **OPTIONS) as process:
        job_id = client.insert(Pay(note, times=TIMES))
        assert answered(client, job_id, note) < POLL_S * 2
        scraped(process, f'awa_pool_callback_waits_total{{end="answered"}} {TIMES}.0')
        assert "awa_pool_callback_news_total{" not in process.fetch("/metrics")[1]


def test_a_listener_that_is_lost_before_each_answer_costs_none(
    client: Client, dsn: str, tmp_path: Path
) -> None:
    note = str(tmp_path / "note")
    with pool(tmp_path, dsn, **OPTIONS), psycopg.connect(dsn, autocommit=True) as conn:

        def cut() -> None:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'awa-pool listener' and datname = current_database()"
            )

        job_id = client.insert(PayAsync(note, times=TIMES))
        assert answered(client, job_id, note, before=cut) < POLL_S * 4
