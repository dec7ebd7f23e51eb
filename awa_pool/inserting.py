"""What both clients do with jobs before they are sent: calls, documents and rows. Loads nothing of the store itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import validation as gate
from .declarations import Declarations
from .errors import ValidationError
from .requests import Chunk, Document, InsertRequest, Rows, chunks_of, documents_of, options_of
from .unique import bucket_of, checked_on_conflict, checked_period, key_of

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .store.calls import Call
    from .store.unique import Put

_log = logging.getLogger("awa_pool.client")


class CopyLoad:
    """Rows for COPY, written while they are sent; collects what cannot go that way and whom to wake."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = chunks
        self._others: list[Chunk] = []
        self.count = 0
        self.queues: set[str] = set()

    def __iter__(self) -> Iterator[Rows]:
        for chunk in self._chunks:
            self.count += len(chunk)
            plain = chunk
            if chunk.has_documents():
                plain, others = chunk.split()
                self._others.append(others)
            self.queues |= plain.queues()
            if len(plain):
                yield plain.copy_rows()

    def documents(self) -> Iterator[Document]:
        """Return the rest, once all rows were taken."""
        return documents_of(self._others)


def held(items: Iterable[Any]) -> Sequence[Any]:
    """Hold the items in memory: a generator of the caller's must not run inside our transaction."""
    if isinstance(items, dict | str | bytes):
        raise ValidationError(f"expected an iterable of jobs, got {type(items).__name__}", path="jobs")
    return items if isinstance(items, list | tuple) else list(items)


def documents(client: Declarations, items: Iterable[Any], *, at_once: bool) -> Iterator[Document]:
    """Return the documents of `insert_many`; `at_once`: all are validated before the first is handed out."""
    made = documents_of(chunks_of(client.registry, held(items)))
    return iter(list(made)) if at_once else made


def put_call(client: Declarations, request: InsertRequest, on_conflict: str) -> Call[Put]:
    """Return the call that puts one job in."""
    from .store import unique as do

    policy = checked_on_conflict(on_conflict)
    options = options_of(client.registry, request)
    args = gate.args_json(request.args)
    unique = options.unique
    return do.put(
        options,
        args.decode(),
        None if unique is None else unique.key(options.kind, options.queue, args),
        policy,
    )


def note_skips(client: Declarations, count: int, holder: int | None = None) -> None:
    """Count and log jobs that were not put in, as others hold their keys."""
    if count:
        client.unique_skips += count
        _log.debug("unique.skipped", extra={"jobs": count, "holder": holder})


def key_to_cancel(kind: str, queue: str | None, args: Any, by_period: Any) -> bytes:
    """Return the unique key made of exactly these parts."""
    period = checked_period(by_period, "by_period")
    return key_of(
        gate.checked_kind(kind),
        None if queue is None else gate.checked_queue(queue),
        None if args is None else gate.args_json(args),
        bucket_of(period, time.time()),
    )
