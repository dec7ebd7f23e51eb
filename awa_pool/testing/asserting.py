"""Assertions on what lies in the queue; a failure shows what is there instead."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload

import orjson

from awa_pool import validation as gate
from awa_pool.client import AsyncClient, Client
from awa_pool.follow_ups import PARENT
from awa_pool.job import JobRow
from awa_pool.states import State
from awa_pool.store import inspecting

from . import attempts
from .steps import Steps, drive

WAITING = ("available", "scheduled", "retryable", "running")
"""States of a job that is still to be done."""
_PAGE = 1000
_SHOWN = 20
_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a job must be like; None means that anything will do."""

    kind: str
    states: tuple[str, ...]
    exact_args: dict[str, Any] | None
    args: dict[str, Any] | None
    fields: dict[str, Any]
    tags: Sequence[str] | None
    metadata: dict[str, Any] | None

    def misfit(self, row: JobRow) -> str | None:
        """Say what keeps a job of this kind from being the one; None when it is."""
        if self.exact_args is not None and row.args != self.exact_args:
            return f"args are not {_json(self.exact_args)}"
        if self.args is not None and (missing := _missing(self.args, row.args)):
            return missing
        for name, value in self.fields.items():
            if getattr(row, name) != value:
                return f"{name} is not {value!r}"
        if self.tags is not None and not set(self.tags) <= set(row.tags):
            return f"tags lack {sorted(set(self.tags) - set(row.tags))}"
        if self.metadata is not None and (missing := _missing(self.metadata, row.metadata)):
            return f"metadata: {missing}"
        if row.state not in self.states:
            return f"it is {row.state}"
        return None

    def __str__(self) -> str:
        told = [f"kind {self.kind!r}"]
        if self.exact_args is not None:
            told.append(f"args {_json(self.exact_args)}")
        if self.args is not None:
            told.append(f"args with {_json(self.args)}")
        told += [f"{name} {value!r}" for name, value in self.fields.items()]
        if self.tags is not None:
            told.append(f"tags {list(self.tags)}")
        if self.metadata is not None:
            told.append(f"metadata with {_json(self.metadata)}")
        return f"{', '.join(told)} ({' or '.join(self.states)})"


def _missing(wanted: dict[str, Any], found: Any) -> str | None:
    for name, value in wanted.items():
        if not isinstance(found, dict) or name not in found:
            return f"{name} is missing"
        if found[name] != value:
            return f"{name} is not {_json(value)}"
    return None


class Which(TypedDict, total=False):
    """What a job must be like, besides its kind."""

    kind: str | None
    args: dict[str, Any] | None
    queue: str | None
    priority: int | None
    max_attempts: int | None
    ordering_key: str | None
    tags: Sequence[str] | None
    metadata: dict[str, Any] | None
    parent: int | None
    state: str | Sequence[str] | None


_FIELDS = ("queue", "priority", "max_attempts", "ordering_key")


def _wanted(client: Client | AsyncClient, what: Any, which: Which) -> _Wanted:
    unknown = which.keys() - Which.__annotations__.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is nothing to look for: {', '.join(Which.__annotations__)}")
    state = which.get("state")
    states = WAITING if state is None else (state,) if isinstance(state, str) else tuple(state)
    for each in states:
        if each not in set(State):
            raise TypeError(f"state {each!r}: expected one of {', '.join(State)}")
    metadata, args, parent = which.get("metadata"), which.get("args"), which.get("parent")
    if parent is not None:
        metadata = {**(metadata or {}), PARENT: parent}
    return _Wanted(
        kind=attempts.kind_named(client.registry, what, which.get("kind")),
        states=tuple(map(str, states)),
        exact_args=None if isinstance(what, str | type) else orjson.loads(gate.args_json(what)),
        args=None if args is None else orjson.loads(gate.args_json(args)),
        fields={name: which[name] for name in _FIELDS if which.get(name) is not None},  # type: ignore[literal-required]
        tags=which.get("tags"),
        metadata=metadata,
    )


@overload
def assert_enqueued(
    client: Client, what: Any, *, count: int | None = None, **which: Unpack[Which]
) -> list[JobRow]: ...
@overload
def assert_enqueued(
    client: AsyncClient, what: Any, *, count: int | None = None, **which: Unpack[Which]
) -> Coroutine[Any, Any, list[JobRow]]: ...
def assert_enqueued(
    client: Client | AsyncClient, what: Any, *, count: int | None = None, **which: Unpack[Which]
) -> list[JobRow] | Coroutine[Any, Any, list[JobRow]]:
    """Assert that there is such a job, or exactly `count` of them; returns them, oldest first.

    `what`: args, which must be equal; or an args type, or the name of a kind. Further `kind`, `queue`, `priority`,
    `max_attempts`, `ordering_key`; `args`, `metadata` and `tags`, which need not name all there is; `parent`, the id of the
    job that staged it; `state`, one or several, by default those of a job that is still to be done. With an AsyncClient the
    answer is to be awaited.
    Errors: AssertionError that shows the jobs that are there.
    """
    __tracebackhide__ = True
    return drive(client, _assert(_wanted(client, what, which), count))


@overload
def refute_enqueued(client: Client, what: Any, **which: Unpack[Which]) -> None: ...
@overload
def refute_enqueued(client: AsyncClient, what: Any, **which: Unpack[Which]) -> Coroutine[Any, Any, None]: ...
def refute_enqueued(
    client: Client | AsyncClient, what: Any, **which: Unpack[Which]
) -> None | Coroutine[Any, Any, None]:
    """Assert that there is no such job; arguments as of `assert_enqueued`."""
    __tracebackhide__ = True
    return drive(client, _refute(_wanted(client, what, which)))


def _assert(wanted: _Wanted, count: int | None) -> Steps[list[JobRow]]:
    __tracebackhide__ = True
    rows = yield from _rows(wanted.kind)
    found = [row for row in rows if wanted.misfit(row) is None]
    if found and count is None or len(found) == count:
        return found
    number = "a job" if count is None else f"{count} jobs"
    others = yield inspecting.list_jobs(None, None, None, _SHOWN, None)
    raise AssertionError(
        f"expected {number} of {wanted}, found {len(found) or 'none'}\n{_shown(wanted, rows, others)}"
    )


def _refute(wanted: _Wanted) -> Steps[None]:
    __tracebackhide__ = True
    rows = yield from _rows(wanted.kind)
    found = [row for row in rows if wanted.misfit(row) is None]
    if found:
        lines = "\n".join(_line(row) for row in found[:_SHOWN])
        raise AssertionError(f"expected no job of {wanted}, found {len(found)}:\n{lines}")


def _rows(kind: str) -> Steps[list[JobRow]]:
    """Every job of a kind, oldest first."""
    rows: list[JobRow] = []
    before: int | None = None
    while True:
        page = yield inspecting.list_jobs(None, None, kind, _PAGE, before)
        rows += page
        if len(page) < _PAGE:
            return rows[::-1]
        before = page[-1].id


def _shown(wanted: _Wanted, rows: list[JobRow], others: list[JobRow]) -> str:
    if not others:
        return "there is no job at all"
    lines = [f"{_line(row)}  <- {wanted.misfit(row) or 'this one fits'}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"… and {len(rows) - _SHOWN} more of this kind")
    rest = [_line(row) for row in reversed(others) if row.kind != wanted.kind]
    if not rows:
        lines.append("none is of this kind; the newest jobs are:")
        lines += rest
    elif rest:
        lines += ["of other kinds, the newest:", *rest]
    return "\n".join(lines)


def _line(row: JobRow) -> str:
    parts = [f"  #{row.id} {row.kind}", row.state, f"queue {row.queue}", f"args {_json(row.args)}"]
    if row.tags:
        parts.append(f"tags {row.tags}")
    if row.metadata:
        parts.append(f"metadata {_json(row.metadata)}")
    return "  ".join(parts)


def _json(value: Any) -> str:
    text = orjson.dumps(value, default=repr).decode()
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
