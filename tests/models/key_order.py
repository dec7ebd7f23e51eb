"""The order in which transactions take their locks, as a model: unique keys in one sorted pass, then the receipt.

Two transactions want the same two keys, in the order their handlers staged them, and one receipt that they share; they
take a lock at a time and keep all until they commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

STAGED = (("k1", "k2"), ("k2", "k1"))
RECEIPT = "receipt"


@dataclass(frozen=True)
class State:
    """How many locks of its list each transaction has; None: committed."""

    has: tuple[int | None, int | None] = (0, 0)


@dataclass(frozen=True)
class Locks:
    """The lists of locks; `sorted_keys` and `keys_first` are what the protocol rules."""

    sorted_keys: bool = True
    keys_first: bool = True

    def wanted(self, who: int) -> tuple[str, ...]:
        """Return the locks of a transaction in the order it takes them."""
        keys = tuple(sorted(STAGED[who])) if self.sorted_keys else STAGED[who]
        # the other order, in one of the two: as a release after the receipt and a take before it would be
        return (RECEIPT, *keys) if not self.keys_first and who == 1 else (*keys, RECEIPT)

    def actions(self, state: State) -> Iterator[tuple[str, State]]:
        """Take the next lock that nobody holds, or commit."""
        for who in (0, 1):
            has = state.has[who]
            if has is None:
                continue
            wanted = self.wanted(who)
            if has == len(wanted):
                yield f"{who} commits", _set(state, who, None)
            elif wanted[has] not in self._held(state, 1 - who):
                yield f"{who} takes {wanted[has]}", _set(state, who, has + 1)

    def _held(self, state: State, who: int) -> tuple[str, ...]:
        has = state.has[who]
        return () if has is None else self.wanted(who)[:has]


def all_committed(state: State) -> bool:
    """Say whether both transactions are through."""
    return state.has == (None, None)


def _set(state: State, who: int, has: int | None) -> State:
    return replace(state, has=(has, state.has[1]) if who == 0 else (state.has[0], has))
