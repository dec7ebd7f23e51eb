"""Warnings of a queue of which nobody has heard: jobs put there would wait for a pool, and none are found there."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from awa_pool.store.store import Store
from awa_pool.supervisor.queue_names import unheard_queue, unknown_queue
from awa_pool.visible import visible

from .status import pool_state


def warn_of_unknown_queue(store: Store, queue: str, declared: Iterable[str]) -> None:
    """Say on standard error that no living pool serves a queue and nothing knows it; `declared` are those of the app."""
    known = {*declared, *_heard_of(store)}
    if queue not in known:
        print(f"awa-pool: {visible(unknown_queue(queue, known))}", file=sys.stderr)


def warn_of_unheard_queue(store: Store, queue: str) -> None:
    """Say on standard error that the database has never heard of a queue in which jobs were looked for."""
    known = _heard_of(store)
    if queue not in known:
        print(f"awa-pool: {visible(unheard_queue(queue, known))}", file=sys.stderr)


def _heard_of(store: Store) -> set[str]:
    """Return the queues that jobs, settings or living pools name."""
    known = set(store.known_queues())
    for pool in store.runtimes():
        names = pool.info.get("queues")
        if pool_state(pool) == "alive" and isinstance(names, list):  # other software may write anything there
            known.update(name for name in names if isinstance(name, str))
    return known
