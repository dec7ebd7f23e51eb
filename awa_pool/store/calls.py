"""What a statement is, with its parameters and the way its rows are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

R = TypeVar("R")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """One statement with its parameters; `read` makes the typed answer from the rows.

    Rows come in PostgreSQL's binary form, which no setting of a session changes (DateStyle, bytea_output, extra_float_digits), and
    which is cheaper for long arrays.
    """

    query: str
    params: dict[str, Any]
    read: Callable[[Rows], R]
    prepared: bool = False  # parsed and planned once a session of ours; only where the columns never change


def one(rows: Rows) -> Any:
    """Read the one value of the one row."""
    return rows[0][0]


def nothing(rows: Rows) -> None:
    """Read nothing."""
    return


def text(rows: Rows) -> str:
    """Read the one value as text."""
    return str(rows[0][0])


def each(make: Callable[..., R]) -> Callable[[Rows], list[R]]:
    """Make one thing of each row's columns."""
    return lambda rows: [make(*row) for row in rows]


def first(make: Callable[..., R]) -> Callable[[Rows], R]:
    """Make one thing of the first row's columns."""
    return lambda rows: make(*rows[0])
