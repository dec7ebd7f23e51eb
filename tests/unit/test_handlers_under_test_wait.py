"""Waits for callbacks in handlers under test."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from awa_pool import (
    CallbackTimeout,
    Client,
    ShuttingDown,
    ValidationError,
)
from awa_pool.job import Job
from awa_pool.testing import HandlerJob

client = Client("host=nowhere")


@dataclass
class Plain:
    """Not declared to wait."""


@dataclass
class Waits:
    """Declared to wait."""


@client.task(Plain)
def plain(job: Job[Plain]) -> None: ...


@client.task(Waits, waits=True)
def waits(job: Job[Waits]) -> None: ...


@client.task(dict, kind="twice", waits=True)
def twice(job: Job[dict[str, Any]]) -> None:
    first = job.wait_for_callback(job.register_callback(60))
    token = job.register_callback(60)
    second = job.wait_for_callback(token)
    job.enqueue_on_completion({"got": [first, second]}, kind="told")


@client.task(dict, kind="twice_async")
async def twice_async(job: Job[dict[str, Any]]) -> None:
    first = await job.wait_for_callback(await job.register_callback(60))
    second = await job.wait_for_callback(await job.register_callback(60))
    job.enqueue_on_completion({"got": [first, second]}, kind="told")


@pytest.mark.parametrize("kind", ["twice", "twice_async"])
def test_a_handler_under_test_is_given_its_answers_beforehand(kind: str) -> None:
    def job(*answers: Any, **more: Any) -> HandlerJob[dict[str, Any]]:
        return HandlerJob({}, kind=kind, client=client, answers=answers, **more)

    result = job((1, 2), {"ok": True}).run()
    assert result.is_completed and result.staged[0].args == {"got": [[1, 2], {"ok": True}]}
    assert [token.number for token in result.job.callbacks] == [1, 2]  # type: ignore[attr-defined]
    assert job(1, CallbackTimeout("too late")).run().is_retryable
    assert job(1, ShuttingDown("stop")).run().outcome == "returned"
    assert job(1, 2, cancelled=True).run().is_cancelled
    with pytest.raises(AssertionError, match="callback #2, and no answer is left: give HandlerJob answers="):
        job(1).run()
    with pytest.raises(ValidationError, match=r"answers\[1\]"):
        job(1, {2})


def test_an_answer_that_a_test_has_not_given_is_its_mistake_even_where_the_handler_swallows_it() -> None:
    def swallows(job: Any) -> None:
        with contextlib.suppress(BaseException):
            job.wait_for_callback(job.register_callback(60))

    job = HandlerJob(Waits(), client=client)
    with pytest.raises(AssertionError, match="no answer is left"):
        job.run(swallows)
    assert job.run(lambda job: None).is_completed


def test_a_handler_under_test_is_refused_what_a_worker_would_refuse() -> None:
    def never(job: Any) -> None:
        token = job.register_callback(60)
        assert job.wait_for_callback(token) == 1
        job.wait_for_callback(token)

    result = HandlerJob(Plain(), client=client, answers=[1, 2]).run(never)
    assert "waits=True" in str(result.error)
    result = HandlerJob(Waits(), client=client, answers=[1, 2]).run(never)
    assert "its payload given" in str(result.error)
    result = HandlerJob({}, kind="unknown", answers=[1, 2]).run(never)
    assert "its payload given" in str(result.error)

    async def awaited() -> object:
        job = HandlerJob({}, kind="twice_async", client=client, answers=[3, 4])
        await twice_async(job)
        return job.staged[0].args

    assert asyncio.run(awaited()) == {"got": [3, 4]}


def test_the_shipping_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "callbacks.md"
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "waits=True" in block and "class Ship" in block
    )
    (tmp_path / "shipping_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    shipping = importlib.import_module("shipping_of_the_page")
    answers = [{"paid": True}, {"number": "P7"}]
    result = HandlerJob(shipping.Ship(7), client=shipping.client, answers=answers).run()
    assert result.is_completed and [each.args for each in result.staged] == [{"order": 7, "parcel": "P7"}]
    refused = HandlerJob(shipping.Ship(7), client=shipping.client, answers=[{"paid": False}]).run()
    assert refused.is_completed and refused.staged == ()
