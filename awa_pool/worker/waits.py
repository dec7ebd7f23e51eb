"""Which attempts of a lane wait for callbacks without their slots, and what of that the dispatcher has yet to hear. Pure."""

from __future__ import annotations

from typing import Any

from awa_pool.messages import AttemptsWait

Key = tuple[int, int]
"""(receipt_id, nonce)."""


class Waits:
    """Sets of attempts by receipt. What a lost word said comes with the next `Holding`."""

    def __init__(self) -> None:
        self.now: dict[Key, int] = {}
        self._began: dict[Key, int] = {}
        self._went_on: dict[Key, int] = {}

    @property
    def unsaid(self) -> bool:
        """There is something to tell."""
        return bool(self._began or self._went_on)

    def begin(self, key: Key, mask: int) -> None:
        """An attempt waits and has given its slot away."""
        _add(self.now, key, mask)
        if not _take(self._went_on, key, mask):
            _add(self._began, key, mask)

    def end(self, key: Key, mask: int) -> None:
        """An attempt goes on that has waited."""
        _take(self.now, key, mask)
        if not _take(self._began, key, mask):
            _add(self._went_on, key, mask)

    def forget_what_was_said(self) -> None:
        """The dispatcher is to hear of all of them: it is a new one, or has not said a word."""
        self._began, self._went_on = dict(self.now), {}

    def say(self) -> list[AttemptsWait]:
        """Return what has changed since the last word; one that began and went on meanwhile is not worth one."""
        said = ((self._went_on, False), (self._began, True))
        self._began, self._went_on = {}, {}
        return [AttemptsWait(masks(each), waiting) for each, waiting in said if each]


def masks(attempts: dict[Key, int]) -> list[Any]:
    """Return `[[receipt_id, mask], …]`, as messages have it."""
    return [[receipt_id, mask] for (receipt_id, _), mask in attempts.items()]


def _add(attempts: dict[Key, int], key: Key, mask: int) -> None:
    attempts[key] = attempts.get(key, 0) | mask


def _take(attempts: dict[Key, int], key: Key, mask: int) -> bool:
    """Take attempts off; False if they were not there."""
    there = attempts.pop(key, 0)
    if left := there & ~mask:
        attempts[key] = left
    return bool(there & mask)
