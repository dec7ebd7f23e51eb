"""From the bytes of a chunk to job bodies; one body that cannot be read fails alone."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import orjson

from awa_pool.body import (
    ARGS,
    FIELDS,
    INT64,
    JOB_ID,
    KIND,
    RUN_LEASE,
    has_long_number,
    has_wide_integer,
    raw_fields,
)

T = TypeVar("T")

_BIGINT_MAX = INT64[1]


class Unreadable(NamedTuple):
    """A body that is no job: what could be told of it, for the record of its terminal failure."""

    job_id: int
    kind: str
    run_lease: int
    problem: str


Body = list[Any] | Unreadable


def parse_chunk(payload: bytes, count: int) -> list[Body]:
    """Return the `count` bodies of a chunk (joined by NUL), in order; never raises for what the bytes hold.

    A payload with another number of bodies than announced gives `count` unreadable ones, as nobody can say which
    body belongs to which index.
    """
    try:
        bodies = orjson.loads(b"[" + payload.replace(b"\0", b",") + b"]")
    except orjson.JSONDecodeError:
        bodies = None
    sound = bodies is not None and len(bodies) == count and all(map(_is_body, bodies))
    if sound and not (has_long_number(payload) and has_wide_integer(payload)):
        return bodies  # type: ignore[no-any-return]
    parts = payload.split(b"\0")
    if len(parts) != count:
        problem = f"a hand-over announced {count} jobs and held {len(parts)}"
        return [Unreadable(0, "", 0, problem) for _ in range(count)]
    return [_parse_one(part) for part in parts]


def _is_body(body: Any) -> bool:
    return (
        type(body) is list
        and len(body) == FIELDS
        and type(body[0]) is int
        and type(body[1]) is str
        and type(body[3]) is int
        and type(body[4]) is int
        and type(body[5]) is int
        and -_BIGINT_MAX <= body[0] <= _BIGINT_MAX
        and 0 <= body[4] <= _BIGINT_MAX
        and (body[6] is None or type(body[6]) is dict)
    )


def _parse_one(part: bytes) -> Body:
    try:
        body = orjson.loads(part)
    except orjson.JSONDecodeError as error:
        return _describe(part, f"the stored job cannot be read: {error}")
    if not _is_body(body):
        return _describe(part, "the stored job has not the form of a job body")
    if has_wide_integer(part):  # read as a float it would be another number
        where = "args" if has_wide_integer(raw_fields(part)[ARGS]) else "metadata"
        return _describe(part, f"{where}: an integer in them does not fit 64 bits, signed")
    return body  # type: ignore[no-any-return]


def _describe(part: bytes, problem: str) -> Unreadable:
    """Tell what can be told: PostgreSQL accepts JSON (lone surrogates, deep nesting) that no strict reader does."""
    fields = raw_fields(part)
    kind = _told(fields, KIND, str)
    return Unreadable(
        _told(fields, JOB_ID, int) or 0, kind or "", _told(fields, RUN_LEASE, int) or 0, problem
    )


def _told(fields: list[bytes], at: int, wanted: type[T]) -> T | None:
    try:
        value = orjson.loads(fields[at])
    except (IndexError, orjson.JSONDecodeError):
        return None
    return value if type(value) is wanted else None
