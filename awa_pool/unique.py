"""Unique jobs: what makes two jobs the same, and the key that stands for it.

A key is computed here and stored as it is; the database compares keys and knows no rule. `docs/unique-jobs.md` says how
other languages compute the same one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from . import validation as gate
from .body import INT64
from .errors import ValidationError
from .states import State

KEY_BYTES = 16
DEFAULT_STATES = 0b0001_1111  # scheduled, available, running, completed, retryable
AVAILABLE, RUNNING = 1 << 1, 1 << 2
ON_CONFLICT = ("raise", "skip")
PATH = "unique_opts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """Which parts of a job make its key, and in which states (a bitmask) the job holds it."""

    by_queue: bool = False
    by_args: bool = True
    by_period: int | timedelta | None = None
    states: int = DEFAULT_STATES

    def key(self, kind: str, queue: str, args: bytes, now_s: float | None = None) -> bytes:
        """Return the key of a job whose args are this JSON text."""
        return key_of(
            kind,
            queue if self.by_queue else None,
            args if self.by_args else None,
            bucket_of(self.by_period, time.time() if now_s is None else now_s),
        )


_NAMES = ("by_queue", "by_args", "by_period", "states")


def checked_unique(options: Any) -> Uniqueness | None:
    """Return what `unique_opts` say; None and False say: not unique. Missing ones have their defaults.

    Errors: ValidationError whose path is `unique_opts` or one below, as `unique_opts.states`.
    """
    if options is None or options is False:
        return None
    if type(options) is not dict:
        raise ValidationError(f"expected a dict, got {type(options).__name__}", path=PATH)
    unknown = options.keys() - set(_NAMES)
    if unknown:
        raise ValidationError(
            f"no such option; there are {', '.join(_NAMES)}", path=f"{PATH}.{min(map(str, unknown))}"
        )
    return Uniqueness(
        by_queue=_flag(options, "by_queue", default=False),
        by_args=_flag(options, "by_args", default=True),
        by_period=checked_period(options.get("by_period"), f"{PATH}.by_period"),
        states=_states(options.get("states", DEFAULT_STATES)),
    )


def checked_period(value: Any, path: str) -> int | timedelta | None:
    """Return a valid period: the number of a bucket, or a length of at least a second."""
    if value is None:
        return None
    if type(value) is timedelta:
        if value < timedelta(seconds=1):
            raise ValidationError("a period takes at least one second", path=path)
        return value
    if type(value) is not int:
        raise ValidationError(
            f"expected the number of a period or a timedelta, got {type(value).__name__}", path=path
        )
    return gate.checked_int(value, INT64, path)


def bucket_of(period: int | timedelta | None, now_s: float) -> int | None:
    """Return the number of a period: as given, or the one of that length in which `now_s` (Unix time) lies."""
    return int(now_s // period.total_seconds()) if isinstance(period, timedelta) else period


def checked_on_conflict(value: Any) -> str:
    """Return 'raise' or 'skip'."""
    if value not in ON_CONFLICT:
        raise ValidationError(f"expected one of {', '.join(ON_CONFLICT)}", path="on_conflict")
    text: str = value
    return text


def _flag(options: dict[str, Any], name: str, *, default: bool) -> bool:
    value = options.get(name, default)
    if type(value) is not bool:
        raise ValidationError(f"expected True or False, got {type(value).__name__}", path=f"{PATH}.{name}")
    return value


def _states(value: Any) -> int:
    path = f"{PATH}.states"
    mask = gate.checked_int(value, (1, 255), path)
    if mask & RUNNING and not mask & AVAILABLE:
        raise ValidationError(
            "a mask with running (bit 2) has available (bit 1) too: a claim waits for no key", path=path
        )
    return mask


def key_of(kind: str, queue: str | None, args: bytes | None, bucket: int | None) -> bytes:
    """Return the 16 bytes that stand for these parts; None leaves a part out.

    Each part goes in as a letter, its length (8 bytes, little-endian) and its bytes, so no two lists of parts read the same.
    """
    from hashlib import blake2b  # loads OpenSSL: a worker that puts no unique job in goes without

    digest = blake2b(digest_size=KEY_BYTES)
    for name, part in (
        (b"k", kind.encode()),
        (b"q", None if queue is None else queue.encode()),
        (b"a", None if args is None else canonical_json(args)),
        (b"p", None if bucket is None else b"%d" % bucket),
    ):
        if part is not None:
            digest.update(name + len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.digest()


def states_of(mask: int) -> list[State]:
    """Return the states of a mask; bit i is the i-th state."""
    return [state for at, state in enumerate(State) if mask >> at & 1]


def canonical_json(text: bytes) -> bytes:
    """Return JSON with the keys of every object in order and nothing between the tokens, in UTF-8.

    Goes through the text, so that a job's args give the same before they are stored and after.
    """
    return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS)
