"""An attempt that parks in one transaction with its follow-ups; requests for callbacks that come twice; both worked in tests."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from callbacks_rig import answer, register, register_all, told
from general_rig import Attempt, Queue

from awa_pool import AsyncClient, CallbackNotFound, Client, State, WaitForCallback
from awa_pool.job import Job
from awa_pool.testing import work_one

FOLLOW_UP = {"kind": "letter", "args": {"to": "ann"}, "queue": "letters"}
KEY = "ab" * 16


def end(q: Queue, attempt: Attempt, callback: str, *follow_ups: Any, **more: Any) -> tuple[Any, ...]:
    """Let an attempt park together with follow-ups -> status, state, inserted."""
    item = attempt.ended("park", callback_id=callback, **more)
    (found,) = q.rows(
        "select status, state, inserted from awa_pool.finish_with_follow_ups(%s::json, %s::json)",
        json.dumps(item), json.dumps(follow_ups),
    )  # fmt: skip
    return found


def letters(q: Queue) -> int:
    return q.one("select count(*) from awa_pool.jobs where kind = 'letter'")


def test_follow_ups_exist_exactly_if_the_attempt_is_parked(q: Queue) -> None:
    attempt = q.claimed()
    older, _ = register(q, attempt)
    callback, _ = register(q, attempt)
    assert end(q, attempt, older, FOLLOW_UP) == ("refused", None, 0)
    assert q.state(attempt.job_id) == "running"
    assert end(q, attempt, callback, FOLLOW_UP, progress={"percent": 40}) == ("done", "waiting_external", 1)
    assert end(q, attempt, callback, FOLLOW_UP) == ("stale", None, 0)
    assert letters(q) == 1
    job = q.job(attempt.job_id)
    assert job is not None and job["progress"] == {"percent": 40}
    assert answer(q, "resume_external", callback, "1")[2] == "available"
    job = q.job(attempt.job_id)
    assert job is not None and job["progress"] == {"percent": 40}


def test_an_attempt_that_was_answered_before_it_parked_becomes_available_with_its_follow_ups(
    q: Queue,
) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    answer(q, "resume_external", callback, '"early"')
    assert end(q, attempt, callback, FOLLOW_UP) == ("done", "available", 1)
    (again,) = q.claim(queue="default")
    assert (again.job_id, again.attempt, again.run_lease) == (
        attempt.job_id,
        attempt.attempt,
        attempt.run_lease + 1,
    )


def test_one_that_was_cancelled_meanwhile_brings_none(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    q.one("select awa_pool.cancel(%s)", attempt.job_id)
    assert end(q, attempt, callback, FOLLOW_UP) == ("stale", None, 0)
    assert letters(q) == 0


def test_a_follow_up_that_the_database_refuses_leaves_the_attempt_running(q: Queue) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    ends = [
        {"end": attempt.ended("park", callback_id=callback), "follow_ups": [{**FOLLOW_UP, "priority": 99}]}
    ]
    answers = q.one("call awa_pool.finish_staged(%s::json, 200, null)", json.dumps(ends))
    assert answers[0][0] == "refused" and answers[0][4] == "23514"
    assert q.state(attempt.job_id) == "running"
    assert end(q, attempt, callback) == ("done", "waiting_external", 0)


def test_a_request_said_twice_registers_once_whatever_has_come_of_it(q: Queue) -> None:
    attempt = q.claimed()
    wanted = uuid.uuid4()
    item = told(attempt, timeout_s=60, wanted_id=str(wanted))
    for _ in range(3):
        assert register_all(q, item) == [("done", wanted, 1)]
    answer(q, "resume_external", str(wanted), "5")
    assert register_all(q, item) == [("done", wanted, 1)]  # and the answer stands
    assert end(q, attempt, str(wanted))[1] == "available"
    assert register_all(q, item) == [("stale", None, None)]


def test_a_newer_request_replaces_the_callback_of_an_older_one(q: Queue) -> None:
    attempt = q.claimed()
    first, second = (told(attempt, timeout_s=60, wanted_id=str(uuid.uuid4())) for _ in range(2))
    assert register_all(q, first)[0][2] == 1
    assert register_all(q, second)[0][1:] == (uuid.UUID(second["wanted_id"]), 2)
    assert register_all(q, second)[0][2] == 2


# --- worked by a test -----------------------------------------------------------------------------------------


@dataclass
class Ask:
    twice: bool = False


tokens: list[str] = []


def ask(job: Job[Ask]) -> object:
    if job.resumed is not None and (job.resumed.number == 2 or not job.args.twice):
        assert job.resumed.payload == {"n": job.resumed.number}
        return None
    token = job.register_callback(60)
    tokens.append(token.id)
    return WaitForCallback(token)


async def ask_async(job: Job[Ask]) -> object:
    if job.resumed is not None:
        return None
    token = await job.register_callback(60)
    tokens.append(token.id)
    return WaitForCallback(token)


@pytest.mark.parametrize("handler", [ask, ask_async])
def test_work_one_registers_and_parks_for_real(dsn: str, handler: Any) -> None:
    with Client(dsn) as client:
        client.insert(Ask())
        first = work_one(client, Ask, handler)
        assert first.is_waiting and first.state is State.WAITING_EXTERNAL
        assert not work_one(client, Ask, handler)
        assert client.resume_external(tokens[-1], {"n": 1}).state is State.AVAILABLE
        assert work_one(client, Ask, handler).is_completed
        with pytest.raises(CallbackNotFound):
            client.resume_external(tokens[-1], {"n": 1})


def test_a_job_parks_again_and_again(dsn: str) -> None:
    with Client(dsn) as client:
        client.insert(Ask(twice=True))
        for number in (1, 2):
            assert work_one(client, Ask, ask).is_waiting
            assert client.resume_external(tokens[-1], {"n": number}).number == number
        assert work_one(client, Ask, ask).is_completed


@pytest.mark.parametrize("handler", [ask, ask_async])
def test_work_one_does_so_with_an_async_client(dsn: str, handler: Any) -> None:
    async def work() -> None:
        async with AsyncClient(dsn) as client:
            await client.insert(Ask())
            assert (await work_one(client, Ask, handler)).is_waiting
            await client.resume_external(tokens[-1], {"n": 1})
            assert (await work_one(client, Ask, handler)).is_completed

    asyncio.run(work())
