"""The one gate for everything that enters the queue: bounds, and JSON that comes out exactly as it went in."""

from __future__ import annotations

from typing import Any

from .errors import ValidationError

NAME_CHARS = 200
MAX_TAGS = 20
PRIORITIES = (1, 4)
ATTEMPTS = (1, 1000)


def checked_name(value: Any, path: str) -> str:
    """Return a kind, queue, tag or key: text of 1 to 200 characters without NUL; ValidationError otherwise."""
    if type(value) is not str:
        raise ValidationError(f"expected text, got {type(value).__name__}", path=path)
    if not 0 < len(value) <= NAME_CHARS:
        raise ValidationError(f"expected 1 to {NAME_CHARS} characters, got {len(value)}", path=path)
    if not value.isascii() or "\0" in value:
        check_text(value, path)
    return value


def check_text(value: str, path: str) -> None:
    """Refuse text that PostgreSQL cannot hold: NUL characters and lone surrogates."""
    if "\0" in value:
        raise ValidationError("a NUL character cannot be stored", path=path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError("a lone surrogate cannot be stored", path=path) from None


def checked_kind(value: Any) -> str:
    """Return a valid kind."""
    return checked_name(value, "kind")


def checked_queue(value: Any) -> str:
    """Return a valid queue name."""
    return checked_name(value, "queue")


def checked_int(value: Any, bounds: tuple[int, int], path: str) -> int:
    """Return an integer within bounds, ends included."""
    if type(value) is not int:
        raise ValidationError(f"expected an integer, got {type(value).__name__}", path=path)
    if not bounds[0] <= value <= bounds[1]:
        raise ValidationError(f"expected {bounds[0]} to {bounds[1]}, got {value}", path=path)
    return value


def checked_priority(value: Any) -> int:
    """Return a valid priority, 1 (most urgent) to 4."""
    return checked_int(value, PRIORITIES, "priority")


def checked_max_attempts(value: Any) -> int:
    """Return a valid number of attempts, 1 to 1000."""
    return checked_int(value, ATTEMPTS, "max_attempts")
