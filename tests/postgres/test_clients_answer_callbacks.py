"""Both clients answer callbacks, alone or in the caller's transaction, and are refused in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from callbacks_rig import expire, make_overdue, park, parked, register, wait, waiting
from general_rig import Queue

from awa_pool import AsyncClient, CallbackNotFound, Client, State, UniqueConflict


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        yield found


def test_a_client_answers_and_learns_what_became_of_the_job(q: Queue, client: Client) -> None:
    attempt, callback = waiting(q)
    assert client.resume_external(callback, {"n": 1e16}) == (attempt.job_id, 1, State.RUNNING)
    assert wait(q, attempt, callback) == ("answered", '{"n":1e+16}')
    with pytest.raises(CallbackNotFound, match=callback):
        client.resume_external(callback, 2)
    _, callback = parked(q)
    assert client.complete_external(UUID(callback), 5, resume=True).state is State.AVAILABLE
    q.claim()
    for make in (waiting, parked):
        attempt, callback = make(q)
        assert client.complete_external(callback, {"ok": True}) == (attempt.job_id, 1, State.COMPLETED)
        attempt, callback = make(q)
        assert client.fail_external(callback, "e" * 9000) == (attempt.job_id, 1, State.FAILED)
        row = client.get_job(attempt.job_id)
        assert row is not None and row.reason == "callback_failed" and len(row.errors[0]["error"]) <= 4096
        attempt, callback = make(q)
        until = client.heartbeat_callback(callback, timedelta(days=2))
        assert timedelta(days=1) < until - datetime.now(UTC) < timedelta(days=3)
        assert client.resolve_callback(callback) == (
            "ignored", attempt.job_id, 1, State.WAITING_EXTERNAL, "default_action", None,
        )  # fmt: skip
        assert client.resolve_callback(callback, 1, "complete").outcome == "completed"
        attempt, callback = make(q)
        assert client.retry_external(callback) == (attempt.job_id, 1, State.AVAILABLE)
        q.claim()


def test_an_unknown_id_is_told_by_every_method(client: Client) -> None:
    unknown = str(uuid4())
    calls: list[Any] = [
        lambda: client.resume_external(unknown), lambda: client.complete_external(unknown),
        lambda: client.fail_external(unknown, "no"), lambda: client.retry_external(unknown),
        lambda: client.resolve_callback(unknown), lambda: client.heartbeat_callback(unknown, 5),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(CallbackNotFound, match=unknown):
            call()


def test_what_wants_a_job_that_waits_says_so_of_an_open_callback(q: Queue, client: Client) -> None:
    attempt = q.claimed()
    callback, _ = register(q, attempt)
    early: list[Any] = [client.retry_external, lambda id: client.heartbeat_callback(id, 5)]
    for call in early:
        with pytest.raises(CallbackNotFound, match="nobody waits yet") as refused:
            call(callback)
        assert refused.value.is_open
    client.resume_external(callback)
    for call in early:
        with pytest.raises(CallbackNotFound, match="no callback waits") as refused:
            call(callback)
        assert not refused.value.is_open


def test_an_answer_in_the_callers_transaction_stands_and_falls_with_it(q: Queue, client: Client) -> None:
    attempt, callback = waiting(q)
    with psycopg.connect(q.dsn) as conn:
        client.complete_external(callback, conn=conn)
        assert q.state(attempt.job_id) == "waiting_external"
        conn.rollback()
        assert q.state(attempt.job_id) == "waiting_external"
        client.complete_external(callback, conn=conn)
        conn.commit()
    assert q.state(attempt.job_id) == "completed"


def test_the_pool_hears_of_an_answer_once_it_has_committed_whoever_commits_it(
    q: Queue, client: Client
) -> None:
    alone, own, within = (waiting(q)[1] for _ in range(3))
    with psycopg.connect(q.dsn, autocommit=True) as ear, psycopg.connect(q.dsn, autocommit=True) as conn:
        ear.execute("listen awa_pool")
        client.resume_external(alone.upper(), 1)
        client.resume_external(own, 2, conn=conn)
        with conn.transaction():
            client.resume_external(within, 3, conn=conn)
            heard = [n.payload for n in ear.notifies(timeout=10, stop_after=2)]
        heard += [n.payload for n in ear.notifies(timeout=10, stop_after=1)]
    assert heard == [f"callback {callback} resumed" for callback in (alone, own, within)]


def test_an_answer_that_commits_by_itself_is_refused_in_a_transaction_and_changes_nothing(q: Queue) -> None:
    attempt, callback = waiting(q)
    with psycopg.connect(q.dsn) as conn, pytest.raises(psycopg.errors.InvalidTransactionTermination):
        conn.execute("call awa_pool.resume_and_tell(%s, '1'::json)", (callback,))
    assert wait(q, attempt, callback) == ("waiting", None)


def test_the_async_client_does_the_same(q: Queue) -> None:
    (a, first), (b, second), (c, third), (d, fourth) = (waiting(q) for _ in range(4))
    e, early = q.claimed(), ""
    early, _ = register(q, e)

    async def answers() -> list[Any]:
        async with AsyncClient(q.dsn) as client, await psycopg.AsyncConnection.connect(q.dsn) as conn:
            done = [
                await client.resume_external(first, 1),
                await client.complete_external(second, conn=conn),
                await client.fail_external(third, "no"),
                await client.retry_external(fourth),
                await client.resolve_callback(early, 1, "fail"),
            ]
            await conn.commit()
            with pytest.raises(CallbackNotFound):
                await client.heartbeat_callback(second, 5)
            return done

    states = [answer.state for answer in asyncio.run(answers())]
    assert states == ["running", "completed", "failed", "available", "failed"]
    assert [q.state(x.job_id) for x in (a, b, c, d, e)] == states


def test_a_parked_job_whose_key_another_has_is_told_with_its_holder(q: Queue, client: Client) -> None:
    client.insert({"a": 1}, kind="k", unique_opts={})
    (attempt,) = q.claim()
    callback, _ = register(q, attempt)
    park(q, attempt, callback)
    second = client.insert({"a": 1}, kind="k", unique_opts={})
    with pytest.raises(UniqueConflict) as refused:
        client.resume_external(callback)
    assert refused.value.job_id == second
    client.cancel(second)
    assert client.resume_external(callback).state is State.AVAILABLE


def test_ends_from_outside_are_owed_to_an_app_that_waits_for_them(q: Queue, client: Client) -> None:
    outcomes = {"outcomes": {"k": ["completed", "exhausted", "retried", "rescued"]}}
    q.rows("select awa_pool.register_runtime(%s, 'h', 1, %s)", q.runtime, json.dumps(outcomes))
    told = []
    for end in (
        lambda c: client.complete_external(c, 1), lambda c: client.fail_external(c, "declined"),
        client.retry_external, lambda c: client.resume_external(c),
    ):  # fmt: skip
        attempt, callback = parked(q)
        end(callback)
        told.append(attempt.job_id)
        owed = q.rows(
            "select args from awa_pool.jobs where kind = 'awa:outcome' and (args ->> 'id')::bigint = %s",
            attempt.job_id,
        )
        told[-1:] = [[(a["outcomes"], a["error"], a["next_run_at"] is not None) for (a,) in owed]]
        q.rows("select awa_pool.cancel(id) from awa_pool.jobs where state = 'available'")
    assert told == [
        [(["completed"], None, False)], [(["exhausted"], "declined", False)],
        [(["retried"], "retried_by_callback", True)], [],
    ]  # fmt: skip


def test_a_timeout_is_owed_as_a_rescue(q: Queue) -> None:
    outcomes = {"outcomes": {"k": ["exhausted", "rescued"]}}
    q.rows("select awa_pool.register_runtime(%s, 'h', 1, %s)", q.runtime, json.dumps(outcomes))
    for most in (1, 3):
        attempt, _ = parked(q, max_attempts=most)
        make_overdue(q, attempt.job_id)
        expire(q)
        ((args,),) = q.rows(
            "select args from awa_pool.jobs where kind = 'awa:outcome' and (args ->> 'id')::bigint = %s",
            attempt.job_id,
        )
        assert args["cause"] == "expired_callback"
        assert args["outcomes"] == (["rescued", "exhausted"] if most == 1 else ["rescued"])
        q.rows("select awa_pool.cancel(id) from awa_pool.jobs where state = 'available'")
