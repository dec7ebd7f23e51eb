"""A worker says once for a kind that its handlers leave callbacks behind, however they came to complete."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from awa_pool.job import Job
from awa_pool.page.writing import Page
from awa_pool.registry import Registry
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.limits import Alarm
from awa_pool.worker.output import Tags
from awa_pool.worker.quota import Quota
from awa_pool.worker.sync import SyncExecutor


@dataclass
class Ask:
    pass


class Registrar:
    """Registers at once, and answers at once."""

    def register(self, job: Any, timeout_s: float, rules: Any) -> tuple[str, int]:
        return "d2e7c7f2-0000-4000-8000-000000000000", 1

    async def register_async(self, job: Any, timeout_s: float, rules: Any) -> tuple[str, int]:
        return self.register(job, timeout_s, rules)

    async def wait_async(self, job: Any, callback_id: str) -> str:
        return "yes"


def endings_of(handler: Any) -> Endings:
    registry = Registry()
    registry.add(Ask, handler, kind="ask")
    return Endings(registry, "shop:client", Random(1), registrar=Registrar())  # type: ignore[arg-type]


def piece_of(jobs: int) -> Piece:
    bodies = [[9 + at, "ask", {}, 1, 4, 25, None] for at in range(jobs)]
    return Piece("default", 2, 3, 7, 9, list(range(jobs)), bodies, (1 << jobs) - 1)


def test_a_plain_handler_that_returns_nothing_is_told_of_its_callback_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def plain(job: Job[Ask]) -> None:
        job.register_callback(60)

    page = Page.create(str(tmp_path / "page"), 1, ["ask"], 8)
    executor = SyncExecutor(
        endings_of(plain), page.sync, {"ask": 0}, Tags(), lambda job_id, lease: False, set(), lambda kind: None,
        Alarm(), Quota(0, 0.0),
    )  # fmt: skip
    piece = piece_of(3)
    executor.run(piece, 10.0)
    page.close()
    assert piece.done == {"ask": 0b111} and piece.completed == 0b111
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "job 9, kind ask, is completed, but its handler neither waited for its callback #1"
    )


def run_async(handler: Any, jobs: int = 2) -> None:
    """Run attempts of an async handler to their end."""
    endings = endings_of(handler)
    task, piece = endings.registry.tasks["ask"], piece_of(jobs)
    for index in range(jobs):
        job = endings.job(piece, task, index, piece.bodies[index], lambda: False)
        with warnings.catch_warnings():  # of the interpreter's own, where it notices
            warnings.simplefilter("ignore", RuntimeWarning)
            result = asyncio.run(handler(job))
        endings.settle(piece, index, job, task, endings.of_handler(task, 1, result, None))  # type: ignore[arg-type]


def test_an_async_handler_that_does_not_await_its_wait_is_told_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forgets(job: Job[Ask]) -> None:
        token = await job.register_callback(60)
        job.wait_for_callback(token)

    run_async(forgets)
    (record,) = caplog.records
    assert (
        "job 9, kind ask, is completed, but `job.wait_for_callback(…)` was not awaited" in record.getMessage()
    )


def test_an_async_handler_that_awaits_its_wait_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def waits(job: Job[Ask]) -> None:
        assert await job.wait_for_callback(await job.register_callback(60)) == "yes"

    run_async(waits)
    assert not caplog.records
