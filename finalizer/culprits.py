"""Results that the database refuses: their attempts are failed with the error, and what cannot even be failed is let go."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from . import notes
from .desk import Desk, not_so
from .events import LookUp
from .roads import Roads


class Culprits:
    """Puts an end that can be stored in the place of one that cannot."""

    def __init__(self, desk: Desk, roads: Roads) -> None:
        self._desk = desk
        self._roads = roads

    def look_after(self) -> None:
        """Fail what the database refused; what it refuses even so is left to the dispatcher's audit."""
        for item, error in self._roads.refused_items():
            given_up = item.replaced
            self._desk.note(
                logging.ERROR if given_up else logging.WARNING,
                notes.RESULT_DROPPED if given_up else notes.RESULT_REFUSED,
                job_id=item.values["job_id"],
                kind=item.kind,
                error=error,
            )
            not_so(item.result, item.values["index"])
            if given_up:
                self._desk.dropped += 1
                self._desk.unit_left(item.result)
            else:
                self._roads.replace(item, error)
        if self._roads.wants_look_up():
            self._desk.out.append(LookUp())

    def looked_up(self, rows: Sequence[Any] | None) -> None:
        """The ids of refused completions: each attempt is failed with the error, or given up if it is not open."""
        for part, items, error in self._roads.looked_up(rows):
            self._desk.note(
                logging.WARNING,
                notes.RESULT_REFUSED,
                receipt_id=part.receipt_id,
                error=error,
                jobs=len(items),
            )
            if part.result is not None:
                part.result.left += len(items)
                part.result.stale |= part.mask
            for item in items:
                not_so(part.result, item.values["index"])
                item.result = part.result
            if (
                rows is not None and part.mask
            ):  # not open any more: an earlier try had committed, or it is stale
                self._desk.close(part.receipt_id, part.mask)
            self._desk.unit_left(part.result)
            self._roads.put([], items)
        if rows is None:
            self.look_after()
