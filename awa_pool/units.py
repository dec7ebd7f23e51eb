"""Durations and sizes as people write them."""

from __future__ import annotations

import re

from .errors import ConfigError

_SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_BYTES = {
    "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)


def _sum(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    """Add up `number unit` parts; a bare 0 needs no unit."""
    rest = text.strip().lower()
    if rest == "0":
        return 0.0
    total, end = 0.0, 0
    while match := _PART.match(rest, end):
        if match[2] not in units:
            break
        total, end = total + float(match[1]) * units[match[2]], match.end()
    if not rest or end != len(rest):
        raise ConfigError(
            f"{text[:80]!r} is not a {what}; write a number with a unit ({', '.join(units)}): {example}"
        )
    return total


def parse_duration(text: str) -> float:
    """Read `250ms`, `25s`, `1h30m`, `7d`; seconds. Errors: ConfigError saying what to write."""
    return _sum(text, _SECONDS, "duration", "250ms, 25s, 1h30m or 24h")


def parse_size(text: str) -> int:
    """Read `512MiB`, `2GB`, `1.5GiB`; bytes. Errors: ConfigError saying what to write."""
    return int(_sum(text, _BYTES, "size", "64KiB, 512MiB or 2GB"))


def write_duration(seconds: float) -> str:
    """Return a duration so that `parse_duration` reads it back, in the largest unit that needs no fraction."""
    for unit in ("d", "h", "m", "s"):
        if unit == "d" and seconds < 2 * _SECONDS["d"]:
            continue  # a day is known as 24h
        if seconds >= _SECONDS[unit] and not seconds % _SECONDS[unit]:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"
