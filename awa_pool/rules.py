"""Rules of a callback: expressions in CEL over `payload` that say what an answer to it comes to.

The library that compiles and evaluates them comes with the extra `cel`, and is loaded by the first that needs it.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from . import validation as gate
from .errors import ConfigError, ValidationError
from .visible import visible

if TYPE_CHECKING:
    from cel_expr_python import cel

EXTRA = "pip install 'awa-pool[cel]'"
NAMES = ("filter", "on_complete", "on_fail", "transform")
EXPRESSION_BYTES = 4096
_YES_OR_NO = ("BOOL", "DYN")  # DYN: known only with a payload
_NOT_JSON = ("BYTES", "DURATION", "TYPE")
_REPORT = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?: \(in container ''\))?$", re.MULTILINE)
_SHOWN_CHARS = 200
_SHORT_ID_CHARS = 8

_log = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """What an answer comes to: complete, fail, resume or ignore, and what decided so: a rule's name, or default_action.

    `payload` is the JSON text that the job gets; `error` says why it fails, where a rule says so.
    """

    action: str
    reason: str
    payload: bytes
    error: str = ""


class _Unusable(Exception):
    """An expression could not be evaluated with this payload."""


def checked(**given: Any) -> dict[str, str]:
    """Return these expressions, those that are not None, compiled and found good.

    Errors: ValidationError naming the argument for one that is no text, too long, malformed, uses a name other than
    `payload`, or cannot give what is wanted; ConfigError where the extra is not installed.
    """
    rules = {name: _checked_text(name, value) for name, value in given.items() if value is not None}
    for name, expression in rules.items():
        _check(name, expression)
    return rules


def judge(
    rules: dict[str, str], payload: bytes, default_action: str, callback_id: str, limit_bytes: int
) -> Verdict:
    """Return what an answer with this JSON text comes to. Errors: ConfigError where the extra is not installed.

    What cannot be evaluated is logged and counts as if the rule were not there. A transformed payload over `limit_bytes` is such a case.
    """
    if rules:
        _environment()
    case = _Case(rules, orjson.loads(payload) if rules else None, callback_id)
    if not case.says("filter", otherwise=True):
        return Verdict("ignore", "filter", b"null")
    if case.says("on_fail", otherwise=False):
        return Verdict("fail", "on_fail", b"null", f"the payload matched on_fail: {rules['on_fail']}")
    reason = "on_complete" if case.says("on_complete", otherwise=False) else "default_action"
    action = "complete" if reason == "on_complete" else default_action
    if action in ("complete", "resume"):
        return Verdict(action, reason, case.transformed(payload, limit_bytes))
    return Verdict(action, reason, b"null")


class _Case:
    """The rules of one callback and one payload."""

    def __init__(self, rules: dict[str, str], payload: Any, callback_id: str) -> None:
        self._rules = rules
        self._payload = payload
        self._short_id = callback_id[:_SHORT_ID_CHARS]

    def says(self, name: str, *, otherwise: bool) -> bool:
        """Return whether that rule matches; `otherwise` where there is none, or none that can be evaluated."""
        if name not in self._rules:
            return otherwise
        try:
            value = self._value(name)
            if value.type().name() != "BOOL":
                raise _Unusable(f"it gave {value.type().name()}, not true or false")
            return bool(value.value())
        except Exception as problem:  # noqa: BLE001 (whatever it is, the answer must not be lost for it)
            self._warn(name, problem, "counts as true" if otherwise else "counts as false")
            return otherwise

    def transformed(self, payload: bytes, limit_bytes: int) -> bytes:
        """Return the JSON text that the transform makes of the payload; the text itself where it makes none."""
        if "transform" not in self._rules:
            return payload
        try:
            return gate.exact_json(
                _unpacked(self._value("transform"), [limit_bytes]), "transform", limit_bytes
            )
        except Exception as problem:  # noqa: BLE001 (as above)
            self._warn("transform", problem, "leaves the payload as it came")
            return payload

    def _value(self, name: str) -> cel.Value:
        value = _compiled(self._rules[name]).eval(data={"payload": self._payload})
        if value.type().name() == "ERROR":
            raise _Unusable(value.value())
        return value

    def _warn(self, name: str, problem: Exception, so: str) -> None:
        text = visible(str(problem) or type(problem).__name__)[:_SHOWN_CHARS]
        _log.warning("callback %s…: %s could not be evaluated and %s: %s", self._short_id, name, so, text)


def _checked_text(name: str, value: Any) -> str:
    if type(value) is not str:
        raise ValidationError(f"expected an expression as text, got {type(value).__name__}", path=name)
    gate.check_text(value, name)
    size = len(value.encode())
    if size > EXPRESSION_BYTES:
        raise ValidationError(f"{size} bytes; at most {EXPRESSION_BYTES} are allowed", path=name)
    if not value.strip():
        raise ValidationError("an expression is wanted, this is empty", path=name)
    return value


def _check(name: str, expression: str) -> None:
    try:
        gives = _compiled(expression).return_type().name()
    except ConfigError:
        raise
    except Exception as problem:  # noqa: BLE001 (the library says what is wrong by more than one class)
        raise ValidationError(_flaw(str(problem)), path=name) from None
    if name != "transform" and gives not in _YES_OR_NO:
        raise ValidationError(f"gives {gives}: true or false is wanted", path=name)
    if name == "transform" and gives.partition("<")[0] in _NOT_JSON:
        raise ValidationError(f"gives {gives}, which JSON cannot carry", path=name)


def _flaw(report: str) -> str:
    """Make one line of what the compiler says: its first finding, and where."""
    found = _REPORT.search(report)
    if found is None:
        return visible(report.partition("\n")[0])[:_SHOWN_CHARS]
    line, column, text = int(found[1]), int(found[2]), visible(found[3])[:_SHOWN_CHARS]
    if text.startswith("undeclared reference"):
        text += ": an expression knows the variable payload, and the functions of CEL"
    return text if line < 1 else f"{text} (line {line}, column {column})"


def _compiled(expression: str) -> cel.Expression:
    return _environment().compile(expression)


@cache
def _environment() -> cel.Env:
    try:
        from cel_expr_python import cel
    except ImportError:
        raise ConfigError(f"rules of callbacks need the extra `cel`: {EXTRA}") from None
    return cel.NewEnv(variables={"payload": cel.Type.DYN})


def _unpacked(value: cel.Value, left_bytes: list[int]) -> Any:
    """Return a result as plain values; stops once it must exceed so many bytes of JSON, as a small expression can make much."""
    plain = value.value()
    left_bytes[0] -= 1 + (len(plain) if type(plain) is str else 0)
    if left_bytes[0] < 0:
        raise _Unusable("what it made is too large")
    if type(plain) is list:
        return [_unpacked(item, left_bytes) for item in plain]
    if type(plain) is dict:
        return {key: _unpacked(item, left_bytes) for key, item in plain.items()}
    return plain
