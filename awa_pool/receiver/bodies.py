"""What the body of an answer says: one JSON object, read exactly, with the fields of its action and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from awa_pool.errors import ValidationError

DEFAULT_TIMEOUT_S = 3600.0
_METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "complete": ("complete_external", {"payload": None}),
    "resume": ("resume_external", {"payload": None}),
    "resolve": ("resolve_callback", {"payload": None, "default_action": "ignore"}),
    "fail": ("fail_external", {"error": ...}),
    "retry": ("retry_external", {}),
    "heartbeat": ("heartbeat_callback", {"timeout_seconds": DEFAULT_TIMEOUT_S}),
}
"""Of an action: the client's method, and its fields with their defaults; `...` is one that must be there."""


def understood(action: str, body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the client's method for an answer, and its arguments. Errors: ValidationError saying what to write instead."""
    method, fields = _METHODS[action]
    given = _object(body)
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise ValidationError(f"{unknown[0][:80]!r} is no field of {action}: {_shape(fields)}")
    for name, default in fields.items():
        if default is ... and name not in given:
            raise ValidationError(f"{name!r} is missing: {_shape(fields)}")
    return method, {name: given.get(name, default) for name, default in fields.items()}


def _shape(fields: Mapping[str, Any]) -> str:
    if not fields:
        return "send no body, or {}"
    values = {
        "payload": "any JSON value",
        "default_action": '"complete|fail|ignore|resume"',
        "error": '"text"',
        "timeout_seconds": "3600",
    }
    return "send {" + ", ".join(f'"{name}": {values[name]}' for name in fields) + "}"


def _object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(
            body.decode("utf-8"), object_pairs_hook=_without_twins, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise ValidationError("the body is not UTF-8") from None
    except json.JSONDecodeError as problem:
        raise ValidationError(f"the body is not JSON: {problem}") from None
    except RecursionError:
        raise ValidationError("the body is nested too deeply") from None
    except ValueError as problem:  # an integer of thousands of digits
        raise ValidationError(f"the body cannot be read: {problem}") from None
    if not isinstance(found, dict):
        raise ValidationError("the body must be a JSON object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValidationError(f"the body names {twin[:80]!r} twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValidationError(f"the body holds {text}, which JSON cannot carry")
