"""The statement that moves running attempts to leases; `calls` says what a `Call` is."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from .calls import Call, each


class Leased(NamedTuple):
    """What became of one attempt: status done, stale, busy or invalid."""

    item: int
    status: str


def lease_attempts(items: list[dict[str, Any]]) -> Call[list[Leased]]:
    """Move running attempts to leases."""
    text = orjson.dumps(items).decode()
    return Call("lease_attempts", {"items": text}, each(Leased))
