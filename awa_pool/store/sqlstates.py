"""What the server's codes mean to us: one table from SQLSTATE to error class."""

from __future__ import annotations

import re
import shlex

import psycopg

from awa_pool.errors import (
    AwaError,
    CallbackNotFound,
    ConfigError,
    JobNotFound,
    SchemaMismatch,
    StoreConflict,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    TransitionRefused,
    UniqueConflict,
    ValidationError,
)

BY_STATE: dict[str, type[AwaError]] = {
    "AW001": ValidationError,
    "AW002": StoreRefused,  # wrong isolation level
    "AW003": SchemaMismatch,  # another cluster
    "AW004": JobNotFound,
    "AW005": TransitionRefused,
    "AW006": StoreRefused,  # malformed attempt identity
    "AW007": UniqueConflict,
    "AW008": CallbackNotFound,
    "25006": StoreUnavailable,  # read-only after a failover
    "3F000": SchemaMismatch,  # no such schema
    "42P01": SchemaMismatch,  # no such table
    "42883": SchemaMismatch,  # no such function
    "42703": SchemaMismatch,  # no such column
    "40001": StoreConflict,
    "40P01": StoreConflict,
    "55P03": StoreConflict,
    "57014": StoreConflict,  # cancelled, as by a statement timeout
    "0A000": StoreConflict,  # a cached plan after a change of the schema: the next try plans anew
}
BY_CLASS: dict[str, type[StoreError]] = {
    "08": StoreUnavailable,
    "53": StoreUnavailable,
    "57": StoreUnavailable,
    "58": StoreUnavailable,
    "28": StoreUnavailable,  # a password may be rotated: keep trying, and say so
    "3D": StoreUnavailable,  # the database may yet be created
}


# How libpq refuses a value in an address, before it looks for a server: no waiting will change that.
_ITEM = re.compile(r"jobs\[\d+\]")
_IMPOSSIBLE = re.compile(r"\binvalid (port number|integer value|\w+ value)\b")


def class_of(sqlstate: str | None) -> type[AwaError]:
    """Return the error class of a SQLSTATE; None (the connection itself failed) is StoreUnavailable."""
    if sqlstate is None:
        return StoreUnavailable
    return BY_STATE.get(sqlstate) or BY_CLASS.get(sqlstate[:2]) or StoreRefused


def error_of(sqlstate: str, text: str) -> StoreError:
    """Return the error of a part of a call, which the server itself caught and told."""
    kind = class_of(sqlstate)
    return (kind if issubclass(kind, StoreError) else StoreRefused)(text, sqlstate=sqlstate)


def translate(problem: psycopg.Error, schema: str, secrets: tuple[str, ...] = ()) -> AwaError:
    """Make our error of psycopg's: the server's primary message only (details may show values), secrets blotted."""
    sqlstate = problem.sqlstate
    if sqlstate is None and not isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreRefused(
            scrub(str(problem), secrets)
        )  # refused by the driver, before it reached the server
    text = scrub(problem.diag.message_primary or str(problem) or type(problem).__name__, secrets).strip()
    if sqlstate is None:  # libpq writes several lines; a log would show their ends as `\n\t`
        text = folded(text)
    if sqlstate is None and _IMPOSSIBLE.search(text):
        return ConfigError(f"the DSN cannot be used: {text.removeprefix('connection is bad: ')}")
    kind = class_of(sqlstate)
    if (
        sqlstate == "55P03"
    ):  # in the server's words a statement was cancelled; by whom, and what to do, it does not say
        text = f"another session's transaction holds what this needs, and did not end in time: try again ({text})"
    if issubclass(kind, SchemaMismatch):
        if sqlstate != "AW003":
            text = (
                f"schema {schema!r} is missing or of another version ({text}); "
                f"run: awa-pool migrate --schema {shlex.quote(schema)}"
            )
        return kind(text, sqlstate=sqlstate)
    if issubclass(kind, StoreError):
        return kind(text, sqlstate=sqlstate)
    if issubclass(kind, UniqueConflict):
        path = found[0] if (found := _ITEM.match(text)) else ""
        holder = problem.diag.message_detail
        return kind(text.removeprefix(f"{path}: "), job_id=int(holder) if holder else None, path=path)
    if issubclass(kind, CallbackNotFound):
        return kind(text, is_open=problem.diag.message_detail == "open")
    if issubclass(kind, ValidationError):
        path = problem.diag.message_detail or ""
        return kind(text.removeprefix(f"{path}: "), path=path)
    return kind(text)


def folded(text: str) -> str:
    """Put a text of several lines on one."""
    return " ".join(text.split())


def scrub(text: str, secrets: tuple[str, ...]) -> str:
    """Blot out secrets wherever a text shows them."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
