"""What stands in the parentheses of `@client.task(…)`, `@client.on_event(…)` and their siblings: the args type, or a kind.

A decorator written without its parentheses is handed the function itself, and would lose it: so that is refused too.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import typing
from typing import Any

from .errors import RegistrationError

OBJECTS = "a dataclass, TypedDict, msgspec.Struct or pydantic model"


def check_args_type(given: Any, decorator: str = "task") -> None:
    """Refuse what can be no args type; what is in a generic or a union shows when its decoder is made.

    Errors: RegistrationError naming the decorator, what it was given and what it takes.
    """
    _refuse_function(given, decorator, "or @client.task(kind='…') where they are a plain dict")
    if isinstance(given, str):
        hint = f"a kind is given by name: client.task(kind={given[:80]!r})"
    elif typing.get_origin(given) is not None or given is None or given is Any or _is_alias(given):
        return
    elif isinstance(given, type):
        if holds_fields(given):
            return
        hint = "args are stored as a JSON object"
    else:
        hint = f"give the class, and the object to client.insert: client.task({type(given).__name__})"
    raise RegistrationError(
        f"client.{decorator}(…) takes the class of the args, {OBJECTS}, not {_shown(given)}; {hint}"
    )


def checked_target(given: Any, decorator: str) -> Any:
    """Return the args type or the name of a kind that specs and hooks are for. Errors: as `check_args_type`."""
    _refuse_function(given, decorator, "or the name of its kind")
    if isinstance(given, str) and given.startswith("awa:"):
        raise RegistrationError(f"{decorator} cannot be for {given!r}: such kinds are the queue's own")
    if isinstance(given, str) and given:
        return given
    if isinstance(given, type) and given is not dict and holds_fields(given):
        return given
    raise RegistrationError(
        f"client.{decorator}(…) takes the args type of a task, or the name of its kind, not {_shown(given)}"
    )


def holds_fields(cls: type) -> bool:
    """Say whether values of a class are JSON objects."""
    return (
        issubclass(cls, collections.abc.Mapping)
        or dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or hasattr(cls, "__struct_fields__")
        or hasattr(cls, "model_validate_json")
    )


def _refuse_function(given: Any, decorator: str, other: str) -> None:
    if inspect.isroutine(given):
        name = getattr(given, "__name__", type(given).__name__)
        raise RegistrationError(
            f"@client.{decorator} lacks its parentheses: it was given the function {name} itself; "
            f"write @client.{decorator}(SendMail) with the class of the job's args, {other}"
        )


def _is_alias(given: Any) -> bool:
    return isinstance(given, typing.NewType | typing.TypeVar) or type(given).__name__ == "TypeAliasType"


def _shown(given: Any) -> str:
    """Name what was given; an object's own text may show secrets."""
    if isinstance(given, type):
        return f"the class {given.__qualname__}"
    return (
        f"the text {given[:80]!r}" if isinstance(given, str) else f"an object of class {type(given).__name__}"
    )
