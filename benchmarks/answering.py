"""Senders that answer the callbacks of the benchmarks' handlers, each thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from queue import Empty, SimpleQueue

import psycopg

from awa_pool import Client

from .apps import client_for
from .asking import Asked, Ear
from .ours import PoolFailed

DEADLINE_S, SENDER = 120.0, "sender"


class Senders:
    """`connections` threads that answer what handlers ask: at once, or, while `held`, when they are told to."""

    def __init__(self, dsn: str, folder: str, connections: int) -> None:
        self.path = str(Path(folder, "asked"))
        self.held = True
        self.more = True
        self.waits_ms: list[float] = []
        """From the return of each answer's commit to the handler's next line, 0 where that came first."""
        self._dsn = dsn
        self._ear = Ear(self.path)
        self._waiting: dict[int, Asked] = {}
        self._answered_ns: dict[int, int] = {}
        self._heard = [0] * connections
        self._problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def heard(self) -> int:
        """How many times handlers have asked."""
        return sum(self._heard)

    def await_waiting(self, handlers: int) -> None:
        """Wait until so many handlers have asked and are held. Errors: PoolFailed."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self._waiting) < handlers:
            self._check(deadline, f"of {handlers} handlers {len(self._waiting)} wait")
            time.sleep(0.01)

    def await_asking(self, handler: int) -> None:
        """Wait until that handler asks. Errors: PoolFailed."""
        deadline = time.monotonic() + DEADLINE_S
        while handler not in self._waiting:
            self._check(deadline, f"handler {handler} does not go on")
            time.sleep(0.001)

    def _check(self, deadline: float, problem: str) -> None:
        if self._problems:
            raise self._problems[0]
        if time.monotonic() > deadline:
            raise PoolFailed(problem)

    def waiting(self) -> list[int]:
        """Return the handlers that are held."""
        return list(self._waiting)

    def release(self, handlers: Iterable[int], connections: int) -> None:
        """Answer these handlers in this order, over so many connections."""
        due: SimpleQueue[Asked] = SimpleQueue()
        for handler in handlers:
            due.put(self._waiting.pop(handler))

        def answer_all() -> None:
            try:
                with (
                    client_for(self._dsn) as client,
                    psycopg.connect(self._dsn, autocommit=True, application_name=SENDER) as conn,
                ):
                    while True:
                        self._answer(client, conn, due.get_nowait())
            except Empty:
                pass
            except Exception as problem:  # noqa: BLE001 (raised again where the benchmark waits)
                self._problems.append(problem)

        threads = [threading.Thread(target=answer_all) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._check(time.monotonic() + DEADLINE_S, "")

    def close(self) -> None:
        """Stop the threads."""
        for _ in self._threads:
            self._ear.dismiss()
        for thread in self._threads:
            thread.join()
        self._ear.close()

    def _run(self, number: int) -> None:
        try:
            with (
                client_for(self._dsn) as client,
                psycopg.connect(self._dsn, autocommit=True, application_name=SENDER) as conn,
            ):
                while (asked := self._ear.hear()) is not None:
                    self._heard[number] += 1
                    if asked.resumed_ns:
                        late_ns = asked.resumed_ns - self._answered_ns.get(asked.i, asked.resumed_ns)
                        self.waits_ms.append(max(0, late_ns) / 1e6)
                    if self.held:
                        self._waiting[asked.i] = asked
                    else:
                        self._answer(client, conn, asked)
        except Exception as problem:  # noqa: BLE001 (raised again where the benchmark waits)
            self._problems.append(problem)

    def _answer(self, client: Client, conn: psycopg.Connection[tuple[object, ...]], asked: Asked) -> None:
        client.resume_external(asked.callback_id, {"more": self.more}, conn=conn)
        self._answered_ns[asked.i] = time.monotonic_ns()
