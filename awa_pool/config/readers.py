"""Readers of single values: a text or a typed value in, the value out, or one line that says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from awa_pool.errors import ConfigError
from awa_pool.units import parse_duration, parse_size

T = TypeVar("T")
R = TypeVar("R")
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


class QueueSpec(NamedTuple):
    """One queue to serve; `max` bounds its jobs in flight on this host, None leaves it free."""

    name: str
    max: int | None = None


def parse_queue(text: str) -> QueueSpec:
    """Read `name` or `name:max`; in a name with a colon the last one parts them. Errors: ConfigError saying what to write."""
    name, colon, limit = text.rpartition(":")
    if not colon:
        name, limit = text, ""
    if not name or name != name.strip() or len(name) > 200 or "\x00" in name:
        raise ConfigError(f"{text[:80]!r} is not a queue; write NAME or NAME:MAX, such as mail or mail:4")
    if not colon:
        return QueueSpec(name)
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:20]) <= 1_000_000):
        own = "" if limit.isdigit() else f"; where it belongs to the name, give the limit too: {text[:80]}:8"
        raise ConfigError(
            f"{text[:80]!r}: the part after the last ':' is the most jobs in flight; write a number from 1{own}"
        )
    return QueueSpec(name, int(limit))


def read_at(place: str, read: Callable[[T], R], value: T) -> R:
    """Read a value; a refusal begins with the place where it was written. Errors: ConfigError."""
    try:
        return read(value)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def read_text(value: object) -> str:
    """Read a text that says something."""
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ConfigError("write a text that is not empty")
    return value


def read_flag(value: object) -> bool:
    """Read yes or no."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _YES or word in _NO:
        return word in _YES
    raise ConfigError(f"{value!r} is neither yes nor no; write true or false")


def whole(low: int, high: int) -> Callable[[object], int]:
    """Make a reader of whole numbers between these two, which count."""

    def read(value: object) -> int:
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(f"{value!r} is not possible; write a whole number from {low} to {high}")
        return value

    return read


def duration(low_s: float, high_s: float, example: str) -> Callable[[object], float]:
    """Make a reader of durations, in seconds or as a text with a unit."""

    def read(value: object) -> float:
        seconds = parse_duration(value) if isinstance(value, str) else value
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not low_s <= seconds <= high_s
        ):
            bounds = f"{low_s:g}s to {high_s:g}s"
            raise ConfigError(f"{value!r} is not possible; write a duration of {bounds}, such as {example}")
        return float(seconds)

    return read


def size(low: int, example: str) -> Callable[[object], int]:
    """Make a reader of sizes, in bytes or as a text with a unit."""

    def read(value: object) -> int:
        size = parse_size(value) if isinstance(value, str) else value
        if not isinstance(size, int) or isinstance(size, bool) or not low <= size < 2**62:
            raise ConfigError(
                f"{value!r} is not possible; write a size of at least {low} bytes, such as {example}"
            )
        return size

    return read


def one_of(*words: str) -> Callable[[object], str]:
    """Make a reader of one of these words, in small letters."""

    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            raise ConfigError(f"{value!r} is unknown; write one of {', '.join(words)}")
        return str(word)

    return read


def read_queues(value: object) -> tuple[QueueSpec, ...]:
    """Read a comma-separated text, or a list of texts and specs; a queue named twice is refused."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ConfigError('write a list of queues, such as ["mail", "reports:2"]')
    specs: list[QueueSpec] = []
    for part in parts:
        if isinstance(part, QueueSpec):
            parse_queue(f"{part.name}:{1 if part.max is None else part.max}")  # its name may have a colon
            specs.append(part)
        elif isinstance(part, str):
            specs.append(parse_queue(part))
        else:
            raise ConfigError(f"{part!r} is not a queue; write NAME or NAME:MAX")
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"queue {name!r} is named twice; name each queue once")
    return tuple(specs)


def read_schema(value: object) -> str:
    """Read the name of a schema."""
    name = read_text(value)
    if len(name.encode()) > 50 or name.startswith("pg_"):
        raise ConfigError(f"{name[:80]!r} cannot be a schema; write up to 50 bytes not starting with pg_")
    return name
