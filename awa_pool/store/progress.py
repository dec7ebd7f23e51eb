"""The statement that keeps what running attempts say of their progress; `calls` says what a `Call` is."""

from __future__ import annotations

from typing import Any

import orjson

from .calls import Call, one


def keep_progress(items: list[dict[str, Any]]) -> Call[int]:
    """Keep the progress of attempts that still run, items as of `finish` with `progress` -> how many were written."""
    return Call("keep_progress", {"items": orjson.dumps(items).decode()}, one)
