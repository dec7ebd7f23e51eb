"""A client's connections: why none could be had is said at once, lost ones are replaced, busy ones waited for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dill
import psycopg
import pytest
from client_rig import DEADLINE_S, end_sessions, sessions
from psycopg.conninfo import make_conninfo
from servers import new_server, remove_server

from awa_pool import AsyncClient, Client
from awa_pool.errors import AwaError, ConfigError, SchemaMismatch, StoreUnavailable
from awa_pool.store import asynchronous, pool
from awa_pool.store.connection import connect
from awa_pool.store.migrate import migrate

SECRET = "hunter2"


def insert_async(dsn):
    async def main():
        async with AsyncClient(dsn) as client:
            return await client.insert({}, kind="k")

    return asyncio.run(main())


def insert_sync(dsn):
    with Client(dsn) as client:
        return client.insert({}, kind="k")


@pytest.fixture
def own_server(pg_server):
    """A server that a test may stop and configure, with the schema in its `postgres`."""
    server = new_server(pg_server.bin_dir, "fsync=off")
    try:
        migrate(server.dsn())
        yield server
    finally:
        remove_server(server)


@pytest.fixture
def no_patience(monkeypatch):
    """Whoever waits for a time-out instead of a reason runs into pytest's."""
    for module in (pool, asynchronous):
        monkeypatch.setattr(module, "WAIT_S", 10_000.0)


@pytest.mark.parametrize("insert", [insert_sync, insert_async])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"dbname": "nowhere"}, StoreUnavailable, 'database "nowhere" does not exist'),
        ({"host": "/nowhere"}, StoreUnavailable, "No such file or directory"),
        ({"host": "127.0.0.1", "port": "1"}, StoreUnavailable, "refused"),
        ({"user": "nobody_known"}, StoreUnavailable, 'role "nobody_known" does not exist'),
    ],
    ids=["database", "folder", "port", "role"],
)
def test_why_no_connection_can_be_had_is_said_at_once(dsn, insert, change, error, words, no_patience):
    with pytest.raises(error, match=words) as caught:
        insert(make_conninfo(dsn, password=SECRET, **change))
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("insert", [insert_sync, insert_async])
def test_a_schema_that_is_missing_is_said_at_once(empty_dsn, insert, no_patience):
    with pytest.raises(SchemaMismatch, match="awa-pool migrate"):
        insert(empty_dsn)


@pytest.mark.parametrize("insert", [insert_sync, insert_async])
def test_a_wrong_password_is_said_at_once_and_shown_nowhere(own_server, insert, no_patience, caplog):
    caplog.set_level(logging.DEBUG)
    hba = own_server.root / "data" / "pg_hba.conf"
    own_server.execute("create role guarded login password 'the right one'")
    hba.write_text("local all guarded scram-sha-256\n" + hba.read_text())
    own_server.execute("select pg_reload_conf()")
    dsn = own_server.dsn(user="guarded")
    until = time.monotonic() + DEADLINE_S
    while True:  # the reload takes effect when the server gets to it
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(dsn, password="").close()
            assert time.monotonic() < until
            continue
        break
    with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
        insert(f"{dsn} password={SECRET}")
    names = [thread.name for thread in threading.enumerate()]
    assert SECRET not in repr(caught.value) + caplog.text + str(names)


@pytest.mark.parametrize("insert", [insert_sync, insert_async])
def test_an_unreadable_dsn_is_a_mistake_of_configuration(insert, no_patience):
    with pytest.raises(ConfigError):
        insert(f"user awa password {SECRET}")


def test_a_client_that_failed_works_once_the_reason_is_gone(empty_dsn, no_patience):
    with Client(empty_dsn) as client:
        with pytest.raises(SchemaMismatch):
            client.insert({}, kind="k")
        client.migrate()
        assert client.insert({}, kind="k")


def test_threads_that_wait_for_one_attempt_share_its_failure(no_patience):
    all_ask, attempts = threading.Semaphore(0), []

    class Watched:
        lock = threading.Lock()
        release = lock.release

        def acquire(self, timeout):
            all_ask.release()
            return self.lock.acquire(timeout=DEADLINE_S)

    def refuse():
        attempts.append(1)
        assert all(all_ask.acquire(timeout=DEADLINE_S) for _ in range(8))
        raise StoreUnavailable("away")

    lent = pool.Pool(refuse)
    lent._home().opening = Watched()

    def borrow():
        with pytest.raises(StoreUnavailable, match="away"), lent.store():
            pass

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(borrow) for _ in range(8)]:
            each.result(DEADLINE_S)
    assert len(attempts) == 1


def test_no_call_fails_when_the_server_was_restarted_between_calls(own_server, no_patience, caplog):
    with Client(own_server.dsn()) as client:
        held = client._opened()
        with held.store(), held.store(), held.store(), held.store():
            pass
        for _ in range(2):
            own_server.stop()
            own_server.start()
            assert client.insert({}, kind="k")
        own_server.stop()
        with pytest.raises(StoreUnavailable, match="No such file|refused"):
            client.insert({}, kind="k")
        own_server.start()
        assert client.insert({}, kind="k")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_no_awaited_call_fails_when_the_server_was_restarted_between_calls(own_server, no_patience):
    async def main():
        async with AsyncClient(own_server.dsn()) as client:
            await asyncio.gather(*(client.insert({}, kind="k") for _ in range(20)))
            own_server.stop()
            own_server.start()
            assert await client.insert({}, kind="k")
            own_server.stop()
            with pytest.raises(StoreUnavailable, match="No such file|refused"):
                await client.insert({}, kind="k")
            own_server.start()
            assert await client.insert({}, kind="k")

    asyncio.run(asyncio.wait_for(main(), 100))


def test_who_waits_when_the_server_ends_hears_the_reason(own_server, no_patience):
    with Client(own_server.dsn()) as client, ThreadPoolExecutor(4) as threads:
        held = client._opened()
        with contextlib.ExitStack() as stack:
            stores = [stack.enter_context(held.store()) for _ in range(pool.POOL_SIZE)]
            waiting = [threads.submit(client.insert, {}, kind="k") for _ in range(4)]
            own_server.stop()
            with pytest.raises(AwaError):
                stores[0].prove_alive()
        for each in waiting:
            with pytest.raises(StoreUnavailable, match="No such file|refused"):
                each.result(DEADLINE_S)


def test_a_busy_client_says_so_after_a_bounded_wait(dsn, monkeypatch):
    with Client(dsn) as client, contextlib.ExitStack() as stack:
        held = client._opened()
        for _ in range(pool.POOL_SIZE):
            stack.enter_context(held.store())
        monkeypatch.setattr(pool, "WAIT_S", 0.05)
        with pytest.raises(StoreUnavailable, match="all 4 connections of this client are busy"):
            client.insert({}, kind="k")


def test_a_busy_client_that_may_not_have_more_connections_says_why(dsn, monkeypatch):
    opened = []

    def once():
        if opened:
            raise StoreUnavailable("too many clients already")
        opened.append(connect(dsn))
        return opened[0]

    lent = pool.Pool(once)
    with lent.store():
        monkeypatch.setattr(pool, "WAIT_S", 1.0)
        with pytest.raises(StoreUnavailable, match="too many clients"), lent.store():
            pass
    with lent.store() as store:
        store.prove_alive()
    lent.close()


def test_a_busy_asynchronous_client_says_so_after_a_bounded_wait(dsn, monkeypatch):
    async def main():
        async with AsyncClient(dsn) as client, contextlib.AsyncExitStack() as stack:
            for _ in range(pool.POOL_SIZE):
                await stack.enter_async_context(client._store(None))
            monkeypatch.setattr(asynchronous, "WAIT_S", 0.05)
            with pytest.raises(StoreUnavailable, match="all 4 connections of this client are busy"):
                await client.insert({}, kind="k")

    asyncio.run(asyncio.wait_for(main(), 100))


def test_an_asynchronous_client_outlives_who_cancels_all_tasks(dsn):
    async def main():
        client = AsyncClient(dsn)
        await client.insert({}, kind="k")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert others
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        assert await client.insert({}, kind="k")
        end_sessions(dsn, "awa-pool client")
        assert await client.insert({}, kind="k")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await client.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    with psycopg.connect(dsn, autocommit=True) as conn:
        until = time.monotonic() + DEADLINE_S
        while sessions(conn, "awa-pool client"):
            assert time.monotonic() < until


def test_a_client_that_is_used_travels_without_its_connections(dsn):
    with Client(dsn) as client:
        client.insert({}, kind="k")
        with dill.loads(dill.dumps(client)) as copy:
            assert copy._pool is None
            assert copy.insert({}, kind="k")


def test_closing_or_dropping_a_client_leaves_neither_sessions_nor_threads(dsn):
    def threads():
        return [thread for thread in threading.enumerate() if thread.name.startswith("awa-pool client")]

    with Client(dsn) as client:
        client.insert({}, kind="k")
        assert threads()
    assert not threads()
    client.insert({}, kind="k")  # a closed client opens again
    del client
    assert not threads()
    with psycopg.connect(dsn, autocommit=True) as conn:
        until = time.monotonic() + DEADLINE_S
        while sessions(conn, "awa-pool client"):
            assert time.monotonic() < until


def test_a_users_log_shows_no_line_per_call(dsn, caplog):
    caplog.set_level(logging.INFO)
    with Client(dsn) as client:
        client.insert({}, kind="k")
        caplog.clear()
        for _ in range(3):
            client.insert({}, kind="k")
        assert caplog.text == ""


def test_ended_sessions_are_replaced_without_a_pause_or_a_warning(dsn, caplog):
    with Client(dsn) as client:
        client.insert({}, kind="k")
        for _ in range(3):
            assert end_sessions(dsn, "awa-pool client") == 1
            assert client.insert({}, kind="k")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
