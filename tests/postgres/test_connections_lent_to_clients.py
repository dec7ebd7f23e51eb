"""Connections that callers lend (`conn=`): what would come to no good end on them is refused before anything is sent."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from uuid import uuid4

import psycopg
import pytest
from client_rig import SendEmail, declare

from awa_pool import AsyncClient, Client
from awa_pool.errors import ValidationError
from awa_pool.inserting import CopyLoad
from awa_pool.requests import chunks_of
from awa_pool.store.bulk import copy_jobs
from awa_pool.store.store import Store

CALLBACK = str(uuid4())
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "insert": (SendEmail("x"),), "insert_many": ([SendEmail("x")],), "insert_many_copy": ([SendEmail("x")],),
    "get_job": (1,), "list_jobs": (), "retry": (1,), "queue_stats": (), "cancel": (1,),
    "cancel_by_unique_key": ("plain",), "list_dead": (), "count_dead": (), "retry_dead": (1,), "purge_dead": (1,),
    "move_to_dead": (1,), "set_queue": ("mail",), "pause_queue": ("mail",), "resume_queue": ("mail",),
    "resume_external": (CALLBACK,), "complete_external": (CALLBACK,), "fail_external": (CALLBACK, "no"),
    "retry_external": (CALLBACK,), "heartbeat_callback": (CALLBACK, 5), "resolve_callback": (CALLBACK,),
}  # fmt: skip
MORE: dict[str, dict[str, object]] = {
    "set_queue": {"deadline": 5},
    "cancel_by_unique_key": {"args": {"a": 1}},
}
LENT = [
    name
    for name, method in inspect.getmembers(Client, inspect.isfunction)
    if not name.startswith("_") and "conn" in inspect.signature(method).parameters
]


def spoilt(flaw: str) -> dict[str, str]:
    """What to connect with so that a session has that flaw."""
    return {} if flaw == "failed" else {"client_encoding": flaw}


FLAWS = {
    "failed": "conn: its transaction has failed: roll it back first",
    "LATIN1": "conn: its client_encoding is LATIN1: connect with client_encoding='UTF8', "
    "or run `set client_encoding to 'UTF8'` on it",
    "SQL_ASCII": "conn: its client_encoding is SQL_ASCII",
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_every_method_refuses_a_connection_on_which_nothing_can_be_done(dsn, flaw, capfd, caplog):
    with Client(dsn) as client, psycopg.connect(dsn, **spoilt(flaw)) as conn:
        declare(client)
        if flaw == "failed":
            with contextlib.suppress(psycopg.Error):
                conn.execute("select 1 / 0")
        for name in LENT:
            with pytest.raises(ValidationError) as refused:
                getattr(client, name)(*ARGUMENTS[name], **MORE.get(name, {}), conn=conn)
            assert str(refused.value).startswith(FLAWS[flaw]), name
            assert refused.value.path == "conn"
        conn.rollback()
        if flaw == "failed":
            client.insert(SendEmail("x"), conn=conn)
    assert (caplog.text, capfd.readouterr().err) == ("", "")


@pytest.mark.parametrize("flaw", FLAWS)
def test_every_awaited_method_refuses_it_as_well(dsn, flaw, capfd, caplog):
    async def main():
        async with (
            AsyncClient(dsn) as client,
            await psycopg.AsyncConnection.connect(dsn, **spoilt(flaw)) as conn,
        ):
            declare(client)
            if flaw == "failed":
                with contextlib.suppress(psycopg.Error):
                    await conn.execute("select 1 / 0")
            for name in LENT:
                with pytest.raises(ValidationError) as refused:
                    await getattr(client, name)(*ARGUMENTS[name], **MORE.get(name, {}), conn=conn)
                assert str(refused.value).startswith(FLAWS[flaw]), name
            await conn.rollback()

    asyncio.run(main())
    assert (caplog.text, capfd.readouterr().err) == ("", "")


def test_rows_that_are_copied_are_utf8_whatever_the_session_takes_texts_for(dsn):
    with Client(dsn) as client, psycopg.connect(dsn, client_encoding="LATIN1") as conn:
        declare(client)
        items = [SendEmail("é"), (SendEmail("é"), {"queue": "é", "metadata": {"m": "é"}})]
        load = CopyLoad(chunks_of(client.registry, items))
        copy_jobs(Store(conn), load, load.documents, load.queues)
        conn.commit()
        rows = client.list_jobs()
        assert [row.args["to"] for row in rows] == ["é", "é"]
        assert {row.queue for row in rows} == {"mail", "é"}
        assert [row.metadata["m"] for row in rows if row.metadata] == ["é"]
