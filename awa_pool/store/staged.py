"""Attempts that end with follow-ups: many ends a trip, each in a transaction of its own on the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from awa_pool.errors import StoreError, StoreRefused

from .calls import Call
from .sqlstates import error_of


class EndedStaged(NamedTuple):
    """'done', 'stale' or 'busy', the job's state after it, how many follow-ups are new; (kind, holder's id) of those skipped."""

    status: str
    state: str | None
    inserted: int
    skipped: list[tuple[str, int]]


def finish_staged(
    ends: Sequence[tuple[dict[str, Any], bytes]], patience_ms: int
) -> Call[list[EndedStaged | StoreError]]:
    """End attempts with their follow-ups; an answer or an error for each, in order.

    An end is an item of `finish` and a JSON array of items of `enqueue_many`. A key that another session holds is
    waited for up to `patience_ms`.
    """
    text = b",".join(
        b'{"end":%s,"follow_ups":%s}' % (orjson.dumps(end), follow_ups) for end, follow_ups in ends
    )
    return Call("finish_staged", {"ends": f"[{text.decode()}]", "patience_ms": patience_ms}, _read)


def _read(rows: list[Any]) -> list[EndedStaged | StoreError]:
    return [_answer(*answer) for answer in rows[0][0]]


def _answer(
    status: str,
    state: str | None,
    inserted: int,
    skipped: list[list[Any]] | None,
    sqlstate: str | None,
    text: str | None,
) -> EndedStaged | StoreError:
    if status == "invalid":
        return StoreRefused("the database cannot read this outcome")
    if sqlstate is not None:
        return error_of(sqlstate, text or "")
    return EndedStaged(status, state, inserted, [(kind, holder) for kind, holder in skipped or ()])
