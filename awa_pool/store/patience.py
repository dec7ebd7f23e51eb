"""Connections of the pool's own processes: they wait for an answer so long and no longer, and leave nothing behind.

A server (or what stands before it) that keeps the connection and says nothing more is as good as gone, but no time-out
of TCP notices it: each call has a bound on this side. So that a call given up here does not go on there, the session
has a time limit below that bound, and looks during a call whether anybody still listens.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

from .sqlstates import translate
from .store import Store, query_text

ANSWER_S = 30.0
"""Most of what a pool asks takes milliseconds."""
CHORE_S = 120.0
"""Housekeeping may have to wait for others' locks and to move thousands of rows."""
SERVER_SHARE = 0.8
"""The server gives up first: then it is its word that comes, and the connection lives on."""
LOOK_EVERY_S = 5.0

T = TypeVar("T")


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose every call ends, by an answer or by psycopg's OperationalError, within `answer_s`."""

    answer_s = ANSWER_S

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """As the driver's own, with an end."""
        return super().wait(_bounded(gen, self.answer_s), *args, **kwargs)


def _bounded(gen: Generator[Any, Any, T], answer_s: float) -> Generator[Any, Any, T]:
    """Pass on what a waiting generator wants and gets; the driver looks in several times a second."""
    until_s = time.monotonic() + answer_s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until_s:
                raise psycopg.OperationalError(f"no answer from the server for {answer_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def guard(store: Store, answer_s: float) -> None:
    """Bound what calls may take, on both sides. Behind a transaction pooler a session has no settings of its own.

    Errors: StoreUnavailable.
    """
    if isinstance(store.conn, PatientConnection):
        store.conn.answer_s = answer_s
    if is_pooled(store):
        return
    limits = {"limit_ms": str(int(answer_s * SERVER_SHARE * 1000))}
    _ask(store, "limit_session", limits)
    with contextlib.suppress(psycopg.Error):  # a platform that cannot tell: then TCP has to
        store.conn.execute(
            query_text("look_at_client", store.schema), {"every_ms": str(int(LOOK_EVERY_S * 1000))}
        )


def is_pooled(store: Store) -> bool:
    """Say whether a pooler stands between: then the process that answers is not the one that was announced."""
    row = _ask(store, "backend_pid")
    return row is not None and row[0] != store.conn.info.backend_pid


def _ask(store: Store, name: str, values: dict[str, str] | None = None) -> Any:
    try:
        return store.conn.execute(query_text(name, store.schema), values).fetchone()
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None
