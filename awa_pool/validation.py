"""The one gate for everything that enters the queue: bounds, and JSON that comes out exactly as it went in.

Args may hold None, bool, int (64 bits, signed), finite float, str, list, tuple, dict with text keys, and by rule:
an aware datetime and a date (as ISO 8601 text), a UUID (as text), an enum (its value), a dataclass, msgspec.Struct
or pydantic model (an object of its fields). Declared so in the args type, these come back as what they were; in
a plain dict they come back as JSON shows them. Anything else is refused with its path, never changed in silence.

The fast road lets orjson write the text and then looks for signs of the few things that it would change; only where
there is a sign, or a refusal, is the value walked in Python, which finds the path.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import orjson

from .body import INT64, has_long_number
from .errors import PayloadTooLarge, ValidationError

NAME_CHARS = 200
MAX_TAGS = 20
PRIORITIES = (1, 4)
ATTEMPTS = (1, 1000)
DEADLINE_S = (0.01, 365 * 86400.0)
GRACE_S = (0.0, 86400.0)
MAX_LEVELS = 64
ARGS_BYTES = 8 * 1024 * 1024
METADATA_BYTES = 64 * 1024
RESERVED = "awa:"

_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
)
_SHOWN_CHARS = 60  # of a name, in a path
_TOO_SHORT_TO_BE_DEEP = 2 * MAX_LEVELS


# --- bounds --------------------------------------------------------------------------------------------------


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
    """Return a valid kind; those that start with `awa:` belong to the queue."""
    name = checked_name(value, "kind")
    if name.startswith(RESERVED):
        raise ValidationError(f"names that start with {RESERVED!r} belong to the queue", path="kind")
    return name


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


def checked_deadline_s(value: Any, path: str = "deadline") -> float:
    """Return how long an attempt may take, in seconds (a number or a timedelta), 0.01 to 365 days."""
    return checked_seconds(value, DEADLINE_S, path)


def checked_seconds(value: Any, bounds: tuple[float, float], path: str) -> float:
    """Return seconds, given as a number or a timedelta, within bounds, ends included."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if type(seconds) not in (int, float):
        raise ValidationError(f"expected seconds or a timedelta, got {type(value).__name__}", path=path)
    if not bounds[0] <= seconds <= bounds[1]:  # false for NaN too
        raise ValidationError(f"expected {bounds[0]:g} to {bounds[1]:.0f} seconds", path=path)
    return float(seconds)


def checked_tags(value: Any) -> list[str] | None:
    """Return valid tags: at most 20 names; none at all as None."""
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, list | tuple | set | frozenset):
        raise ValidationError(f"expected a list of texts, got {type(value).__name__}", path="tags")
    if len(value) > MAX_TAGS:
        raise ValidationError(f"at most {MAX_TAGS} tags, got {len(value)}", path="tags")
    return [checked_name(tag, f"tags[{at}]") for at, tag in enumerate(value)] or None


def checked_run_at(value: Any) -> datetime | None:
    """Return a valid due time in UTC; None means now."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValidationError(f"expected a datetime with a zone, got {type(value).__name__}", path="run_at")
    if value.utcoffset() is None:
        raise ValidationError("a datetime without a zone says no instant: add tzinfo", path="run_at")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValidationError("in UTC this instant lies outside the years 1 to 9999", path="run_at") from None


# --- JSON ----------------------------------------------------------------------------------------------------


def args_json(args: Any) -> bytes:
    """Return args as JSON text; they must be an object: a dict, dataclass, msgspec.Struct or pydantic model.

    Errors: ValidationError whose path starts with `args`; PayloadTooLarge over `ARGS_BYTES`.
    """
    return exact_json(args if type(args) is dict else args_object(args), "args", ARGS_BYTES)


def metadata_json(metadata: Any) -> bytes | None:
    """Return metadata as JSON text, or None for none; keys that start with `awa:` belong to the queue."""
    if metadata is None:
        return None
    if type(metadata) is not dict:
        raise ValidationError(f"expected a dict, got {type(metadata).__name__}", path="metadata")
    text = exact_json(metadata, "metadata", METADATA_BYTES)
    for key in metadata:
        if key.startswith(RESERVED):
            raise ValidationError(
                f"names that start with {RESERVED!r} belong to the queue",
                path=f"metadata.{key[:_SHOWN_CHARS]}",
            )
    return text if metadata else None


def exact_json(value: Any, path: str, limit_bytes: int) -> bytes:
    """Return the JSON text of a value that it holds exactly; ValidationError with the path otherwise."""
    text = plain_json(value, path, limit_bytes)
    if suspicious(text):
        _walk(value, path, 1)
    return text


def plain_json(value: Any, path: str, limit_bytes: int) -> bytes:
    """Return the JSON text of a value: sound where `suspicious` sees nothing in it, else ask `check_exact`."""
    try:
        text = orjson.dumps(value, _convert, _OPTIONS)
    except (TypeError, ValueError, RecursionError) as problem:
        _walk(value, path, 1)
        raise ValidationError(f"cannot be written as JSON: {problem}", path=path) from None
    size = len(text)
    if size > _TOO_SHORT_TO_BE_DEEP:
        if (
            text.count(b"{") + text.count(b"[") > MAX_LEVELS
        ):  # brackets inside texts count too: a sign, no proof
            _walk(value, path, 1)
        if size > limit_bytes:
            raise PayloadTooLarge(f"{size} bytes of JSON; at most {limit_bytes} are allowed", path=path)
    return text


def suspicious(text: bytes) -> bool:
    """Say whether JSON text (of one value or of many) shows a sign that orjson may have changed something.

    `null` may have been NaN, a NUL is written as its escape, and 19 digits may be beyond 64 bits.
    """
    return b"null" in text or b"\\u0000" in text or has_long_number(text)


def check_exact(value: Any, path: str) -> None:
    """Raise ValidationError with the path of what JSON cannot carry exactly."""
    _walk(value, path, 1)


def _walk(value: Any, path: str, level: int) -> None:
    """Find what JSON cannot carry exactly, and raise with its path."""
    kind = type(value)
    if value is None or kind is bool or kind is UUID:
        return
    if kind is str:
        check_text(value, path)
    elif kind is int:
        if not INT64[0] <= value <= INT64[1]:
            raise ValidationError("this integer does not fit 64 bits, signed", path=path)
    elif kind is float:
        if not math.isfinite(value):
            raise ValidationError(f"JSON has no {value}", path=path)
    elif kind is dict or kind is list or kind is tuple:
        if level > MAX_LEVELS:
            raise ValidationError(f"nested deeper than {MAX_LEVELS} levels", path=path)
        if kind is dict:
            _walk_dict(value, path, level)
        else:
            for at, item in enumerate(value):
                _walk(item, f"{path}[{at}]", level + 1)
    elif isinstance(value, Enum):
        _walk(value.value, path, level)
    else:
        try:
            converted = _convert(value)
        except ValidationError as problem:
            raise ValidationError(str(problem), path=path) from None
        _walk(converted, path, level)


def _walk_dict(value: dict[Any, Any], path: str, level: int) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise ValidationError(f"keys are text in JSON, not {type(key).__name__}", path=path)
        plain = len(key) <= _SHOWN_CHARS and key.isidentifier()
        below = f"{path}.{key}" if plain else f"{path}[{key[:_SHOWN_CHARS]!a}]"
        check_text(key, below)
        _walk(item, below, level + 1)


# --- conversions by rule -------------------------------------------------------------------------------------

_Converter = Callable[[Any], Any]
_converters: dict[type, _Converter] = {}


def _convert(value: Any) -> Any:
    """Return the JSON form of a value that orjson leaves to us; ValidationError for what has none."""
    kind = type(value)
    try:
        converter = _converters.get(kind)
        if converter is None:
            converter = _converter_of(kind)
            if converter is None:
                raise ValidationError(f"{_describe(kind)} has no exact form in JSON")
            _converters[kind] = converter
        return converter(value)
    except ValidationError:
        raise
    except Exception as problem:  # metaclasses, properties and serializers are the user's own code
        raise ValidationError(f"{_describe(kind)} cannot be read: {type(problem).__name__}") from problem


def args_object(args: Any) -> dict[str, Any]:
    """Return the fields of an args object; ValidationError for what is none."""
    kind = type(args)
    converter = _converters.get(kind)
    if converter is not None:
        try:
            fields = converter(args)
        except Exception:  # noqa: BLE001 (said below, with what is wrong)
            fields = None
        if type(fields) is dict:
            return fields
    if issubclass(kind, list | tuple | str) or kind in (datetime, date):
        raise ValidationError(
            f"expected an object (a dict or a dataclass), got {_describe(kind)}", path="args"
        )
    try:
        converted = _convert(args)
    except ValidationError as problem:
        if problem.__cause__ is not None:
            raise ValidationError(str(problem), path="args") from problem.__cause__
        raise ValidationError(
            f"expected a dict, dataclass, msgspec.Struct or pydantic model, got {_describe(kind)}",
            path="args",
        ) from None
    if type(converted) is not dict:
        raise ValidationError(f"{_describe(kind)} is not written as an object", path="args")
    return converted


def _describe(kind: type) -> str:
    try:
        return _describe_class(kind)
    except Exception:  # noqa: BLE001 (a metaclass is user code)
        return "a class of the strangest making"


def _describe_class(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    for plain in (tuple, dict, list, str, int, float):
        if kind is not plain and issubclass(kind, plain):
            return f"{name} (more than a plain {plain.__name__})"
    return name


def _converter_of(kind: type) -> _Converter | None:
    if kind is datetime:
        return _aware_text
    if kind is date:
        return date.isoformat
    if hasattr(kind, "__struct_fields__"):
        return _msgspec_fields
    if hasattr(kind, "__pydantic_serializer__") and hasattr(kind, "model_dump"):
        return _pydantic_fields
    if dataclasses.is_dataclass(kind) and not issubclass(kind, dict | list | tuple | str | int | float):
        return _dataclass_fields(kind)
    return None


def _aware_text(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValidationError("a datetime without a zone says no instant: add tzinfo")
    return value.isoformat()


def _dataclass_fields(kind: type) -> _Converter:
    """Make the converter of a dataclass: the fields that its constructor takes."""
    names = tuple(f.name for f in dataclasses.fields(kind) if f.init)
    expected = dict.fromkeys(names).keys()

    def fields_of(value: Any) -> dict[str, Any]:
        held: dict[str, Any] | None = getattr(value, "__dict__", None)
        if held is not None and held.keys() == expected:
            return held
        return {name: getattr(value, name) for name in names}

    return fields_of


def _msgspec_fields(value: Any) -> Any:
    from decimal import Decimal

    import msgspec

    # what msgspec would turn into text by rules of its own comes through unchanged, to meet ours
    kept = (bytes, bytearray, memoryview, datetime, date, UUID, Decimal)
    return msgspec.to_builtins(value, builtin_types=kept)


def _pydantic_fields(value: Any) -> Any:
    return value.model_dump(mode="python", by_alias=True)
