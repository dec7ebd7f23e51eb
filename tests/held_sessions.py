"""Statements of other sessions that a test brings to wait, so that it knows who comes first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from general_rig import Queue

DEADLINE_S = 20.0


class Waiting:
    """A statement of a third session, known to be waiting before the test goes on."""

    def __init__(self, dsn: str, statement: str, *values: Any) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        self.answer: Any = None
        self.error: psycopg.Error | None = None
        self.thread = threading.Thread(target=self._run, args=(statement, values))
        self.thread.start()

    def _run(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            self.answer = self.conn.execute(statement, values).fetchall()  # type: ignore[call-overload]
        except psycopg.Error as refused:
            self.error = refused

    def until_it_waits(self, watcher: Queue) -> None:
        """Return when its session waits for a lock, or sleeps."""
        pid = self.conn.info.backend_pid
        until(
            lambda: watcher.one(
                "select coalesce(wait_event_type = 'Lock' or wait_event = 'PgSleep', false)"
                " from pg_stat_activity where pid = %s",
                pid,
            )
        )

    def result(self) -> Any:
        """Return the first value of its answer, or raise what the database said."""
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        self.conn.close()
        if self.error is not None:
            raise self.error
        return self.answer[0][0]


def until(true: Callable[[], bool]) -> None:
    """Ask again until it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, "it never came to wait"
