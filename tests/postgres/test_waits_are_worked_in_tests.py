"""A handler that waits for callbacks, worked in the test's own process: its callbacks and their answers are real."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from awa_pool import AsyncClient, CallbackNotFound, CallbackTimeout, Client, LeaseLost, TransitionRefused
from awa_pool.job import Job
from awa_pool.testing import work_one


@dataclass
class Pay:
    timeout_s: float = 60.0


class Provider:
    """Answers the ids that handlers hand over: at once, a moment later, or never."""

    def __init__(self, client: Client, how: str) -> None:
        self.client = client
        self.how = how

    def ask(self, callback_id: str) -> None:
        answer: Any = {
            "early": lambda: self.client.resume_external(callback_id, {"paid": 7}),
            "complete": lambda: self.client.complete_external(callback_id),
            "never": lambda: None,
        }.get(self.how)
        if answer is not None:
            answer()
        else:
            threading.Timer(0.2, lambda: self.client.resume_external(callback_id, {"paid": 7})).start()


@pytest.mark.parametrize("how", ["early", "soon"])
def test_a_plain_handler_waits_for_a_real_answer(dsn: str, how: str) -> None:
    with Client(dsn) as client:
        provider, got = Provider(client, how), []

        @client.task(Pay, waits=True)
        def pay(job: Job[Pay]) -> None:
            for _ in range(2):
                token = job.register_callback(job.args.timeout_s)
                provider.ask(token.id)
                got.append(job.wait_for_callback(token))
            with pytest.raises(TransitionRefused):
                job.wait_for_callback(token)

        client.insert(Pay())
        assert work_one(client).is_completed and got == [{"paid": 7}, {"paid": 7}]


@pytest.mark.parametrize(
    ("how", "error", "state"), [("complete", LeaseLost, "completed"), ("never", CallbackTimeout, "retryable")]
)
def test_an_attempt_that_ends_outside_ends_its_wait(
    dsn: str, how: str, error: type[Exception], state: str
) -> None:
    with Client(dsn) as client:
        provider = Provider(client, how)

        @client.task(Pay, waits=True)
        def pay(job: Job[Pay]) -> None:
            token = job.register_callback(job.args.timeout_s)
            provider.ask(token.id)
            job.wait_for_callback(token)

        job_id = client.insert(Pay(timeout_s=0.05))
        result = work_one(client)
        assert isinstance(result.exception, error) and result.outcome == "stale"
        found = client.get_job(job_id)
        assert found is not None and found.state == state


def test_an_async_handler_gives_a_wait_up_and_asks_another(dsn: str) -> None:
    with Client(dsn) as client:
        seen: list[object] = []

        @client.task(Pay)
        async def pay(job: Job[Pay]) -> None:
            first = await job.register_callback(60)
            for _ in range(2):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(job.wait_for_callback(first), 0.05)
                found = client.get_job(job.id)
                seen.append(found and found.state)
            second = await job.register_callback(60)
            with pytest.raises(CallbackNotFound):
                client.resume_external(first.id)
            client.resume_external(second.id, 2)
            seen.append(await job.wait_for_callback(second))

        client.insert(Pay())
        assert work_one(client).is_completed and seen == ["running", "running", 2]


def test_an_async_handler_waits_and_its_loop_goes_on(dsn: str) -> None:
    async def all_of_it() -> list[object]:
        async with AsyncClient(dsn) as client:
            got: list[object] = []

            @client.task(Pay)
            async def pay(job: Job[Pay]) -> None:
                token = await job.register_callback(60)
                waiting = asyncio.create_task(job.wait_for_callback(token))
                await asyncio.sleep(0.05)
                await client.resume_external(token.id, [1])
                got.append(await waiting)

            await client.insert(Pay())
            assert (await work_one(client)).is_completed
            return got

    assert asyncio.run(all_of_it()) == [[1]]


def test_an_async_handler_waits_through_a_plain_client(dsn: str) -> None:
    with Client(dsn) as client:
        got: list[object] = []

        @client.task(Pay)
        async def pay(job: Job[Pay]) -> None:
            token = await job.register_callback(60)
            client.resume_external(token.id, 5)
            got.append(await job.wait_for_callback(token))

        client.insert(Pay())
        assert work_one(client).is_completed and got == [5]
