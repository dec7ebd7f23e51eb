"""From stored JSON back to the args type that a task declares.

`compile_type(hint)` makes a decoder (a picklable callable) from a type hint, once per task. Values come back as they
went in: datetimes aware, dates, UUIDs, enums, tuples and nested dataclasses by the hints of the fields. Values are
checked, never converted: a field declared `int` refuses `1.5`, `"1"` and `true`. In a union the members are tried in
order, plain text last. What does not fit raises `DecodeError` that names the field but shows no value.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from uuid import UUID

from .errors import DecodeError, RegistrationError
from .hints import UnresolvedHint, check_reachable, hints_of

Decoder = Callable[[Any], Any]


class _Misfit(Exception):
    """A value does not fit; the path grows while the error climbs."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def under(self, step: str) -> _Misfit:
        self.path = step + self.path
        return self


def decode_args(decoder: Decoder, value: Any) -> Any:
    """Rebuild args with a compiled decoder; DecodeError names the field that does not fit."""
    try:
        return decoder(value)
    except _Misfit as misfit:
        raise DecodeError(misfit.problem, path="args" + misfit.path) from None


def compile_type(hint: Any) -> Decoder:
    """Make the decoder of a type hint.

    Errors: RegistrationError for a type that JSON cannot bring back; UnresolvedHint for a hint not yet resolvable.
    """
    return _Compiler().compile(hint)


def makes_objects(decoder: Decoder) -> bool:
    """Say whether what a decoder takes are JSON objects, as args are."""
    if isinstance(decoder, _Union):
        return all(makes_objects(member) for member in decoder.members)
    return decoder is anything or isinstance(decoder, _Fields | _Dict | _Msgspec | _Pydantic)


def anything(value: Any) -> Any:
    """Decode a value of no declared type: as JSON gave it."""
    return value


class _Plain:
    """One of JSON's own types, exactly; a float field takes an integer too."""

    def __init__(self, wanted: type) -> None:
        self.wanted = wanted

    def __call__(self, value: Any) -> Any:
        if type(value) is self.wanted or (self.wanted is float and type(value) is int):
            return value
        raise _Misfit(f"expected {self.wanted.__name__}, got {type(value).__name__}")


class _Parsed:
    """A value that is text in JSON: an instant, a date, a UUID."""

    def __init__(self, wanted: type) -> None:
        self.wanted = wanted

    def __call__(self, value: Any) -> Any:
        if type(value) is not str:
            raise _Misfit(f"expected {self.wanted.__name__} as text, got {type(value).__name__}")
        try:
            parsed: Any = self.wanted(value) if self.wanted is UUID else self.wanted.fromisoformat(value)  # type: ignore[attr-defined]
        except ValueError:
            raise _Misfit(f"this text is no {self.wanted.__name__}") from None
        if self.wanted is datetime and parsed.tzinfo is None:
            raise _Misfit("this datetime has no zone")
        return parsed


class _Choice:
    """An enum by value, or a Literal."""

    def __init__(self, name: str, members: list[tuple[Any, Any]]) -> None:
        self.name = name
        self.members = members

    def __call__(self, value: Any) -> Any:
        for stored, member in self.members:
            if stored == value and type(stored) is type(value):
                return member
        raise _Misfit(f"no such value in {self.name}")


class _List:
    def __init__(self, item: Decoder, make: type) -> None:
        self.item = item
        self.make = make

    def __call__(self, value: Any) -> Any:
        if type(value) is not list:
            raise _Misfit(f"expected {self.make.__name__}, got {type(value).__name__}")
        if self.item is anything:
            return value if self.make is list else self.make(value)
        decoded, at = [], 0
        try:
            for at, item in enumerate(value):  # noqa: B007 (`at` is read by the handler below)
                decoded.append(self.item(item))
        except _Misfit as misfit:
            raise misfit.under(f"[{at}]") from None
        return decoded if self.make is list else self.make(decoded)


class _Tuple:
    def __init__(self, items: list[Decoder]) -> None:
        self.items = items

    def __call__(self, value: Any) -> Any:
        if type(value) is not list or len(value) != len(self.items):
            raise _Misfit(f"expected {len(self.items)} values")
        decoded = []
        for at, (decode, item) in enumerate(zip(self.items, value, strict=True)):
            try:
                decoded.append(decode(item))
            except _Misfit as misfit:
                raise misfit.under(f"[{at}]") from None
        return tuple(decoded)


class _Dict:
    def __init__(self, item: Decoder) -> None:
        self.item = item

    def __call__(self, value: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit(f"expected an object, got {type(value).__name__}")
        if self.item is anything:
            return value
        decoded = {}
        for key, item in value.items():
            try:
                decoded[key] = self.item(item)
            except _Misfit as misfit:
                raise misfit.under(f".{key}"[:80]) from None
        return decoded


class _Union:
    def __init__(self, members: list[Decoder], name: str) -> None:
        self.members = members
        self.name = name

    def __call__(self, value: Any) -> Any:
        deepest: _Misfit | None = None
        for decode in self.members:
            try:
                return decode(value)
            except _Misfit as misfit:
                if deepest is None or len(misfit.path) > len(deepest.path):
                    deepest = misfit
        if deepest is not None and deepest.path:
            raise deepest
        raise _Misfit(f"{type(value).__name__} does not fit {self.name}")


class _Fields:
    """An object with named fields: a dataclass (called with them) or a TypedDict (`make` is dict)."""

    def __init__(self, make: Callable[..., Any], name: str) -> None:
        self.make = make
        self.name = name
        self.fields: dict[str, Decoder] = {}
        self.required: frozenset[str] = frozenset()

    def __call__(self, value: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit(f"expected an object for {self.name}, got {type(value).__name__}")
        fields = self.fields
        decoded = {}
        for key, item in value.items():
            decode = fields.get(key)
            if decode is None:
                raise _Misfit(f"{self.name} has no such field").under(f".{key}"[:80])
            try:
                decoded[key] = decode(item)
            except _Misfit as misfit:
                raise misfit.under(f".{key}") from None
        if not self.required <= decoded.keys():
            missing = min(self.required - decoded.keys())
            raise _Misfit(f"{self.name} needs this field").under(f".{missing}")
        try:
            return self.make(**decoded)
        except Exception as problem:  # __post_init__ is user code; its message may show values
            raise _Misfit(f"{self.name} refused its fields ({type(problem).__name__})") from problem


class _Msgspec:
    def __init__(self, hint: Any) -> None:
        self.hint = hint

    def __call__(self, value: Any) -> Any:
        import msgspec

        try:
            return msgspec.convert(value, self.hint, str_keys=True)
        except msgspec.ValidationError as problem:
            text, _, where = str(problem).partition(" - at `$")
            if not text.startswith(("Expected `", "Object missing ", "Object contains unknown ")):
                text = f"{_name_of(self.hint)} refused its fields"  # that message shows a value, or is user code's
            raise _Misfit(text).under(where.rstrip("`")) from None


class _Pydantic:
    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, value: Any) -> Any:
        import orjson

        try:  # by way of JSON text, as a strict model takes text for a datetime only there
            return self.model.model_validate_json(orjson.dumps(value))
        except ValueError as problem:
            details = (
                problem.errors(include_url=False, include_input=False) if hasattr(problem, "errors") else []
            )
            first = details[0] if details else {"msg": type(problem).__name__, "loc": ()}
            path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
            text = str(first["msg"])
            if first.get("type") not in _plain_pydantic_errors():
                text = f"{_name_of(self.model)} refused its fields"  # that message shows a value, or is user code's
            raise _Misfit(text).under(path) from None


def _pydantic(model: Any) -> Decoder:
    """Make the decoder of a model, which may still lack names that its hints use."""
    if not getattr(model, "__pydantic_complete__", True):
        try:
            model.model_rebuild(_types_namespace={})  # with the names of its module, and none of ours
        except NameError as problem:
            check_reachable(model)
            raise UnresolvedHint(f"{_name_of(model)}: an annotation cannot be resolved ({problem})") from None
    return _Pydantic(model)


def _plain_pydantic_errors() -> set[str]:
    """Return the kinds of pydantic's errors whose messages are its own and name what it wants, not what it got."""
    from pydantic_core.core_schema import ErrorType

    telling = {"value_error", "assertion_error", "union_tag_invalid"}
    return set(typing.get_args(ErrorType)) - telling


def _name_of(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


_PLAIN: dict[type, Decoder] = {t: _Plain(t) for t in (bool, int, float, str, type(None))}
_PARSED: dict[type, Decoder] = {t: _Parsed(t) for t in (datetime, date, UUID)}
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable,
          collections.abc.Collection)  # fmt: skip
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_TRANSPARENT = (typing.Annotated, typing.Final, typing.Required, typing.NotRequired)


class _Compiler:
    """Compiles one hint; remembers the classes on the way, so that a class may contain itself."""

    def __init__(self) -> None:
        self.known: dict[Any, Decoder] = {}

    def compile(self, hint: Any) -> Decoder:
        if hint is None:
            return _PLAIN[type(None)]
        if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
            return anything
        while isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        if type(hint).__name__ == "TypeAliasType":
            return self.compile(hint.__value__)
        if isinstance(hint, str):
            raise UnresolvedHint(f"the annotation {hint!r} cannot be resolved")
        if typing.get_origin(hint) is not None:
            return self._generic(hint)
        if isinstance(hint, type):
            return self._class(hint)
        raise RegistrationError(f"{hint!r} cannot be rebuilt from JSON")

    def _generic(self, hint: Any) -> Decoder:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in _TRANSPARENT:
            return self.compile(inner[0])
        if origin is typing.Union or origin is types.UnionType:
            ordered = sorted(inner, key=lambda member: member in (str, Any, object))
            return _Union([self.compile(member) for member in ordered], _name(hint))
        if origin is typing.Literal:
            return _Choice(_name(hint), [(m.value if isinstance(m, enum.Enum) else m, m) for m in inner])
        if origin in _LISTS:
            return _List(self.compile(inner[0]), list)
        if origin is tuple:
            if len(inner) == 2 and inner[1] is Ellipsis:
                return _List(self.compile(inner[0]), tuple)
            return _Tuple([] if inner == ((),) else [self.compile(item) for item in inner])
        if origin in _DICTS:
            if inner[0] is not str and inner[0] is not Any:
                raise RegistrationError(f"{_name(hint)}: keys of an object are text in JSON")
            return _Dict(self.compile(inner[1]))
        if hasattr(origin, "__struct_fields__"):
            check_reachable(hint)
            return _Msgspec(hint)
        if isinstance(origin, type):
            return self._class(origin)
        raise RegistrationError(f"{_name(hint)} cannot be rebuilt from JSON")

    def _class(self, cls: type) -> Decoder:
        plain = _PLAIN.get(cls) or _PARSED.get(cls) or self.known.get(cls)
        if plain is not None:
            return plain
        if cls in _LISTS or cls is tuple:
            return _List(anything, tuple if cls is tuple else list)
        if cls in _DICTS:
            return _Dict(anything)
        if issubclass(cls, enum.Enum):
            return _Choice(cls.__name__, [(_plain_value(cls, m), m) for m in cls.__members__.values()])
        if hasattr(cls, "__struct_fields__"):
            check_reachable(cls)
            return _Msgspec(cls)
        if hasattr(cls, "model_validate_json"):
            return _pydantic(cls)
        if dataclasses.is_dataclass(cls):
            return self._dataclass(cls)
        if typing.is_typeddict(cls):
            typed: Any = cls
            node = self.known[cls] = _Fields(dict, cls.__name__)
            node.fields = {name: self._field(cls, name, hint) for name, hint in hints_of(cls).items()}
            node.required = frozenset(typed.__required_keys__)
            return node
        raise RegistrationError(f"{_name(cls)} cannot be rebuilt from JSON")

    def _dataclass(self, cls: type) -> Decoder:
        node = self.known[cls] = _Fields(cls, cls.__name__)
        hints = hints_of(cls)
        missing = dataclasses.MISSING
        taken = [f for f in dataclasses.fields(cls) if f.init]
        node.fields = {f.name: self._field(cls, f.name, hints[f.name]) for f in taken}
        node.required = frozenset(
            f.name for f in taken if f.default is missing and f.default_factory is missing
        )
        for name, pseudo in cls.__dataclass_fields__.items():  # type: ignore[attr-defined]
            if isinstance(hints.get(name), dataclasses.InitVar) or str(pseudo.type).startswith("InitVar"):
                raise RegistrationError(
                    f"{cls.__name__}.{name}: an InitVar is not kept, so it cannot be stored"
                )
        return node

    def _field(self, cls: type, name: str, hint: Any) -> Decoder:
        try:
            return self.compile(hint)
        except (UnresolvedHint, RegistrationError) as problem:
            text = str(problem)
            told = text if "." in text.split(":")[0] else f"{cls.__name__}.{name}: {text}"
            raise type(problem)(told) from None


def _plain_value(cls: type, member: enum.Enum) -> Any:
    """Return the member's value as JSON gives it back."""
    for wanted in (bool, int, float, str):
        if isinstance(member.value, wanted):
            return wanted(member.value)
    raise RegistrationError(
        f"{cls.__name__}.{member.name}: an enum in args has text, int, float or bool values"
    )


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint).replace("typing.", "")
