"""The two roads into the database and the bookkeeping of their calls."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from awa_pool.events import StoreSaysNo
from awa_pool.states import Outcome

from . import notes
from .events import ClosedRow, Command, FinishedRow, OpenRow
from .flush import ERROR_CHARS, Batch, Item, Part, Stream, complete_call, finish_call
from .retry import REQUEUE_MAX_S, REQUEUE_S, Again, Requeue, finalize_with_retry

COMPLETE_JOBS = 4096
FINISH_JOBS = 500
LOOK_UPS = 5
"""How often to ask for the ids of refused completions before they are left to the dispatcher's audit."""


class Roads:
    """Completions by receipt, all else by attempt; one call of each under way at most."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.now_s = 0.0
        self._parts: Stream[Part] = Stream(COMPLETE_JOBS)
        self._items: Stream[Item] = Stream(FINISH_JOBS)
        self._asked_for: set[tuple[int, int, int]] = (
            set()
        )  # what the dispatcher wants ended, so as to take it once
        self._refused_parts: list[tuple[Part, str]] = []
        self._refused_items: list[tuple[Item, str]] = []
        self._looking = False
        self._looked = 0
        self.flushes = self.jobs = self.busy = self.retried = 0
        self.seconds = 0.0

    @property
    def idle(self) -> bool:
        """Nothing waits for the next call."""
        return not (self._parts.waiting or self._items.waiting)

    @property
    def lingering(self) -> bool:
        """Something waits, nothing that waits is urgent."""
        return not self.idle and not (self._parts.urgent or self._items.urgent)

    @property
    def empty(self) -> bool:
        """Nothing is left to write."""
        return self._parts.empty and self._items.empty and not (self._refused_parts or self._refused_items)

    def figures(self) -> dict[str, Any]:
        return {
            "flushes": self.flushes,
            "flushed_jobs": self.jobs,
            "flush_seconds": self.seconds,
            "busy": self.busy,
            "retries": self.retried,
        }

    def put(self, parts: list[Part], items: list[Item]) -> None:
        """Take units; an ending that the dispatcher asks for again while it waits here is left out."""
        for part in parts:
            self._parts.put(part, self.now_s)
        for item in items:
            if item.result is None:
                if item.key in self._asked_for:
                    continue
                self._asked_for.add(item.key)
            self._items.put(item, self.now_s)

    def due_s(self, linger_s: float, full_jobs: int) -> float | None:
        due = (self._parts.due_s(linger_s, full_jobs), self._items.due_s(linger_s, full_jobs))
        return min((at_s for at_s in due if at_s is not None), default=None)

    def flush(self, linger_s: float, full_jobs: int) -> list[Command]:
        """Start the calls that are due."""
        commands: list[Command] = []
        parts = self._parts.next_batch(self.now_s, linger_s, full_jobs)
        if parts is not None:
            commands.append(complete_call(parts.units))
        items = self._items.next_batch(self.now_s, linger_s, full_jobs)
        if items is not None:
            commands.append(finish_call(items.units))
        return commands

    # --- answers -------------------------------------------------------------------------------------------

    def completed(self, rows: Sequence[ClosedRow], took_s: float) -> Iterator[tuple[Part, int, int]]:
        """Yield (part, done, stale) masks; busy receipts come again soon, unknown ones count as stale.

        A bit that two messages spoke of is done in the first and stale in the second.
        """
        answers: dict[int, list[int]] = {}
        for row in rows:
            known = answers.setdefault(row.receipt_id, [0, 0])
            known[0], known[1] = known[0] | row.done, known[1] | row.busy
        for part in self._count(self._parts.landed(), took_s):
            answer = answers.setdefault(part.receipt_id, [0, 0])
            done = part.mask & answer[0]
            busy = part.mask & answer[1] & ~done
            stale = part.mask & ~(done | busy)
            answer[0] &= ~done
            if busy:
                self._put_off(self._parts, part)
            yield part, done, stale

    def finished(self, rows: Sequence[FinishedRow], took_s: float) -> Iterator[tuple[Item, str, str | None]]:
        """Yield (item, 'done' | 'stale', state); busy ones come again soon, invalid ones are refused."""
        answers = {row.item: row for row in rows}
        for number, item in enumerate(self._count(self._items.landed(), took_s)):
            row = answers.get(number)
            if row is None or row.status == "busy":
                self._put_off(self._items, item)
            elif row.status == "invalid":
                self._refuse(item, "the database cannot read this outcome")
            else:
                self._asked_for.discard(item.key)
                yield item, row.status, row.state

    def _count(self, units: list[Any], took_s: float) -> list[Any]:
        self.flushes += 1
        self.seconds += took_s
        self.jobs += sum(unit.jobs for unit in units)
        return units

    def _put_off(self, stream: Stream[Any], unit: Part | Item) -> None:
        self.busy += 1
        unit.tries += 1
        pause_s = min(REQUEUE_S / 4 * 2 ** min(unit.tries, 10), REQUEUE_MAX_S)
        stream.put_off(unit, self.now_s + pause_s * (0.75 + self._rng.random() / 2))

    # --- failures ------------------------------------------------------------------------------------------

    def failed(self, event: StoreSaysNo) -> str:
        """Do with a failed call what `finalize_with_retry` says; returns the name of what was done."""
        if event.what == "complete":
            return self._failed(self._parts, event)
        return self._failed(self._items, event)

    def _failed(self, stream: Stream[Any], event: StoreSaysNo) -> str:
        batch: Batch[Any] = stream.failed()
        if not batch.units:
            return notes.FLUSH_RETRIED
        self.retried += 1
        match finalize_with_retry(event.trouble, batch.tries, self._rng.random()):
            case Again(after_s):
                stream.send_again(batch, self.now_s + after_s)
            case Requeue():
                for unit in batch.units:
                    self._put_off(stream, unit)
            case _ if len(batch.units) > 1:
                stream.split(batch)
                return notes.FLUSH_SPLIT
            case _:
                self._refuse(batch.units[0], event.error)
        return notes.FLUSH_RETRIED

    def _refuse(self, unit: Part | Item, error: str) -> None:
        error = error.replace("\0", "")[:ERROR_CHARS]
        if isinstance(unit, Part):
            self._refused_parts.append((unit, error))
        else:
            self._asked_for.discard(unit.key)
            self._refused_items.append((unit, error))

    def refused_items(self) -> list[tuple[Item, str]]:
        """Items that the database does not take, each once."""
        refused, self._refused_items = self._refused_items, []
        return refused

    def replace(self, item: Item, error: str) -> None:
        """Instead of that outcome: a guarded, retryable failure of the attempt with the error."""
        item.values = {
            **{
                name: item.values[name]
                for name in ("slot", "receipt_id", "nonce", "index", "job_id", "run_lease", "owned")
                if name in item.values
            },
            **_failure(error),
        }
        item.replaced, item.urgent = True, True
        self._items.put(item, self.now_s)

    def wants_look_up(self) -> bool:
        """Completions were refused whose jobs' ids have to be asked for; true once per answer."""
        if self._looking or not self._refused_parts:
            return False
        self._looking = True
        return True

    def looked_up(self, rows: Sequence[OpenRow] | None) -> list[tuple[Part, list[Item], str]]:
        """Refused completions, each with the failures that take their place (none for what is not open)."""
        self._looking = False
        self._looked = 0 if rows is not None else self._looked + 1
        if rows is None and self._looked < LOOK_UPS:
            return []
        found: list[tuple[Part, list[Item], str]] = []
        refused, self._refused_parts = self._refused_parts, []
        for part, error in refused:
            items = []
            for row in rows or ():
                if row.receipt_id == part.receipt_id:
                    mask = part.mask & row.open_mask
                    part.mask &= ~mask
                    for index in (index for index in range(63) if mask >> index & 1):
                        lease = row.leases[index] if row.leases else 1
                        items.append(_failed_item(part, index, row.job_ids[index], lease, error))
            found.append((part, items, error))
        return found


def _failure(error: str) -> dict[str, Any]:
    text = f"the outcome could not be stored: {error}"
    return {"outcome": Outcome.RETRY.value, "error": {"error": text, "type": "FinishRefused"}}


def _failed_item(part: Part, index: int, job_id: int, run_lease: int, error: str) -> Item:
    values = {
        "slot": part.slot,
        "receipt_id": part.receipt_id,
        "nonce": part.nonce,
        "index": index,
        "job_id": job_id,
        "run_lease": run_lease,
        **_failure(error),
    }
    kind = next((kind for kind, mask in part.kinds if mask >> index & 1), "")
    return Item(values, kind, None, urgent=True, replaced=True)
