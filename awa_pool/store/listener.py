"""A thread that hears notifications and proves that it still can.

Notifications only wake: what was missed while the connection was down is covered by `ListenerBack`, on which the
reader looks once by itself, and by polling.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from awa_pool.errors import AwaError

from .connection import connect
from .mailbox import Mailbox
from .patience import ANSWER_S, is_pooled
from .sqlstates import translate
from .store import Store, query_text
from .threads import Pauses

PROOF_EVERY_S = 30.0


class Notified(NamedTuple):
    """Something happened: '' means new work, else 'cancel <job_id> <run_lease> <receipt_id>'."""

    payload: str


class ListenerBack(NamedTuple):
    """The listener hears, from now on; `pooled` when the server's process is not the one it connected to.

    A pooler in transaction mode passes no notifications on: then give a direct address (`--listen-dsn`).
    """

    pooled: bool = False


class ListenerLost(NamedTuple):
    """The listener hears nothing until `ListenerBack`; said once."""

    error: AwaError


class Listener:
    """Delivers `Notified`, `ListenerBack` and `ListenerLost` into `mailbox`; starts at once, reconnects by itself."""

    def __init__(
        self,
        dsn: str,
        mailbox: Mailbox,
        *,
        schema: str = "awa_pool",
        proof_every_s: float = PROOF_EVERY_S,
        connect: Callable[[], Store] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._connect = connect or (lambda: _connect(dsn, schema))
        self._mailbox = mailbox
        self._schema = schema
        self._proof_every_s = proof_every_s
        self._pauses = Pauses(rng)
        self._closing = False
        self._lost_said = False
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="awa-pool listener", daemon=True)
        self._thread.start()

    def close(self, deadline_s: float = 5.0) -> bool:
        """End the thread; True when it ended within the deadline."""
        if not self._closing:  # the second time the descriptor may belong to somebody else
            self._closing = True
            with contextlib.suppress(OSError):
                os.write(self._stop_writer, b"\0")
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # --- in the thread

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._listen()
                except AwaError as problem:
                    if not self._lost_said:
                        self._lost_said = True
                        self._mailbox.put(ListenerLost(problem))
                    self._wait_readable(None, self._pauses.next_s())
        finally:
            for descriptor in (self._stop_reader, self._stop_writer):
                os.close(descriptor)

    def _listen(self) -> None:
        store = self._connect()
        try:
            pooled = is_pooled(store)
            _execute(store, "listen")
            self._pauses.reset()
            self._lost_said = False
            self._mailbox.put(ListenerBack(pooled))
            while not self._closing:
                heard = self._wait_readable(store.conn, self._proof_every_s)
                if self._closing:
                    return
                if not heard:
                    store.prove_alive()
                self._deliver(store)
        finally:
            with contextlib.suppress(Exception):
                store.close()

    def _deliver(self, store: Store) -> None:
        """Pass on what has come; any number of 'look again' is one."""
        try:
            payloads = [note.payload for note in store.conn.notifies(timeout=0)]
        except psycopg.Error as problem:
            raise translate(problem, self._schema, store.secrets) from None
        for payload in dict.fromkeys(payloads):
            self._mailbox.put(Notified(payload))

    def _wait_readable(self, conn: psycopg.Connection[Any] | None, timeout_s: float) -> bool:
        """Wait for the server, for `close`, or for the time; True when the server has something to say."""
        poller = select.poll()
        poller.register(self._stop_reader, select.POLLIN)
        if conn is not None:
            poller.register(conn.fileno(), select.POLLIN)
        ready = poller.poll(timeout_s * 1000)
        return any(descriptor != self._stop_reader for descriptor, _ in ready)


def _connect(dsn: str, schema: str) -> Store:
    return connect(dsn, schema, "listener", answer_s=ANSWER_S)


def _execute(store: Store, name: str) -> None:
    try:
        store.conn.execute(query_text(name, store.schema))
    except psycopg.Error as problem:
        raise translate(problem, store.schema, store.secrets) from None
