"""What the database has answered: counted, off the dispatcher's books, and nothing that its sender has to keep."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from awa_pool.outcomes import DEADLINE_EXCEEDED
from awa_pool.states import Outcome

from . import notes
from .desk import Desk, not_so
from .events import StagedNo, StagedRow
from .failing import Failing
from .flush import ERROR_CHARS, Item, Part
from .roads import Roads
from .staged import StagedEnd, not_parked, without_follow_ups


class Written:
    """Takes units to their end."""

    def __init__(self, desk: Desk, roads: Roads, failing: Failing) -> None:
        self._desk = desk
        self._failing = failing
        self._roads = roads
        self._ended: Counter[tuple[str, str]] = Counter()
        self._stale = 0
        self._follow_ups = self._follow_ups_skipped = self._refused = 0

    def figures(self) -> dict[str, Any]:
        """Cumulative figures; `ended` by kind and outcome."""
        ended: dict[str, dict[str, int]] = {}
        for (kind, outcome), jobs in self._ended.items():
            ended.setdefault(kind, {})[outcome] = jobs
        return {
            "ended": ended,
            "stale": self._stale,
            "follow_ups": self._follow_ups,
            "follow_ups_skipped": self._follow_ups_skipped,
            "staged_refused": self._refused,
        }

    def part(self, part: Part, done: int, stale: int) -> None:
        """Attempts of a receipt were completed; `stale` ones had ended before."""
        for kind, mask in part.kinds:
            if mask & done:
                self._ended[kind, "completed"] += (mask & done).bit_count()
        self._stale += stale.bit_count()
        if part.result is not None:
            part.result.stale |= stale
        self._desk.close(part.receipt_id, done | stale)
        part.mask &= ~(done | stale)
        if not part.mask:
            self._desk.unit_left(part.result)

    def item(self, item: Item, status: str, state: str | None) -> None:
        """One attempt has ended with any outcome; `state` is what its job is now.

        Of a stale one it is known only where its handler has completed it in a transaction of its own.
        """
        outcome = item.values["outcome"]
        if status == "done":
            label = outcome
            if item.overran:
                label = DEADLINE_EXCEEDED  # on the last attempt too: a time-out is counted as nothing else
            elif state == "failed":
                label = "fail"
            elif item.owned and outcome == Outcome.LOST:
                label = "retry"  # its process is well: what is lost is its transaction
            self._ended[item.kind, label] += 1
            if item.to_be_told:
                self._failing.say(item, state)
        elif item.completed_itself(state):
            self._ended[item.kind, "completed"] += 1
        else:
            self._stale += 1
        if not item.is_so(status, state):
            not_so(item.result, item.values["index"])
        self._desk.close(item.values["receipt_id"], 1 << item.values["index"])
        self._desk.unit_left(item.result)

    def staged(self, end: StagedEnd, row: StagedRow) -> None:
        """One attempt has ended together with its follow-ups."""
        if row.status == "refused":
            not_so(end.result, end.values["index"])
            self._roads.put([], [Item(not_parked(end), end.kind, end.result, urgent=True, untold=True)])
            return
        self.item(Item(end.values, end.kind, end.result), row.status, row.state)
        if row.status != "done":  # one said again meets the keys of what it brought in the first time
            return
        self._follow_ups += row.inserted
        self._follow_ups_skipped += len(row.skipped)
        for kind, holder in row.skipped:
            self._desk.note(
                logging.DEBUG,
                notes.FOLLOW_UP_SKIPPED,
                job_id=end.values["job_id"],
                kind=kind,
                holder=holder,
            )

    def refused(self, end: StagedEnd, no: StagedNo) -> None:
        """Write the attempt's end without the follow-ups that the database does not take."""
        self._refused += 1
        self._desk.note(
            logging.WARNING,
            notes.FOLLOW_UPS_REFUSED,
            job_id=end.values["job_id"],
            kind=end.kind,
            error=no.error,
            sqlstate=no.sqlstate,
        )
        values = without_follow_ups(end, no.error.replace("\0", "")[:ERROR_CHARS])
        another = values["outcome"] != end.values["outcome"]
        if another:
            not_so(end.result, values["index"])
        self._roads.put([], [Item(values, end.kind, end.result, urgent=True, untold=another)])
