"""Settings that a database, a role or the environment gives every session: borne, overruled, or refused in one line."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from client_rig import SendEmail, declare
from psycopg.conninfo import conninfo_to_dict

from awa_pool import Client
from awa_pool.errors import ValidationError
from awa_pool.store import statements as do
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
