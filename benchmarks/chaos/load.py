"""The load: jobs of every kind, put in as fast as they end, through restarts of the server."""

from __future__ import annotations

import random
import threading
import time

from awa_pool import Client, InsertRequest
from awa_pool.errors import AwaError

from . import app
from .ledger import Ledger, Pen

BACKLOG = 600
BATCH = 100
PAUSE_S = 0.05
KINDS = {"instant": 50, "burn": 30, "nap": 10, "flaky": 8, "deadly": 0.3, "doomed": 1.7}
"""Shares of the load in percent. A deadly job costs the boot of a worker."""


class Producer(threading.Thread):
    """Keeps a backlog until it is told to stop. A batch whose commit is unknown is not noted: it may exist or not."""

    def __init__(self, dsn: str, ledger: Ledger, pen: Pen, seed: int) -> None:
        super().__init__(name="producer", daemon=True)
        self._client = Client(dsn)
        self._client.registry = app.client.registry
        self._ledger = ledger
        self._pen = pen
        self._rng = random.Random(seed)
        self._number = 0
        self._over = threading.Event()
        self.refused = 0

    def run(self) -> None:
        """Put jobs in."""
        while not self._over.is_set():
            self._ledger.read()
            if len(self._ledger.put - self._ledger.began.keys()) >= BACKLOG:
                time.sleep(PAUSE_S)
                continue
            try:
                jobs = self._client.insert_many([self._request() for _ in range(BATCH)])
            except AwaError:
                self.refused += 1
                time.sleep(PAUSE_S)
            else:
                self._pen.put(jobs)
        self._client.close()

    def stop(self) -> None:
        """Put nothing more in."""
        self._over.set()
        self.join()

    def _request(self) -> InsertRequest:
        self._number += 1
        kind = self._rng.choices(list(KINDS), list(KINDS.values()))[0]
        args = (
            app.Nap(self._number, self._rng.uniform(0.01, 0.4)) if kind == "nap" else app.Step(self._number)
        )
        return InsertRequest(args=args, kind=kind)
