"""The type hints of a class, and which of them it is that cannot be resolved."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Iterator
from typing import Any

from .errors import RegistrationError

_MOST_SHOWN = 80
_LIBRARIES = (
    "pydantic",
    "msgspec",
    "typing",
    "builtins",
)  # their own annotations are no business of an app's


class UnresolvedHint(NameError):
    """A hint names what is not defined, or not yet; the text names class, field and annotation."""


def hints_of(cls: type) -> dict[str, Any]:
    """Return the resolved hints of a class by field.

    Errors: UnresolvedHint for a name that may still be defined; RegistrationError for an annotation that is no type.
    """
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # an annotation is an expression: it may raise anything
        for base in reversed(cls.__mro__):
            _blame(base)
        raise


def check_reachable(hint: Any) -> None:
    """Resolve the hints of all classes that a hint leads to, for libraries that do so at the first value only.

    Errors: as of `hints_of`.
    """
    seen: set[Any] = set()
    ahead = [hint]
    while ahead:
        for cls in _classes_in(ahead.pop()):
            if cls not in seen:
                seen.add(cls)
                ahead += _own_hints(cls)


def _own_hints(cls: type) -> Iterator[Any]:
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] not in _LIBRARIES:
            for name, annotation in inspect.get_annotations(base).items():
                yield _resolved(base, name, annotation)


def _classes_in(hint: Any) -> Iterator[type]:
    """Find the classes with fields in a hint."""
    inner = typing.get_args(hint)
    if inner:
        for member in (typing.get_origin(hint), *inner):
            yield from _classes_in(member)
    elif isinstance(hint, type) and (
        hasattr(hint, "__struct_fields__")
        or hasattr(hint, "model_validate_json")
        or dataclasses.is_dataclass(hint)
        or typing.is_typeddict(hint)
    ):
        yield hint


def _blame(base: type) -> None:
    for name, annotation in inspect.get_annotations(base).items():
        _resolved(base, name, annotation)


def _resolved(base: type, name: str, annotation: Any) -> Any:
    """Resolve one annotation of a class as `typing.get_type_hints` does all of them."""
    module = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
    alone = type(base.__name__, (), {"__annotations__": {name: annotation}})
    try:
        return typing.get_type_hints(alone, module, dict(vars(base)), include_extras=True)[name]
    except Exception as problem:  # noqa: BLE001 (an annotation is the app's code)
        written = getattr(annotation, "__forward_arg__", annotation)
        shown = repr(written if isinstance(written, str) else str(written).replace("typing.", ""))[
            :_MOST_SHOWN
        ]
        text = f"{base.__name__}.{name}: the annotation {shown} cannot be resolved ({problem})"
        if isinstance(problem, NameError | AttributeError):
            raise UnresolvedHint(f"{text}: define or import it") from None
        raise RegistrationError(text) from None
