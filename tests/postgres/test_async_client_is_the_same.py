"""The asynchronous client: same names, same results."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from client_rig import SendEmail, declare, end_sessions, sessions
from psycopg.rows import dict_row

from awa_pool import AsyncClient, Client, JobNotFound, State, ValidationError


def in_loop(dsn, body):
    async def main():
        async with AsyncClient(dsn) as client:
            declare(client)
            await body(client)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_both_clients_have_the_same_methods_with_the_same_parameters():
    def shape(cls):
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(cls).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    assert shape(Client) == shape(AsyncClient)


def test_jobs_go_in_and_are_looked_after(dsn):
    async def body(client):
        ids = await client.insert_many([SendEmail("x"), ({}, {"kind": "plain"})])
        ids.append(await client.insert(SendEmail("y"), run_at=datetime.now(UTC) + timedelta(hours=1)))
        assert (
            await client.insert_many_copy(
                [SendEmail("z")] * 3 + [(SendEmail("l"), {"run_at": datetime.max.replace(tzinfo=UTC)})]
            )
            == 4
        )
        assert [(await client.get_job(i)).state for i in ids] == ["available", "available", "scheduled"]
        assert len(await client.list_jobs()) == 7
        assert await client.cancel(ids[0]) is State.CANCELLED
        assert await client.retry(ids[0]) is State.AVAILABLE
        await client.pause_queue("mail")
        assert {q.queue: q.paused for q in await client.queue_stats()}["mail"]
        await client.resume_queue("mail")
        with pytest.raises(JobNotFound):
            await client.cancel(2**60)

    in_loop(dsn, body)


def test_many_tasks_share_a_small_budget(dsn):
    async def body(client):
        ids = await asyncio.gather(*(client.insert(SendEmail("x", n)) for n in range(60)))
        assert len(set(ids)) == 60
        with psycopg.connect(dsn, autocommit=True) as conn:
            assert 1 <= sessions(conn, "awa-pool client") <= 4

    in_loop(dsn, body)


def test_a_large_bulk_call_is_all_or_nothing(dsn):
    async def body(client):
        with pytest.raises(ValidationError, match=r"jobs\[9000\]\.args\.tries"):
            await client.insert_many([SendEmail("x")] * 9_000 + [SendEmail("x", 2**64)])
        assert await client.list_jobs() == []
        ids = await client.insert_many([SendEmail("x", n) for n in range(20_000)])
        assert (await client.get_job(ids[12_345])).args["tries"] == 12_345

    in_loop(dsn, body)


def test_the_callers_transaction_decides(dsn):
    async def body(client):
        async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as conn:
            await client.insert(SendEmail("x"), conn=conn)
            await client.insert_many([SendEmail("x")], conn=conn)
            await client.insert_many_copy([SendEmail("x")], conn=conn)
            await conn.rollback()
            await client.insert(SendEmail("x"), conn=conn)
            assert await client.list_jobs() == []
            await conn.commit()
        assert len(await client.list_jobs()) == 1
        with psycopg.connect(dsn) as wrong, pytest.raises(ValidationError, match="AsyncConnection"):
            await client.insert(SendEmail("x"), conn=wrong)

    in_loop(dsn, body)


def test_ended_sessions_are_replaced_unseen(dsn):
    async def body(client):
        await client.insert(SendEmail("x"))
        assert end_sessions(dsn, "awa-pool client") == 1
        await client.insert(SendEmail("x"))

    in_loop(dsn, body)


def test_a_cancelled_call_leaves_a_client_that_works(dsn):
    async def body(client):
        task = asyncio.create_task(client.insert_many([SendEmail("x")] * 50_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.insert(SendEmail("x"))
        assert len(await client.list_jobs()) == 1

    in_loop(dsn, body)


def test_one_client_serves_one_event_loop_after_another(dsn):
    client = AsyncClient(dsn)
    declare(client)
    for _ in range(3):
        assert asyncio.run(client.insert(SendEmail("x")))
    asyncio.run(client.close())
    with psycopg.connect(dsn, autocommit=True) as conn:
        end_sessions(dsn, "awa-pool client")
        assert sessions(conn, "awa-pool client") == 0
