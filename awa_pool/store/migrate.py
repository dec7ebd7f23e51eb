"""Install, upgrade and check the schema.

One transaction: a lock against a second migrator, the versioned steps still missing, then every function anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import psycopg
from psycopg import errors as pg

from awa_pool import sqlfiles
from awa_pool.errors import SchemaMismatch, StoreError, StoreUnavailable
from awa_pool.sqlfiles import SCHEMA_VERSION, SqlFile

from .connection import refuse_encoding, target, with_address
from .sqlstates import folded, scrub


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration did; `from_version` is 0 for a fresh install."""

    schema: str
    from_version: int
    to_version: int
    applied: tuple[str, ...]
    functions: int

    def __str__(self) -> str:
        if self.from_version == 0:
            return f"schema {self.schema}: installed version {self.to_version} ({self.functions} functions)"
        if self.applied:
            return f"schema {self.schema}: version {self.from_version} -> {self.to_version}"
        return f"schema {self.schema}: version {self.to_version} is up to date, functions renewed"


@dataclass(frozen=True, slots=True)
class _Facts:
    relations: int
    version: int  # 0: nothing of ours here
    engine: str
    system_identifier: int
    cluster_identifier: int


def migrate(
    dsn: str, schema: str = "awa_pool", accept_system_id: bool = False, *, any_cluster: bool = False
) -> MigrationReport:
    """Bring the schema to this package's version; calling it again renews the functions only.

    `any_cluster` takes a restored or copied schema as it is, without making it this cluster's: for a rebase.

    Errors: ConfigError for an impossible schema name; SchemaMismatch for a foreign or newer schema, one made
    in another cluster (unless `accept_system_id`, for after pg_upgrade), or a database of another encoding than UTF8;
    StoreUnavailable without a database.
    """
    sqlfiles.quoted_schema(schema)
    where = target(dsn, "migrate")
    try:
        with psycopg.connect(where.conninfo, prepare_threshold=None) as conn:
            conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # whatever is usual there
            return _migrate(conn, schema, accept_system_id, any_cluster)
    except psycopg.OperationalError as lost:
        text = folded(scrub(str(with_address(lost, where)), where.secrets))
        raise StoreUnavailable(
            f"cannot migrate: {text}", sqlstate=lost.sqlstate
        ) from None  # it may show the DSN
    except psycopg.Error as refused:
        if refused.sqlstate == "AW003":
            raise SchemaMismatch(
                f"cannot migrate: {refused.diag.message_primary}", sqlstate="AW003"
            ) from None
        raise StoreError(f"cannot migrate: {refused}", sqlstate=refused.sqlstate) from refused


def migration_sql(schema: str = "awa_pool") -> str:
    """Return the whole fresh install as one script for psql."""
    parts = [
        "begin;",
        _text("lock", schema) + ";",
        _text("settings", schema) + ";",
        _text("begin", schema) + ";",
    ]
    parts += [file.text for _, file in sqlfiles.migrations(schema)]
    parts += [file.text for file in sqlfiles.functions(schema)]
    parts += [_record(schema, SCHEMA_VERSION) + ";", "commit;"]
    return "\n".join(part.strip() for part in parts) + "\n"


def check_schema(conn: psycopg.Connection[object], schema: str = "awa_pool") -> None:
    """Refuse a schema that is missing, foreign, older, newer, or made in another cluster.

    Errors: SchemaMismatch, whose message names the command to run.
    """
    facts = _facts(cast("psycopg.Connection[tuple[object, ...]]", conn), schema)
    command = f"awa-pool migrate --schema {shlex.quote(schema)}"
    if facts.version == 0 and facts.relations == 0:
        raise SchemaMismatch(f"schema {schema} is not installed in this database: run `{command}`")
    _refuse_what_is_not_ours(facts, schema)
    if facts.version < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"schema {schema} has version {facts.version}, this awa-pool needs {SCHEMA_VERSION}: run `{command}`"
        )
    _refuse_other_cluster(facts, schema)


def _migrate(
    conn: psycopg.Connection[tuple[object, ...]], schema: str, accept_system_id: bool, any_cluster: bool
) -> MigrationReport:
    with conn.transaction():
        encoding, database = _run(conn, _text("encoding", schema)).fetchall()[0]
        refuse_encoding(str(encoding), str(database))  # first: no other text of ours need arrive there
        _run(conn, _text("lock", schema))
        facts = _facts(conn, schema)
        _refuse_what_is_not_ours(facts, schema)
        if facts.version and not (accept_system_id or any_cluster):
            _refuse_other_cluster(facts, schema)
        _run(conn, _text("settings", schema))
        if facts.version == 0:
            _run(conn, _text("begin", schema))
        applied = tuple(_apply_steps(conn, schema, facts.version))
        functions = _renew_functions(conn, schema)
        _run(conn, _record(schema, SCHEMA_VERSION))
        if accept_system_id:
            for statement in _text("accept_system_id", schema).split(";\n"):
                _run(conn, statement)
    return MigrationReport(schema, facts.version, SCHEMA_VERSION, applied, functions)


def _apply_steps(conn: psycopg.Connection[tuple[object, ...]], schema: str, installed: int) -> Iterator[str]:
    for version, file in sqlfiles.migrations(schema):
        if version > installed:
            _run(conn, file.text)
            yield file.name


def _renew_functions(conn: psycopg.Connection[tuple[object, ...]], schema: str) -> int:
    """Create every function again, and drop those of an earlier release that are no longer shipped."""
    shipped = {file.stem: file for file in sqlfiles.functions(schema)}
    for name in _function_names(conn, schema):
        if name not in shipped:
            _drop_named(conn, schema, name)
    for file in shipped.values():
        _create(conn, schema, file)
    for name, signatures in _function_names(conn, schema).items():
        if signatures > 1:  # the arguments changed: the old signature would make every call ambiguous
            _drop_named(conn, schema, name)
            _create(conn, schema, shipped[name])
    for name in shipped.keys() - _function_names(conn, schema).keys():
        _create(conn, schema, shipped[name])  # a view, or what a cascade took with it
    return len(shipped)


def _create(conn: psycopg.Connection[tuple[object, ...]], schema: str, file: SqlFile) -> None:
    try:
        with conn.transaction():
            _run(conn, file.text)
    except (pg.InvalidFunctionDefinition, pg.InvalidTableDefinition):
        # what it returns has changed, which `create or replace` cannot do
        _drop_named(conn, schema, file.stem)
        _run(conn, file.text)


def _function_names(conn: psycopg.Connection[tuple[object, ...]], schema: str) -> dict[str, int]:
    rows = _run(conn, _text("function_names", schema)).fetchall()
    return {str(name): int(cast(int, signatures)) for name, signatures in rows}


def _drop_named(conn: psycopg.Connection[tuple[object, ...]], schema: str, name: str) -> None:
    _run(conn, _text("drop_named", schema).replace("{name}", name.replace("'", "''")))


def _facts(conn: psycopg.Connection[tuple[object, ...]], schema: str) -> _Facts:
    row = _run(conn, _text("facts", schema)).fetchone()
    assert row is not None
    relations, has_meta, cluster = int(cast(int, row[0])), bool(row[1]), int(cast(int, row[2]))
    if not has_meta:
        return _Facts(relations, 0, "", 0, cluster)
    try:
        with conn.transaction():
            found = _run(conn, _text("meta", schema)).fetchone()
    except (pg.UndefinedColumn, pg.InsufficientPrivilege):
        found = None  # a table of that name which is not ours
    if found is None:
        return _Facts(relations, 0, "", 0, cluster)
    return _Facts(relations, int(cast(int, found[0])), str(found[1]), int(cast(int, found[2])), cluster)


def _refuse_what_is_not_ours(facts: _Facts, schema: str) -> None:
    if facts.version == 0 and facts.relations > 0:
        raise SchemaMismatch(
            f"schema {schema} holds tables that are not awa-pool's: choose another with "
            f"`awa-pool migrate --schema NAME`"
        )
    if facts.version > SCHEMA_VERSION:
        raise SchemaMismatch(
            f"schema {schema} has version {facts.version}, newer than this awa-pool knows ({SCHEMA_VERSION}): "
            f"run `pip install --upgrade awa-pool`"
        )


def _refuse_other_cluster(facts: _Facts, schema: str) -> None:
    if facts.system_identifier != facts.cluster_identifier:
        raise SchemaMismatch(
            f"schema {schema} was made in another PostgreSQL cluster (system identifier {facts.system_identifier}, "
            f"here {facts.cluster_identifier}): after pg_upgrade run `awa-pool migrate --schema {shlex.quote(schema)} "
            f"--accept-system-id`, after a restore or copy `awa-pool rebase --schema {shlex.quote(schema)}`"
        )


def _text(name: str, schema: str) -> str:
    return sqlfiles.render(sqlfiles.read(f"migrate/{name}"), schema).strip()


def _record(schema: str, version: int) -> str:
    text = _text("record", schema).replace("{to_version}", str(version))
    return text.replace("{works_from}", str(sqlfiles.works_from()))


def _run(conn: psycopg.Connection[tuple[object, ...]], text: str) -> psycopg.Cursor[tuple[object, ...]]:
    return conn.execute(text)
