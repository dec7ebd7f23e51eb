"""A warning for jobs that are put into a queue of which nobody has heard: they would wait there for a pool."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from awa_pool.store.store import Store
from awa_pool.supervisor.queue_names import unknown_queue
from awa_pool.visible import visible

from .admin import pool_state


def warn_of_unknown_queue(store: Store, queue: str, declared: Iterable[str]) -> None:
    """Say on standard error that no living pool serves a queue and nothing knows it; `declared` are those of the app."""
    known = {*declared, *store.known_queues()}
    for pool in store.runtimes():
        names = pool.info.get("queues")
        if pool_state(pool) == "alive" and isinstance(names, list):  # other software may write anything there
            known.update(name for name in names if isinstance(name, str))
    if queue not in known:
        print(f"awa-pool: {visible(unknown_queue(queue, known))}", file=sys.stderr)
