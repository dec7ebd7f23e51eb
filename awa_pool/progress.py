"""What an attempt says of its progress: `{"percent", "message", "metadata"}`, those that are set, checked at the one gate.

Each function returns a new value and leaves the old one as it is: what is on its way to the database does not change.
"""

from __future__ import annotations

import math
from typing import Any

from . import validation as gate
from .errors import ValidationError

MESSAGE_CHARS = 1000
MOST_BYTES = 8 * 1024

Progress = dict[str, Any]


def moved(before: Progress | None, percent: Any, message: Any) -> Progress:
    """Return progress with this percentage and message (None: none). Errors: ValidationError, PayloadTooLarge."""
    if type(percent) not in (int, float) or not math.isfinite(percent):
        shown = percent if type(percent) is float else type(percent).__name__
        raise ValidationError(f"expected a number from 0 to 100, got {shown}", path="percent")
    if not 0 <= percent <= 100:
        raise ValidationError(f"expected a number from 0 to 100, got {percent}", path="percent")
    after = {**(before or {}), "percent": percent}
    after.pop("message", None)
    if message is not None:
        if type(message) is not str:
            raise ValidationError(f"expected text, got {type(message).__name__}", path="message")
        if len(message) > MESSAGE_CHARS:
            raise ValidationError(
                f"expected at most {MESSAGE_CHARS} characters, got {len(message)}", path="message"
            )
        gate.check_text(message, "message")
        after["message"] = message
    return _checked(after, "message")


def annotated(before: Progress | None, metadata: Any) -> Progress:
    """Return progress with these keys merged into its metadata. Errors: ValidationError, PayloadTooLarge."""
    gate.metadata_json(metadata)
    if metadata is None:
        raise ValidationError("expected a dict, got NoneType", path="metadata")
    old = (before or {}).get("metadata")
    return _checked(
        {**(before or {}), "metadata": {**(old if type(old) is dict else {}), **metadata}}, "metadata"
    )


def _checked(after: Progress, path: str) -> Progress:
    """Return a copy that no later change of what the handler gave can reach."""
    import orjson

    copied: Progress = orjson.loads(gate.exact_json(after, path, MOST_BYTES))
    return copied
