"""Installing, re-running and refusing schemas."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from cli_rig import run
from ring_rig import Session, call, claim, enqueue, ids, session, until, value
from servers import Server

from awa_pool import sqlfiles
from awa_pool.errors import ConfigError, SchemaMismatch, StoreUnavailable
from awa_pool.store.connection import connect
from awa_pool.store.migrate import check_schema, migrate, migration_sql

CATALOGUE = (
    "select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, "
    "  coalesce(pg_get_expr(d.adbin, d.adrelid), '') from pg_attribute a join pg_class c on c.oid = a.attrelid "
    "  left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum "
    "  where c.relnamespace = 'awa_pool'::regnamespace and a.attnum > 0 and not a.attisdropped "
    "union all select 'function', p.proname, pg_get_function_identity_arguments(p.oid), p.prosrc, "
    "  coalesce(p.proconfig::text, ''), pg_get_function_result(p.oid) from pg_proc p "
    "  where p.pronamespace = 'awa_pool'::regnamespace "
    "union all select 'index', tablename, indexname, indexdef, '', '' from pg_indexes where schemaname = 'awa_pool' "
    "union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' "
    "  from pg_constraint where connamespace = 'awa_pool'::regnamespace order by 1, 2, 3, 4, 5, 6"
)


def catalogue(dsn: str) -> list[tuple[object, ...]]:
    """All that a schema consists of."""
    with session(dsn) as conn:
        return conn.execute(CATALOGUE).fetchall()


def test_installing_twice_changes_nothing_and_says_so(empty_dsn: str) -> None:
    first = migrate(empty_dsn)
    installed = catalogue(empty_dsn)
    second = migrate(empty_dsn)
    assert (first.from_version, second.from_version) == (0, sqlfiles.SCHEMA_VERSION)
    assert second.applied == ()
    assert catalogue(empty_dsn) == installed
    assert "up to date" in str(second)


def test_the_printed_script_installs_the_same_schema(
    empty_dsn: str, pg_server: Server, tmp_path: Path
) -> None:
    script = tmp_path / "install.sql"
    script.write_text(migration_sql())
    psql = pg_server.bin_dir / "psql"
    if psql.exists():
        subprocess.run(
            [psql, "-q", "-v", "ON_ERROR_STOP=1", "-f", script, empty_dsn], check=True, capture_output=True
        )
    else:
        with session(empty_dsn) as conn:
            conn.execute(script.read_text())  # type: ignore[call-overload]
    printed = catalogue(empty_dsn)
    with session(empty_dsn) as conn:
        check_schema(conn)
        conn.execute("drop schema awa_pool cascade")
    migrate(empty_dsn)
    assert catalogue(empty_dsn) == printed


def test_two_migrators_at_once_do_not_meet(empty_dsn: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        reports = list(threads.map(migrate, [empty_dsn] * 3, timeout=60))
    assert sorted(report.from_version for report in reports) == [
        0,
        sqlfiles.SCHEMA_VERSION,
        sqlfiles.SCHEMA_VERSION,
    ]


@pytest.mark.parametrize("schema", ["My Queue", 'quo"ted', "größe", "select"])
def test_any_reasonable_name_is_a_schema(empty_dsn: str, schema: str) -> None:
    migrate(empty_dsn, schema)
    quoted = sqlfiles.quoted_schema(schema)
    with session(empty_dsn) as conn:
        check_schema(conn, schema)
        conn.execute(f"insert into {quoted}.jobs_ready (kind, args) values ('k', '{{}}')")
        found = value(
            conn,
            f"select job_ids from {quoted}.claim(array['default'], array[1], 1, 1000, 1, null, 1, false)",
        )
        assert found == [1]
        for function in ("rotate(0, null)", "exhaust_slots()", "sweep()", "prune(0, 0)", "trim_cursors()"):
            value(conn, f"select {quoted}.{function}")


@pytest.mark.parametrize("schema", ["", "a$b", "x" * 64, "a\x00b", "it's", "a{slot}", "pg_mine", "100%"])
def test_an_impossible_name_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError):
        sqlfiles.quoted_schema(schema)


def test_a_missing_schema_is_refused_naming_the_command(empty_dsn: str) -> None:
    with (
        session(empty_dsn) as conn,
        pytest.raises(SchemaMismatch, match="run `awa-pool migrate --schema awa_pool`"),
    ):
        check_schema(conn)


@pytest.mark.parametrize("table", ["orders (id int)", "meta (id int)", "meta (version int, engine text)"])
def test_a_foreign_schema_is_refused_and_left_alone(empty_dsn: str, table: str) -> None:
    with session(empty_dsn) as conn:
        conn.execute("create schema awa_pool")
        conn.execute(f"create table awa_pool.{table}")
        with pytest.raises(SchemaMismatch, match="awa-pool migrate --schema NAME"):
            check_schema(conn)
        with pytest.raises(SchemaMismatch):
            migrate(empty_dsn)
        assert value(conn, "select count(*) from pg_class where relnamespace = 'awa_pool'::regnamespace") == 1


def test_an_empty_schema_of_that_name_is_taken(empty_dsn: str) -> None:
    with session(empty_dsn) as conn:
        conn.execute("create schema awa_pool")
        migrate(empty_dsn)
        check_schema(conn)


def test_a_newer_schema_is_refused(dsn: str) -> None:
    with session(dsn) as conn:
        conn.execute("update awa_pool.meta set version = version + 1")
        with pytest.raises(SchemaMismatch, match="newer"):
            check_schema(conn)
        with pytest.raises(SchemaMismatch, match="newer"):
            migrate(dsn)


def test_an_older_schema_is_refused_until_it_is_migrated(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from awa_pool.store import migrate as module

    monkeypatch.setattr(module, "SCHEMA_VERSION", sqlfiles.SCHEMA_VERSION + 1)
    with session(dsn) as conn:
        with pytest.raises(SchemaMismatch, match="run `awa-pool migrate --schema awa_pool`"):
            check_schema(conn)
        report = migrate(dsn)
        assert (report.from_version, report.to_version) == (
            sqlfiles.SCHEMA_VERSION,
            sqlfiles.SCHEMA_VERSION + 1,
        )
        check_schema(conn)


def make_tables_of_schema_5(conn: Session) -> None:
    """The tables, without functions, as the release before cursors were partitioned made them."""
    conn.execute("create schema awa_pool")
    for version, file in sqlfiles.migrations("awa_pool"):
        if version < 6:
            conn.execute(file.text)  # type: ignore[call-overload]
    conn.execute(
        "insert into awa_pool.meta (version, system_identifier) select 5, system_identifier from pg_control_system()"
    )


def test_cursors_of_an_older_schema_go_on_where_they_stood(empty_dsn: str) -> None:
    with session(empty_dsn) as conn:
        make_tables_of_schema_5(conn)
        for _ in range(3):
            conn.execute(
                "insert into awa_pool.jobs_ready (queue, kind, args, txid, slot)"
                " values ('a', 'k', '{}', pg_current_xact_id(), 0)"
            )
        conn.execute("insert into awa_pool.cursor_windows (prev, cur) values ('1:1:', pg_current_snapshot())")
        conn.execute(  # one was claimed, then a second
            "insert into awa_pool.cursors (slot, queue, priority, window_id, txid, job_id)"
            " select 0, 'a', 2, 1, r.txid, r.job_id from awa_pool.jobs_ready as r where r.job_id < 3 order by r.job_id"
        )
        report = migrate(empty_dsn)
        assert (report.from_version, report.applied[0]) == (5, "migrations/0006_claims_read_by_slot")
        assert value(conn, "select count(*) from awa_pool.cursors") == 1
        assert ids(claim(conn)) == [3]


CLAIM = (
    "select count(*) from awa_pool.slots, awa_pool.drained_lanes",
    "select count(*) from awa_pool.cursors, awa_pool.cursor_windows",
    "insert into awa_pool.drained_lanes (slot, generation, queue) values (0, 0, 'a')",
)
CHORE = (
    "select pg_try_advisory_xact_lock(1635202371, hashtext('awa_pool')), count(*) from awa_pool.cursor_windows",
    "update awa_pool.slots set sealed_xid = null",
    "select count(*) from awa_pool.cursors, awa_pool.drained_lanes",
)


@pytest.mark.parametrize("done", [CLAIM, CHORE], ids=["a claim", "a chore of the ring"])
def test_cursors_are_moved_to_their_slots_while_a_pool_of_the_release_before_works(
    empty_dsn: str, done: tuple[str, ...]
) -> None:
    with session(empty_dsn) as conn, ThreadPoolExecutor() as threads:
        make_tables_of_schema_5(conn)
        with session(empty_dsn, autocommit=False) as old:
            old.execute(done[0])  # type: ignore[call-overload]
            moved = threads.submit(migrate, empty_dsn)
            until(lambda: value(conn, "select true from pg_locks where not granted"), "the migration waits")
            for statement in done[1:]:
                old.execute(statement)  # type: ignore[call-overload]
            old.commit()
        assert moved.result(30).from_version == 5
        jobs = enqueue(conn)
        assert ids(claim(conn)) == jobs


def test_another_cluster_is_refused_until_its_identifier_is_accepted(dsn: str) -> None:
    with session(dsn) as conn:
        conn.execute("update awa_pool.meta set system_identifier = 1")
        with pytest.raises(SchemaMismatch, match="--accept-system-id"):
            check_schema(conn)
        with pytest.raises(SchemaMismatch, match="--accept-system-id"):
            migrate(dsn)
        migrate(dsn, accept_system_id=True)
        check_schema(conn)


def test_migrating_again_keeps_jobs_and_privileges(dsn: str) -> None:
    with session(dsn) as conn:
        jobs = enqueue(conn, 3)
        granted = "select proacl::text from pg_proc where proname = 'enqueue' and pronamespace = 'awa_pool'::regnamespace"
        conn.execute("grant execute on all functions in schema awa_pool to pg_monitor")
        before = value(conn, granted)
        migrate(dsn)
        assert value(conn, granted) == before
        assert ids(claim(conn)) == jobs


def test_functions_of_another_release_go_and_changed_ones_are_made_anew(dsn: str) -> None:
    with session(dsn) as conn:
        installed = catalogue(dsn)
        conn.execute("create function awa_pool.gone() returns int language sql as 'select 1'")
        conn.execute("create function awa_pool.rotate(int) returns int language sql as 'select 1'")
        conn.execute("drop function awa_pool.snapshot_now()")
        conn.execute("create function awa_pool.snapshot_now() returns int language sql as 'select 1'")
        migrate(dsn)
        assert catalogue(dsn) == installed
        assert call(conn, "rotate(0, null)") == "empty"


def test_a_database_that_is_away_is_said_to_be_so_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as away:
        migrate(f"host={tmp_path} password=hunter2 connect_timeout=2")
    assert "hunter2" not in str(away.value)


def test_every_function_file_creates_what_it_is_named_for(dsn: str) -> None:
    with session(dsn) as conn:
        made = {
            row[0]
            for row in conn.execute(
                "select proname from pg_proc where pronamespace = 'awa_pool'::regnamespace union all "
                "select relname from pg_class where relnamespace = 'awa_pool'::regnamespace and relkind = 'v'"
            )
        }
    assert made == {file.stem for file in sqlfiles.functions("awa_pool")}


def test_functions_do_not_depend_on_the_callers_search_path(dsn: str) -> None:
    with session(dsn) as conn:
        conn.execute("set search_path = ''")
        (job,) = enqueue(conn)
        assert ids(claim(conn)) == [job]
        with pytest.raises(psycopg.Error, match="AW004|no job"):
            call(conn, "cancel(0)")


def test_no_text_means_something_else_where_backslashes_escape() -> None:
    literal = re.compile(r"(?<!e)'(?:[^'\n]|'')*\\(?:[^'\n]|'')*'")
    names = [
        name
        for folder in ("functions", "functions/slot", "functions/view")
        for name in sqlfiles.names(folder)
    ]
    names += [*sqlfiles.names("migrations"), *sqlfiles.names("queries"), *sqlfiles.names("migrate")]
    texts = {name: re.sub(r"(?m)^\s*--.*$", "", sqlfiles.read(name)) for name in names}
    assert [name for name, text in texts.items() if literal.search(text)] == []
    assert literal.search(r"x ~ '\d'")


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def narrow_dsn(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """DSN of a database that cannot hold every text."""
    name = f"narrow_{request.param.lower()}"
    pg_server.execute(f"create database {name} encoding '{request.param}' template template0")
    yield pg_server.dsn(name)
    pg_server.execute(f"drop database {name} with (force)")


@pytest.mark.parametrize("schema", ["awa_pool", "häuser"])
def test_a_database_of_another_encoding_is_refused_naming_what_to_make(
    narrow_dsn: str, schema: str, tmp_path: Path
) -> None:
    says = "awa-pool needs UTF8: make another by `create database NAME encoding 'UTF8' template template0`"
    ended = run("migrate", "--dsn", narrow_dsn, "--schema", schema, cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert says in ended.stderr


def test_each_new_connection_refuses_a_schema_that_was_copied_into_another_encoding(narrow_dsn: str) -> None:
    with session(narrow_dsn) as conn:  # as much of it as is looked at
        conn.execute("create schema awa_pool")
        conn.execute(
            f"create table awa_pool.meta as select {sqlfiles.SCHEMA_VERSION} as version, 'queue' as engine, "
            "system_identifier from pg_control_system()"
        )
    with pytest.raises(SchemaMismatch, match="has the encoding .*, awa-pool needs UTF8"):
        connect(narrow_dsn)


def test_a_migration_waits_for_another_under_any_isolation(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute(f"alter database {conn.info.dbname} set default_transaction_isolation = 'serializable'")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(migrate, [empty_dsn, empty_dsn])
    assert sorted([first.from_version, second.from_version]) == [0, sqlfiles.SCHEMA_VERSION]
