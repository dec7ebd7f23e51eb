"""Queues that a pool was told to serve: said once, and warned of where nothing else knows the name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from .events import AskKnownQueues, Command, Log


def unknown_queue(name: str, known: Iterable[str]) -> str:
    """Say that nothing knows a queue, with the nearest name that something does."""
    return f"no task, job or setting knows the queue {name[:80]!r}: {_hint(name, known)}"


def unheard_queue(name: str, known: Iterable[str]) -> str:
    """Say that the database knows no such queue, with the nearest name that it does."""
    return f"no job, setting or living pool names the queue {name[:80]!r}: {_hint(name, known)}"


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(set(known)), 1)
    return f"did you mean {near[0]!r}?" if near else "is it misspelt?"


class QueueNames:
    """The names that were asked for; without any the pool serves those of the app's tasks, which are right by themselves."""

    def __init__(self, asked: Sequence[str]) -> None:
        self._asked = tuple(asked)
        self._doubtful: list[str] | None = None  # None: what the app declares is not known yet
        self._known: set[str] = set()

    def declared(self, facts: dict[str, Any]) -> list[Command]:
        """Take the facts of the first worker that is ready."""
        if self._doubtful is not None or not self._asked:
            return []
        self._known = {str(name) for name in facts.get("queues") or ()}
        self._doubtful = [name for name in self._asked if name not in self._known]
        said = Log("info", f"serving {', '.join(self._asked)}")
        return [said, AskKnownQueues()] if self._doubtful else [said]

    def known(self, names: Iterable[str]) -> list[Command]:
        """Take the names that the database knows."""
        self._known.update(names)
        return self._warned(name for name in self._doubtful or () if name not in self._known)

    def idle(self, unknown: Iterable[Any]) -> list[Command]:
        """Take the names that a draining dispatcher found nowhere: it may end before the database has answered."""
        names = set(unknown)
        return self._warned(name for name in self._doubtful or () if name in names)

    def _warned(self, unknown: Iterable[str]) -> list[Command]:
        lines: list[Command] = [Log("warning", unknown_queue(name, self._known)) for name in unknown]
        self._doubtful = []  # once
        return lines
