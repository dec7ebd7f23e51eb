"""The example of the page on callbacks: a computation elsewhere that moves its callback's time-out while it lives."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awa_pool import Job
from awa_pool.testing import work_one

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"
WORD = "simulation_of_the_page"


@pytest.fixture
def page(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The code of the page as a module of this test's own; its `submit` keeps the ids."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "heartbeat_callback" in block)
    (tmp_path / f"{WORD}.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AWA_POOL_DSN", dsn)
    found: Any = importlib.import_module(WORD)
    monkeypatch.delitem(sys.modules, WORD)
    found.ids = []
    monkeypatch.setattr(found, "submit", lambda steps, callback_id: found.ids.append(callback_id))
    with found.client:
        yield found


def due(dsn: str) -> list[datetime]:
    """When the callbacks that are open time out."""
    with psycopg.connect(dsn) as conn:
        return [at for (at,) in conn.execute("select callback_until from awa_pool.leases").fetchall()]


def test_each_sign_of_life_moves_the_time_out_and_the_parked_job_gets_its_answer(
    dsn: str, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = page.client.insert(page.Simulate(4))
    assert work_one(page.client).is_waiting
    seen: list[datetime] = []
    monkeypatch.setattr(page, "compute", lambda step: seen.extend(due(dsn)))
    page.simulation(4, *page.ids)
    assert len(seen) == 4 and sorted(set(seen)) == seen
    assert work_one(page.client).is_completed and page.client.get_job(job_id).state == "completed"


def test_a_computation_ends_once_nobody_wants_its_answer(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = page.client.insert(page.Simulate(4))
    assert work_one(page.client).is_waiting
    page.client.cancel(job_id)
    steps: list[int] = []
    monkeypatch.setattr(page, "compute", steps.append)
    page.simulation(4, *page.ids)
    assert steps == [0]


def test_a_handler_that_waits_is_kept_alive_too_and_signs_before_it_waits_do_no_harm(page: Any) -> None:
    got = []

    @page.client.task(dict, kind="waits", waits=True)
    def waits(job: Job[dict[str, Any]]) -> None:
        token = job.register_callback(600)
        if job.args["early"]:
            page.simulation(1, token.id)
        else:
            threading.Thread(target=page.simulation, args=(20, token.id)).start()
        got.append(job.wait_for_callback(token))

    for early in (True, False):
        page.client.insert({"early": early}, kind="waits")
        assert work_one(page.client).is_completed
    assert got == [{"steps": 1}, {"steps": 20}]
