"""JSON as the database keeps it, which may be more than any reader holds."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_LEVELS = 500
_BRACKETS = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)


def stored_json(text: Any) -> Any:
    """Return what a JSON column holds, or its text where no reader could.

    Other software may nest 5,000 levels deep, or write 1e999; integers come exactly, whatever their size.
    """
    if text is None:
        return None
    try:
        return text if _levels(text) > MAX_LEVELS else json.loads(text, parse_float=_finite)
    except (RecursionError, ValueError):
        return text


def _finite(number: str) -> float:
    """Read a number; ValueError for one that no float holds, which would come as infinity."""
    value = float(number)
    if math.isinf(value):
        raise ValueError(number)
    return value


def _levels(text: str) -> int:
    """Return how deep JSON text nests, where that can be more than `MAX_LEVELS`; Python's versions draw their own lines."""
    deepest = level = text.count("[") + text.count("{")
    if level > MAX_LEVELS:
        deepest = level = 0
        for token in _BRACKETS.findall(text):
            level += 1 if token in "[{" else -1 if token in "]}" else 0
            deepest = max(deepest, level)
    return deepest
