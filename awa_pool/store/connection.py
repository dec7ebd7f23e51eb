"""Open connections: with our settings, checked against the schema, and with errors that show no password."""

from __future__ import annotations

import difflib
import re
import shlex
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from awa_pool.config.readers import read_at
from awa_pool.errors import ConfigError, SchemaMismatch
from awa_pool.sqlfiles import SCHEMA_VERSION, quoted_schema

from . import statements as do
from .patience import PatientConnection, guard
from .sqlstates import translate
from .statements import SchemaFacts
from .store import Store

CONNECT_TIMEOUT_S = 10
PREPARE_AFTER = 5
"""Calls of one kind before the session keeps its plan: a single enqueue is 50 µs cheaper by it."""
LOOKING = "cli"
OTHER_CLUSTER = "AW003"
NO_SCHEMA = "3F000"
ENCODING = "UTF8"
"""Of all that we send and read, and of the database."""
ISOLATION = "read committed"
DEFAULTS: dict[str, Any] = {  # a peer that vanished is noticed within half a minute; the DSN's own values win
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}

_UNKNOWN = re.compile(r'invalid (?:URI query parameter:|connection option) "(.+)"')
_PASSWORD = re.compile(r"pass|://[^@]*:[^@]*@", re.IGNORECASE)
"""What may hold a password: one with a space or `?` that was not quoted looks like a keyword to libpq."""

_SILENT = "connection timeout expired"


class Target(NamedTuple):
    """Where to connect: a full conninfo, and what must not be shown of it."""

    conninfo: str
    secrets: tuple[str, ...]


def target(dsn: str, role: str = "client") -> Target:
    """Read a DSN and add our settings; ConfigError when it cannot be read (its text is not shown).

    Text is UTF-8, whatever the DSN, PGCLIENTENCODING, the role or the database say: nobody else uses these connections.
    """
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.Error as problem:
        raise ConfigError(_unreadable(dsn, str(problem))) from None
    if not all(port.isdecimal() for port in str(given.get("port") or "5432").split(",")):
        raise ConfigError("the DSN's port is not a number; write one such as 5432")
    secrets = tuple(str(given[key]) for key in ("password", "sslpassword") if given.get(key))
    # A server that has turned read-only (the old primary after a failover) is as good as away; looking at one is fine.
    writable = {} if role == LOOKING else {"target_session_attrs": "read-write"}
    ours = {"client_encoding": ENCODING, "application_name": f"awa-pool {role}"}
    settings: dict[str, Any] = {**DEFAULTS, **writable, **given, **ours}
    return Target(make_conninfo("", **settings), secrets)


def check_address(dsn: str, place: str) -> None:
    """Refuse an address that libpq cannot read, by the place where it was written; it is never shown, as it may hold a
    password."""
    read_at(place, target, dsn)


def _unreadable(dsn: str, told: str) -> str:
    """Say why a DSN cannot be read, by libpq's message: of the DSN's own text only the keyword that nobody knows."""
    if found := _UNKNOWN.search(told):
        word = found[1]
        known = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
        if near := difflib.get_close_matches(word, known, 1):
            return f"the DSN has an unknown keyword {word!r}; did you mean {near[0]!r}?"
        if not _PASSWORD.search(dsn):
            return (
                f"the DSN has an unknown keyword {word[:80]!r}; leave it out, or write one that libpq knows"
            )
    return "the DSN cannot be read: write postgresql://user@host:5432/database, or host=… dbname=…"


def shown_address(dsn: str) -> str:
    """Return where a DSN leads, as another program may be given it, without what is secret: `host=… port=… user=… dbname=…`."""
    given = conninfo_to_dict(dsn)
    names = ("service", "host", "hostaddr", "port", "user", "dbname")
    return make_conninfo("", **{name: given[name] for name in names if given.get(name)})


def connect(
    dsn: str,
    schema: str = "awa_pool",
    role: str = "client",
    *,
    check: bool = True,
    answer_s: float | None = None,
    owner: bool = False,
) -> Store:
    """Open a connection under autocommit and check that the schema is ours, of this version and of this cluster.

    With `answer_s` every call of the connection ends within that time, here and on the server. With `owner` a role that may
    not act as the schema's owner is refused.
    Errors: ConfigError (unreadable DSN), StoreUnavailable, SchemaMismatch.
    """
    quoted_schema(schema)
    where = target(dsn, role)
    kind: type[psycopg.Connection[Any]] = psycopg.Connection if answer_s is None else PatientConnection
    try:
        conn = kind.connect(where.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as problem:
        raise translate(with_address(problem, where), schema, where.secrets) from None
    store = Store(conn, schema, where.secrets, ours=True)
    try:
        if answer_s is not None:
            guard(store, answer_s)
        if check:
            facts = store.run(do.schema_facts())
            accept(conn, facts, schema)
            if owner and facts is not None:
                refuse_stranger(facts, schema)
    except BaseException:
        store.close()
        raise
    return store


def with_address(problem: psycopg.Error, where: Target) -> psycopg.Error:
    """Return the problem, and instead of the driver's bare word of a server that says nothing one that names its address."""
    if not isinstance(problem, psycopg.errors.ConnectionTimeout) or str(problem) != _SILENT:
        return problem  # with several addresses the driver names each
    known = {
        option.keyword.decode(): option.val.decode() for option in pq.Conninfo.get_defaults() if option.val
    }
    given = known | conninfo_to_dict(where.conninfo)
    host = given.get("host") or given.get("hostaddr") or "the local socket"
    return psycopg.OperationalError(f"no answer from {host} port {given.get('port')}: {_SILENT}")


def accept(conn: psycopg.BaseConnection[Any], facts: SchemaFacts | None, schema: str) -> None:
    """Raise SchemaMismatch as `refuse_mismatch` and `refuse_settings`; then let the session keep plans, unless a pooler stands
    between, which may give each call another session."""
    refuse_mismatch(facts, schema)
    if facts is None:
        return
    refuse_settings(facts)
    if facts.backend_pid == conn.info.backend_pid:
        conn.prepare_threshold = PREPARE_AFTER


def refuse_settings(facts: SchemaFacts) -> None:
    """Raise SchemaMismatch where sessions get settings under which nothing would work: it names the one, and the remedy."""
    refuse_encoding(facts.server_encoding, facts.database)
    for name, value, wanted in (
        ("client_encoding", facts.client_encoding, ENCODING),  # a pooler may have kept ours to itself
        ("default_transaction_isolation", facts.isolation, ISOLATION),
    ):
        if value != wanted:
            raise SchemaMismatch(
                f"sessions of role {facts.role} in database {facts.database} have {name} = '{value}', awa-pool needs "
                f"'{wanted}': run `alter role {facts.role} in database {facts.database} set {name} = '{wanted}'`"
            )


def refuse_stranger(facts: SchemaFacts, schema: str) -> None:
    """Raise SchemaMismatch for a role that could claim, but not keep house."""
    if not facts.owns:
        raise SchemaMismatch(
            f"role {facts.role} does not own schema {schema}: a pool works as its owner, so give it the address of "
            f"{facts.owner}, or run `grant {facts.owner} to {facts.role}`"
        )


def refuse_encoding(encoding: str, database: str) -> None:
    """Raise SchemaMismatch for a database that cannot hold text of every language."""
    if encoding != ENCODING:
        raise SchemaMismatch(
            f"database {database} has the encoding {encoding}, awa-pool needs {ENCODING}: make another by "
            f"`create database NAME encoding '{ENCODING}' template template0`, and give its address"
        )


def refuse_mismatch(facts: SchemaFacts | None, schema: str) -> None:
    """Raise SchemaMismatch unless the schema has this package's version and lies in the cluster it was made in."""
    command = f"awa-pool migrate --schema {shlex.quote(schema)}"
    if facts is None:
        raise SchemaMismatch(
            f"schema {schema} is not awa-pool's, or its migration was interrupted: run `{command}`",
            sqlstate=NO_SCHEMA,
        )
    if facts.version < SCHEMA_VERSION:
        raise SchemaMismatch(
            f"schema {schema} has version {facts.version}, this awa-pool needs {SCHEMA_VERSION}: run `{command}`"
        )
    if facts.version > SCHEMA_VERSION and facts.works_from > SCHEMA_VERSION:
        raise SchemaMismatch(
            f"schema {schema} has version {facts.version}, newer than this awa-pool knows ({SCHEMA_VERSION}): "
            f"run `pip install --upgrade awa-pool`"
        )
    if facts.system_identifier != facts.cluster_identifier:
        raise SchemaMismatch(
            f"schema {schema} was made in another PostgreSQL cluster (system identifier {facts.system_identifier}, "
            f"here {facts.cluster_identifier}): after pg_upgrade run `{command} --accept-system-id`, "
            f"after a restore or copy `awa-pool rebase --schema {shlex.quote(schema)}`",
            sqlstate=OTHER_CLUSTER,
        )
