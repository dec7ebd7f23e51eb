"""Short jobs among long ones: whatever is idle takes what waits, and an open transaction holds up nobody."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from apps import supervised, unruly
from pool_rig import PoolProcess, pool, wait_until

from awa_pool import Client, InsertRequest

LONG_S = 60.0
"""A long job gives up waiting after this; every test has passed or failed by then."""


@pytest.fixture
def client(dsn: str) -> Client:
    return Client(dsn)


@pytest.fixture
def running(tmp_path: Path, dsn: str, client: Client) -> Iterator[PoolProcess]:
    """A pool of two workers that has learnt that `act` is a short kind, so that it hands them over many at a time."""
    with pool(tmp_path, dsn) as process:
        process.ready()
        client.insert_many([short() for _ in range(300)])
        wait_until("the first 300 are completed", all_completed(client, 300))
        yield process


def short(path: str = "") -> InsertRequest:
    return InsertRequest(args=supervised.Act(path=path), kind="act")


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def all_completed(client: Client, jobs: int) -> Callable[[], bool]:
    return lambda: completed(client) == jobs


@pytest.mark.parametrize(
    "long_job",
    [
        lambda path: InsertRequest(args=supervised.Act("hold", LONG_S, path), kind="act"),
        lambda path: InsertRequest(args=supervised.Rest(path, LONG_S), kind="rest"),
    ],
    ids=["of their own kind", "of another kind"],
)
def test_short_jobs_are_completed_while_a_long_one_among_them_holds_its_interpreter(
    tmp_path: Path, client: Client, running: PoolProcess, long_job: object
) -> None:
    """B026."""
    path = str(tmp_path / "long")
    client.insert_many([*(short() for _ in range(100)), long_job(path), *(short() for _ in range(100))])  # type: ignore[operator]
    # Those that ran just before it in its own worker too: their results are not kept until it ends.
    wait_until("all short jobs are completed", all_completed(client, 500))
    Path(f"{path}.go").touch()
    wait_until("the long job is completed", all_completed(client, 501))


def test_short_jobs_behind_long_ones_go_back_at_once_when_the_pool_drains(
    tmp_path: Path, client: Client, running: PoolProcess
) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        hold = InsertRequest(args=supervised.Act("hold", LONG_S, str(path)), kind="act")
        client.insert_many([*(short() for _ in range(10)), hold, *(short() for _ in range(30))])
    wait_until("both workers hold a long job", lambda: all(path.exists() for path in paths))
    running.signal(signal.SIGTERM)

    def only_long_ones_run() -> bool:
        rows = client.queue_stats()
        return (
            sum(row.running for row in rows) == 2
            and sum(row.available + row.completed for row in rows) == 380
        )

    wait_until("all others are claimable or completed", only_long_ones_run, 5.0)  # a drain may take 25 s
    assert running.process.poll() is None
    for path in paths:
        Path(f"{path}.go").touch()
    assert running.ended() == 0


def test_a_transaction_that_enqueued_and_stays_open_delays_nobody_elses_job(
    dsn: str, client: Client, running: PoolProcess
) -> None:
    with psycopg.connect(dsn) as slow:
        mine = client.insert(supervised.Act(), conn=slow)
        for round_number in range(1, 6):
            client.insert_many([short() for _ in range(20)])
            wait_until("the jobs beside it are completed", all_completed(client, 300 + 20 * round_number))
        assert client.get_job(mine) is None
        slow.commit()
        wait_until("the late job is completed", all_completed(client, 401))


def test_plain_jobs_are_run_while_more_async_ones_than_there_is_room_for_stand_before_them(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    mark = unruly.Mark(str(tmp_path / "marks"), LONG_S)
    with pool(tmp_path, dsn, app="apps.unruly:client", concurrency=2) as process:
        process.ready()
        client.insert_many([InsertRequest(args=mark, kind="mark_async") for _ in range(100)])
        client.insert_many([InsertRequest(args=unruly.Mark(mark.path), kind="mark") for _ in range(20)])
        wait_until("the plain jobs are completed", all_completed(client, 20))
