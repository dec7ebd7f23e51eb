"""A small explicit-state checker: every state that can be reached, breadth first, so that a counterexample is shortest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
Actions = Callable[[S], Iterable[tuple[str, S]]]
"""What may happen in a state: named steps and the states that they lead to."""
Law = Callable[[S], bool]


class TooManyStates(Exception):
    """The model is larger than it was meant to be."""


@dataclass(frozen=True)
class Violation(Generic[S]):
    """A law that a reachable state breaks, and the shortest way there."""

    law: str
    steps: tuple[str, ...]
    state: S

    def __str__(self) -> str:
        return f"{self.law}: " + " → ".join(self.steps) + f"\n{self.state}"


@dataclass(frozen=True)
class Verdict(Generic[S]):
    """What a check found: the number of states, and the first violation, if any."""

    states: int
    violation: Violation[S] | None


def check(
    first: S,
    actions: Actions[S],
    laws: Mapping[str, Law[S]],
    *,
    may_end: Law[S] = lambda _: True,
    goal: Law[S] | None = None,
    is_fault: Callable[[str], bool] = lambda _: False,
    most_states: int = 2_000_000,
) -> Verdict[S]:
    """Visit every reachable state; stop at the first that breaks a law, or has no next step and must not end.

    With a `goal`: it has to be within reach of every state, by steps that are no faults.
    """
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    before: dict[S, list[S]] = {}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for law, holds in laws.items():
            if not holds(state):
                return Verdict(len(came_from), Violation(law, _way(came_from, state), state))
        stuck = True
        for name, following in actions(state):
            stuck = False
            if goal is not None and not is_fault(name):
                before.setdefault(following, []).append(state)
            if following not in came_from:
                came_from[following] = (state, name)
                waiting.append(following)
        if stuck and not may_end(state):
            return Verdict(len(came_from), Violation("nothing can go on", _way(came_from, state), state))
        if len(came_from) > most_states:
            raise TooManyStates(f"more than {most_states} states")
    if goal is not None:
        reaching = _reaching(goal, came_from, before)
        for state in came_from:
            if state not in reaching:
                return Verdict(
                    len(came_from), Violation("the goal is out of reach", _way(came_from, state), state)
                )
    return Verdict(len(came_from), None)


def _reaching(goal: Law[S], states: Iterable[S], before: Mapping[S, list[S]]) -> set[S]:
    """Return the states from which steps lead to the goal."""
    found = {state for state in states if goal(state)}
    waiting = deque(found)
    while waiting:
        for state in before.get(waiting.popleft(), ()):
            if state not in found:
                found.add(state)
                waiting.append(state)
    return found


def _way(came_from: Mapping[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    steps: list[str] = []
    at = came_from[state]
    while at is not None:
        steps.append(at[1])
        at = came_from[at[0]]
    return tuple(reversed(steps))
