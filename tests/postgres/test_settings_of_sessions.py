"""Settings that a database, a role or the environment gives every session: borne, overruled, or refused in one line."""

from __future__ import annotations

import asyncio
import re
import uuid
from datetime import UTC, datetime

import psycopg
import pytest
from cli_rig import APP, run
from client_rig import SendEmail, declare, wait_for
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from awa_pool import AsyncClient, Client
from awa_pool.errors import SchemaMismatch, ValidationError
from awa_pool.store import rebase
from awa_pool.store import statements as do
from awa_pool.store.connection import connect
from awa_pool.store.listener import Listener, ListenerBack, ListenerLost
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.migrate import migrate

LATER = datetime(2040, 2, 3, 4, 5, 6, tzinfo=UTC)
TEXT = 'é€ \\u0041 \n "quoted"'


def set_for_all(dsn: str, setting: str) -> None:
    """Give all sessions to come of this database a setting."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"alter database {conninfo_to_dict(dsn)['dbname']} set {setting}")


@pytest.fixture
def client(dsn):
    with Client(dsn) as made:
        declare(made)
        yield made


def put_and_read(client: Client) -> None:
    """Go every road in, and see on the roads out that all is as it was."""
    meta = {"metadata": {"m": TEXT}, "ordering_key": "é"}
    one = client.insert(SendEmail(TEXT), run_at=LATER, **meta)
    many = client.insert_many(
        [SendEmail(TEXT), (SendEmail(TEXT), meta), (SendEmail(TEXT), {"unique_opts": {}})]
    )
    assert client.insert_many_copy([SendEmail(TEXT), (SendEmail(TEXT), meta)]) == 2
    rows = client.list_jobs()
    assert {row.args["to"] for row in rows} == {TEXT}
    assert len(rows) == 6
    assert {row.metadata["m"] for row in rows if row.metadata} == {TEXT}
    first = client.get_job(one)
    assert first is not None
    assert first.run_at == LATER
    assert many
    assert client.cancel(one) == "cancelled"


def test_backslashes_may_escape_in_plain_literals(dsn, client):
    set_for_all(dsn, "standard_conforming_strings = off")
    migrate(dsn)
    put_and_read(client)
    for sick in ('{"n": 12345678901234567890}', '{"a": "\\u0000"}', '{"a": "\\ud800"}'):
        with pytest.raises(ValidationError), client._store(None) as store:
            store.run(do.enqueue("k", sick, "q", 2, 25, None, None, None, None))


@pytest.mark.parametrize("style", ["German, DMY", "SQL, DMY", "Postgres, MDY"])
def test_instants_are_read_whatever_the_style_of_dates(dsn, client, style):
    set_for_all(dsn, f"datestyle = '{style}'")
    put_and_read(client)
    moved = client.insert(SendEmail("dead"))
    client.move_to_dead(moved, why="a test")
    (dead,) = client.list_dead()
    assert dead.died_at.tzinfo is UTC
    assert client.retry_dead(queue="mail").done == 1
    with psycopg.connect(dsn) as conn:
        row = client.get_job(moved, conn=conn)
        assert row is not None
        assert row.created_at.tzinfo is UTC


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
@pytest.mark.parametrize("by", ["environment", "database", "dsn"])
def test_our_connections_talk_utf8_whatever_others_ask_for(dsn, client, monkeypatch, encoding, by):
    if by == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", encoding)
    elif by == "database":
        set_for_all(dsn, f"client_encoding = '{encoding}'")
    else:
        client.dsn += f" client_encoding={encoding}"
    put_and_read(client)
    store = connect(client.dsn, role="supervisor", answer_s=10)
    runtime = uuid.uuid4()
    store.register_runtime(runtime, "hôst", 1, "{}")
    assert store.heartbeat(runtime, "{}") == "alive"
    assert [row.host for row in store.runtimes()] == ["hôst"]
    store.close()


def test_a_pools_session_may_rest_whatever_idle_ones_are_told(dsn):
    set_for_all(dsn, "idle_session_timeout = '300ms'")
    store = connect(dsn, role="supervisor", answer_s=10)
    try:
        assert store.conn.execute("show idle_session_timeout").fetchone() == ("0",)
    finally:
        store.close()


def test_a_pool_under_a_role_that_does_not_own_the_schema_ends_at_once_naming_what_helps(dsn, tmp_path):
    name = f"claims_only_{conninfo_to_dict(dsn)['dbname']}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"create role {name} login")
        conn.execute(f"grant usage on schema awa_pool to {name}")
        conn.execute(f"grant all on all tables in schema awa_pool to {name}")
        conn.execute(f"grant all on all sequences in schema awa_pool to {name}")
        try:
            other = make_conninfo(dsn, user=name)
            (tmp_path / "shop.py").write_text(APP)
            for command in (("shop:client", "--workers", "1"), ("maintain",)):
                ended = run(*command, "--dsn", other, cwd=tmp_path)
                assert ended.returncode == 2
                assert f"role {name} does not own schema awa_pool: a pool works as its owner" in ended.stderr
        finally:
            conn.execute(f"drop owned by {name}")
            conn.execute(f"drop role {name}")


NEEDED = (
    "have default_transaction_isolation = 'serializable', awa-pool needs 'read committed': "
    "run `alter role awa in database {0} set default_transaction_isolation = 'read committed'`"
)


def test_another_isolation_is_refused_by_each_new_connection_naming_what_helps(dsn, client):
    set_for_all(dsn, "default_transaction_isolation = 'serializable'")
    needed = re.escape(NEEDED.format(conninfo_to_dict(dsn)["dbname"]))
    for role in ("dispatcher", "cli"):
        with pytest.raises(SchemaMismatch, match=needed):
            connect(dsn, role=role)
    with pytest.raises(SchemaMismatch, match=needed):
        client.insert({}, kind="plain")
    with pytest.raises(SchemaMismatch, match=needed):
        rebase.plan(dsn)

    async def asynchronously() -> None:
        async with AsyncClient(dsn) as other:
            await other.insert({}, kind="plain")

    with pytest.raises(SchemaMismatch, match=needed) as refused:
        asyncio.run(asynchronously())
    migrate(dsn)  # which sets what it needs for itself
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(str(refused.value).split("`")[1])
    client.insert({}, kind="plain")


def test_a_pool_and_its_commands_say_in_one_line_that_the_isolation_does_not_fit(dsn, tmp_path):
    set_for_all(dsn, "default_transaction_isolation = 'serializable'")
    (tmp_path / "app.py").write_text(APP)
    needed = NEEDED.format(conninfo_to_dict(dsn)["dbname"])
    receiver, pool = ["callbacks", "--port", "0", "--allow-unsigned"], ["app:client", "--workers", "1"]
    for words in (["status"], ["jobs"], ["rebase"], receiver, pool):
        ended = run(*words, "--dsn", dsn, cwd=tmp_path)
        assert ended.returncode == 2, (words, ended.stderr)
        assert [line for line in ended.stderr.splitlines() if needed in line][1:] == []
        assert needed in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_listener_says_once_that_it_cannot_work_and_goes_on_once_it_can(dsn):
    set_for_all(dsn, "default_transaction_isolation = 'serializable'")
    box = Mailbox()
    listener = Listener(dsn, box)
    try:
        (lost,) = wait_for(box, lambda event: isinstance(event, ListenerLost))
        assert "default_transaction_isolation" in str(lost.error)
        set_for_all(dsn, "default_transaction_isolation = 'read committed'")
        assert wait_for(box, lambda event: isinstance(event, ListenerBack)) == [ListenerBack()]
    finally:
        listener.close()
        box.close()
