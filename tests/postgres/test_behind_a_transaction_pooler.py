"""Client and store through pgbouncer in transaction mode."""

from __future__ import annotations

import asyncio
import re
import uuid

import psycopg
import pytest
from client_rig import DEADLINE_S, SendEmail, declare, pgbouncer, wait_for

from awa_pool import AsyncClient, Client, State
from awa_pool.store.connection import connect
from awa_pool.store.listener import Listener, ListenerBack, Notified
from awa_pool.store.mailbox import Mailbox


@pytest.fixture
def pooled(pg_server, dsn):
    with pgbouncer(pg_server, re.search(r"dbname=(\w+)", dsn)[1]) as address:
        yield address


def test_clients_work_through_a_pooler(pooled, dsn):
    """B075."""

    async def asynchronously():
        async with AsyncClient(pooled) as client:
            declare(client)
            await asyncio.gather(*(client.insert(SendEmail("x")) for _ in range(40)))
            assert len(await client.insert_many([SendEmail("x")] * 1_500)) == 1_500
            assert await client.insert_many_copy([SendEmail("x")] * 1_500) == 1_500

    with Client(pooled) as client:
        declare(client)
        with Client(pooled) as other:  # each on sessions of the other
            declare(other)
            for _ in range(20):
                job_id = client.insert(SendEmail("x"))
                other.insert(SendEmail("x"))
        assert len(client.insert_many([SendEmail("x")] * 1_500)) == 1_500
        assert client.insert_many_copy([SendEmail("x")] * 1_500) == 1_500
        assert client.cancel(job_id) is State.CANCELLED
        assert client.retry(job_id) is State.AVAILABLE
        with psycopg.connect(pooled, prepare_threshold=None) as conn:
            client.insert_many([SendEmail("x")] * 3, conn=conn)
            conn.rollback()
        asyncio.run(asynchronously())
        assert [q.queue for q in client.queue_stats()] == ["mail"]
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from awa_pool.jobs_ready where queue = 'mail'").fetchone() == (
            6_080,
        )


def test_a_store_claims_and_finishes_through_a_pooler(pooled):
    with Client(pooled) as client:
        client.insert_many([({"n": n}, {"kind": "k"}) for n in range(200)])
    stores = [connect(pooled) for _ in range(4)]
    runtime = uuid.uuid4()
    stores[0].register_runtime(runtime, "here", 1, "{}")
    done = 0
    for n in range(40):
        claimed = stores[n % 4].claim(["default"], [20], 20, 1 << 20, 63, runtime, n, True)
        for r in claimed.receipts:
            mask = (1 << len(r.job_ids)) - 1
            (closed,) = stores[(n + 1) % 4].complete([r.slot], [r.receipt_id], [r.nonce], [mask])
            done += closed.done.bit_count()
        if done == 200:
            break
    assert done == 200
    assert stores[0].open_attempts(runtime) == []
    for store in stores:
        store.close()


def test_a_listener_says_that_a_pooler_stands_between_and_a_direct_address_hears(pooled, dsn):
    box = Mailbox()
    listener = Listener(pooled, box)
    assert wait_for(box, lambda event: isinstance(event, ListenerBack)) == [ListenerBack(pooled=True)]
    assert listener.close(DEADLINE_S)
    listener = Listener(dsn, box)
    assert wait_for(box, lambda event: isinstance(event, ListenerBack)) == [ListenerBack(pooled=False)]
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as conn:
        conn.execute("select pg_notify('awa_pool', 'through')")
    wait_for(box, lambda event: event == Notified("through"))
    assert listener.close(DEADLINE_S)
    box.close()
