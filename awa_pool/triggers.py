"""What an app wants to happen when an attempt has ended: follow-ups (specs), which commit with the outcome, and hooks, which
are told of it afterwards.

Both are registered for a kind, by its args type or its name, and an outcome; they stack, and run in order of registration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .errors import RegistrationError
from .states import Trigger
from .targets import checked_target

Callback = Callable[..., Any]

ARGUMENTS: dict[Trigger, tuple[str, ...]] = {
    Trigger.COMPLETED: ("args", "job"),
    Trigger.RETRIED: ("args", "job", "error", "attempt", "next_run_at"),
    Trigger.EXHAUSTED: ("args", "job", "error", "attempt"),
    Trigger.CANCELLED: ("args", "job", "reason"),
    Trigger.WAITING_FOR_CALLBACK: ("args", "job"),
    Trigger.RESCUED: ("args", "job", "rescue_reason"),
}
"""What a spec is called with."""


@dataclass(frozen=True, slots=True)
class _Registered:
    target: Any  # an args type, or the name of a kind
    trigger: Trigger | None  # None: a hook, which hears of all of them
    function: Callback


class Triggers:
    """Specs and hooks in order of registration, found by kind."""

    def __init__(self) -> None:
        self._all: list[_Registered] = []
        self._found: dict[tuple[str, Trigger | None], tuple[Callback, ...]] = {}

    def add_spec(self, target: Any, trigger: Trigger, function: Callback) -> None:
        """Register what a job's outcome puts in. Errors: RegistrationError."""
        names = ARGUMENTS[trigger]
        what = f"on_{trigger}_enqueue function"
        _check(function, what, len(names), f"({', '.join(names)})")
        self._add(_Registered(checked_target(target, f"on_{trigger}_enqueue"), trigger, function))

    def add_hook(self, target: Any, function: Callback) -> None:
        """Register who is told of a job's events. Errors: RegistrationError."""
        _check(function, "event hook", 1, "(event)")
        self._add(_Registered(checked_target(target, "on_event"), None, function))

    def specs(self, kind: str, args_type: Any, trigger: Trigger) -> tuple[Callback, ...]:
        """Return the specs of a kind whose args are of `args_type`, for one outcome."""
        return self._for(kind, args_type, trigger)

    def hooks(self, kind: str, args_type: Any) -> tuple[Callback, ...]:
        """Return the hooks of a kind."""
        return self._for(kind, args_type, None)

    def wanted(self, kinds: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
        """Return, of these kinds with their args types, the outcomes somebody waits for; kinds without any are left out."""
        found: dict[str, list[str]] = {}
        for kind, args_type in kinds:
            if self.hooks(kind, args_type):
                found[kind] = [str(trigger) for trigger in Trigger]
            elif names := [str(t) for t in Trigger if self.specs(kind, args_type, t)]:
                found[kind] = names
        return found

    def _add(self, registered: _Registered) -> None:
        self._all.append(registered)
        self._found.clear()

    def _for(self, kind: str, args_type: Any, trigger: Trigger | None) -> tuple[Callback, ...]:
        key = (kind, trigger)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = tuple(
                registered.function
                for registered in self._all
                if registered.trigger == trigger
                and (registered.target == kind or (args_type is not dict and registered.target is args_type))
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {"_all": self._all, "_found": {}}


def _check(function: Any, what: str, parameters: int, wanted: str) -> None:
    if not callable(function):
        raise RegistrationError(f"the {what} must be a function, not {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RegistrationError(
            f"the {what} {function.__qualname__} must be a plain function: no async def, no yield"
        )
    try:
        inspect.signature(function).bind(*range(parameters))
    except TypeError:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise RegistrationError(f"the {what} {name} must be callable with {wanted}") from None
    except ValueError:  # a callable of C that tells no signature
        return
