"""An answer by a client that knows the app runs what was registered for its outcome: in its own transaction, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from callbacks_rig import parked, waiting
from general_rig import Queue

from awa_pool import AsyncClient, CallbackNotFound, Client, FollowUpFailed, State
from awa_pool.hooks import Completed, Exhausted, JobEvent, Retried
from awa_pool.job import Job

ANSWERS: list[tuple[str, tuple[Any, ...], type[JobEvent], State, str]] = [
    ("complete_external", ({"paid": 3},), Completed, State.COMPLETED, "completed"),
    ("fail_external", ("no money",), Exhausted, State.FAILED, "exhausted"),
    ("retry_external", (), Retried, State.AVAILABLE, "retried"),
    ("resolve_callback", (1, "complete"), Completed, State.COMPLETED, "completed"),
    ("resolve_callback", (1, "fail"), Exhausted, State.FAILED, "exhausted"),
]


@dataclass
class Pay:
    number: int


@dataclass
class Book:
    what: str
    more: str


def declare(client: Client | AsyncClient) -> list[JobEvent]:
    """A task, a spec for each outcome, and a hook that writes down what it hears."""
    heard: list[JobEvent] = []
    client.task(Pay)(_pay)
    client.task(Book)(_book)

    def spec(outcome: str) -> Callable[..., Any]:
        def follow(args: Pay, job: Job[Pay], *more: Any) -> Book:
            if args.number == 13:
                raise ValueError("not 13")
            resumed = job.resumed
            return Book(outcome, str(more[0] if more else resumed and resumed.payload))

        return follow

    client.on_completed_enqueue(Pay, spec("completed"))
    client.on_exhausted_enqueue(Pay, spec("exhausted"))
    client.on_retried_enqueue(Pay, spec("retried"))
    client.on_event(Pay)(heard.append)
    return heard


def _pay(job: Job[Pay]) -> None: ...


def _book(job: Job[Book]) -> None: ...


@pytest.fixture
def q(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        found.rows(
            "select awa_pool.register_runtime(gen_random_uuid(), 'host', 1, %s::jsonb)",
            '{"outcomes": {"pay": ["completed", "exhausted", "retried"]}}',
        )
        yield found


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        yield found


def booked(q: Queue) -> list[dict[str, Any]]:
    return [args for (args,) in q.rows("select args from awa_pool.jobs where kind = 'book' order by id")]


def owed(q: Queue) -> int:
    return q.one("select count(*) from awa_pool.jobs where kind = 'awa:outcome'")


@pytest.mark.parametrize(("method", "values", "event", "state", "outcome"), ANSWERS)
def test_follow_up_and_hook_come_with_the_answer(
    q: Queue, client: Client, method: str, values: Any, event: type[JobEvent], state: State, outcome: str
) -> None:
    heard = declare(client)
    attempt, callback = parked(q, kind="pay", args={"number": 7})
    answered = getattr(client, method)(callback, *values)
    assert (answered.job_id, answered.number, answered.state) == (attempt.job_id, 1, state)
    (made,) = booked(q)
    assert made["what"] == outcome
    if values == ({"paid": 3},):
        assert made["more"] == "{'paid': 3}"
    if method == "fail_external":
        assert made["more"] == "no money"
    assert [type(each) for each in heard] == [event] and heard[0].args == Pay(7)
    assert owed(q) == 0
    with pytest.raises(CallbackNotFound):
        getattr(client, method)(callback, *values)
    assert len(booked(q)) == len(heard) == 1


@pytest.mark.parametrize(("method", "values", "event", "state", "outcome"), ANSWERS)
def test_a_spec_that_fails_undoes_the_answer_so_that_it_can_be_sent_again(
    q: Queue, client: Client, method: str, values: Any, event: type[JobEvent], state: State, outcome: str
) -> None:
    heard = declare(client)
    attempt, callback = waiting(q, kind="pay", args={"number": 13})
    with pytest.raises(FollowUpFailed, match="raised ValueError: not 13") as caught:
        getattr(client, method)(callback, *values)
    assert str(caught.value.spec).endswith("follow")
    assert q.state(attempt.job_id) == "waiting_external" and heard == [] == booked(q)
    with Client(q.dsn) as stranger:  # who does not know the app leaves it to a worker
        assert getattr(stranger, method)(callback, *values).state is state
    assert owed(q) == 1


def test_in_a_transaction_of_the_caller_a_worker_tells_the_hooks(q: Queue, client: Client, dsn: str) -> None:
    heard = declare(client)
    _, callback = parked(q, kind="pay", args={"number": 7})
    _, wrong = parked(q, kind="pay", args={"number": 13})
    with psycopg.connect(dsn) as conn:
        assert client.complete_external(callback, 1, conn=conn).state is State.COMPLETED
        with pytest.raises(FollowUpFailed):
            client.complete_external(wrong, 1, conn=conn)
        assert conn.execute("select 1").fetchone() == (1,)  # only that answer is undone
        assert booked(q) == []
    assert len(booked(q)) == 1 and heard == [] and owed(q) == 1
    assert client.resume_external(wrong, 2).state is State.AVAILABLE  # nothing is registered for that


def test_an_async_client_does_the_same(q: Queue, dsn: str) -> None:
    attempt, callback = parked(q, kind="pay", args={"number": 7})
    _, wrong = parked(q, kind="pay", args={"number": 13})

    async def answer() -> list[JobEvent]:
        async with AsyncClient(dsn) as client:
            heard = declare(client)
            assert (await client.complete_external(callback, 1)).job_id == attempt.job_id
            with pytest.raises(FollowUpFailed):
                await client.resolve_callback(wrong, 1, "fail")
            assert (await client.resolve_callback(wrong)).outcome == "ignored"
            assert (await client.complete_external(wrong, 1, True)).state is State.AVAILABLE
            return heard

    assert [type(event) for event in asyncio.run(answer())] == [Completed]
    assert len(booked(q)) == 1
