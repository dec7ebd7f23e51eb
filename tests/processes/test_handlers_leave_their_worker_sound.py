"""What handlers draw, return, open and carry, in whole pools."""

from __future__ import annotations

from pathlib import Path

import pytest
from apps import unruly
from pool_rig import pool, wait_until

from awa_pool import Client, InsertRequest
from awa_pool.errors import AwaError
from awa_pool.validation import ARGS_BYTES

APP = "apps.unruly:client"


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def test_draws_differ_values_are_dropped_and_own_sockets_harm_nobody(tmp_path: Path, dsn: str) -> None:
    """B023, B024, B053."""
    drawn = tmp_path / "drawn"
    kinds = [f"give_{what}" for what in ("lambda", "file", "generator", "spiteful")]
    with Client(dsn) as client, pool(tmp_path, dsn, app=APP, workers=8) as running:
        running.ready(8)
        jobs = [InsertRequest(args=unruly.Draw(str(drawn)), kind="draw") for _ in range(16)]
        jobs += [
            InsertRequest(args=unruly.Give(kind.partition("_")[2]), kind=kind)
            for kind in kinds
            for _ in range(20)
        ]
        for then in ("leave", "close", "destroy", "close"):
            jobs += [InsertRequest(args=unruly.Talk(then), kind="talk") for _ in range(10)]
        client.insert_many(jobs)
        wait_until("all are completed", lambda: completed(client) == len(jobs))
        assert all(row.attempt == 1 for row in client.list_jobs(state="completed", limit=200))
        # The value's type is told once a kind, whichever and however many workers meet it.
        for kind in kinds:
            running.logged(f", kind {kind}, is completed, but its handler returned a value of type ")
            assert running.log.count(f", kind {kind}, is completed, but its handler returned") == 1
        assert "Spiteful" in running.log
    rows = [line.split() for line in drawn.read_text().splitlines()]
    assert len({row[0] for row in rows}) > 1
    for column in (1, 2, 3):
        assert len({row[column] for row in rows}) == 16


def test_args_of_any_size_up_to_the_cap_run_and_one_byte_more_is_refused(tmp_path: Path, dsn: str) -> None:
    """B069."""
    frame = len('{"size":,"text":""}')

    def args(total: int) -> unruly.Weigh:
        size = total - frame - len(str(total))
        while frame + len(str(size)) + size < total:
            size += 1
        return unruly.Weigh(size, "x" * size)

    with Client(dsn) as client:
        for total in (9 * 1024, 1 << 20, ARGS_BYTES - 1, ARGS_BYTES):
            client.insert(args(total), kind="weigh")
        client.insert_many([InsertRequest(args=args(ARGS_BYTES), kind="weigh") for _ in range(12)])
        for total in (ARGS_BYTES + 1, 20 << 20):
            with pytest.raises(AwaError) as refused:
                client.insert(args(total), kind="weigh")
            assert str(ARGS_BYTES) in str(refused.value) and str(total) in str(refused.value)
        with pool(tmp_path, dsn, app=APP, drain=True) as running:
            assert running.ended() == 0, running.log
        assert completed(client) == 16
        assert all(row.attempt == 1 for row in client.list_jobs(state="completed", limit=200))
