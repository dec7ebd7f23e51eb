"""What an app declares: its tasks and the hooks of its worker processes.

A registry is a plain value: it travels to workers by import of the app, or pickled with the client.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .decoding import Decoder, anything, compile_type, decode_args, makes_objects
from .errors import DecodeError, RegistrationError, ValidationError
from .hints import UnresolvedHint
from .outcomes import Backoff, checked_delay_s
from .states import Trigger
from .targets import OBJECTS, check_args_type
from .triggers import Callback, Triggers
from .unique import Uniqueness, checked_unique
from .validation import (
    GRACE_S,
    RESERVED,
    checked_deadline_s,
    checked_kind,
    checked_max_attempts,
    checked_priority,
    checked_queue,
    checked_seconds,
)

_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_NO_SPECS = (
    "its handler completes it (caller_completes=True), so nothing can be put in with on_completed_enqueue: "
    "use client.insert(…, conn=conn) in its transaction"
)

Handler = Callable[[Any], Any]
Hook = Callable[[], object]


def kind_of(name: str) -> str:
    """Return the kind that a class name stands for: `SendEmail` → `send_email`, `HTMLToPDF` → `html_to_pdf`."""
    return _WORD_STARTS.sub("_", name).lower()


@dataclass(slots=True, eq=False)
class Task:
    """A kind of job and the handler that runs it; `queue`, `max_attempts` and `priority` are its jobs' defaults."""

    kind: str
    args_type: Any
    handler: Handler
    is_async: bool
    queue: str = "default"
    max_attempts: int = 25
    backoff: Backoff = None
    priority: int = 2
    deadline_s: float | None = None  # of each attempt, where the job does not say its own
    grace_s: float | None = None  # from the deadline, or a cancel, to the kill; None: the pool's
    cancel_kill: bool = True  # a cancelled attempt that goes on is killed after the grace
    waits: bool = (
        False  # a plain handler that may wait for callbacks: it gets a thread of its own, beside async ones
    )
    unique: Uniqueness | None = None  # of jobs that say nothing of it themselves
    caller_completes: bool = False  # its handler completes it, in a transaction of its own
    decoder: Decoder | None = None  # None: the hints of the args type could not be resolved yet

    @property
    def beside_others(self) -> bool:
        """Its attempts run side by side in the worker's async lane."""
        return self.is_async or self.waits


class Registry:
    """The tasks of an app by kind, and its process hooks in order of registration."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.by_type: dict[Any, Task] = {}
        self.process_start: list[Hook] = []
        self.process_stop: list[Hook] = []
        self.triggers = Triggers()

    def add(
        self,
        args_type: Any,
        handler: Handler,
        *,
        kind: str | None = None,
        queue: str = "default",
        max_attempts: int = 25,
        backoff: Backoff | timedelta = None,
        priority: int = 2,
        deadline: float | timedelta | None = None,
        grace: float | timedelta | None = None,
        cancel_kill: bool | None = None,
        unique_opts: dict[str, Any] | None = None,
        caller_completes: bool = False,
        waits: bool = False,
    ) -> Task:
        """Register a handler for args of `args_type`; the kind is the type's snake_case name unless given.

        Errors: RegistrationError names what is wrong with the handler, the type or a setting.
        """
        check_args_type(args_type)
        if kind is None:
            if args_type is dict:
                raise RegistrationError("a task whose args are a plain dict needs kind='…'")
            if not isinstance(args_type, type):
                raise RegistrationError("a task whose args type is no class of its own needs kind='…'")
            kind = kind_of(args_type.__name__)
        _check_callable(handler, f"handler of {kind!r}", parameters=1)
        is_async = inspect.iscoroutinefunction(handler)
        try:
            task = Task(
                kind=checked_kind(kind),
                args_type=args_type,
                handler=handler,
                is_async=is_async,
                queue=checked_queue(queue),
                max_attempts=checked_max_attempts(max_attempts),
                backoff=_checked_backoff(backoff),
                priority=checked_priority(priority),
                deadline_s=None if deadline is None else checked_deadline_s(deadline),
                grace_s=None if grace is None else checked_seconds(grace, GRACE_S, "grace"),
                cancel_kill=_checked_cancel_kill(cancel_kill, not is_async and not waits),
                waits=_checked_waits(waits, is_async),
                unique=checked_unique(unique_opts),
                caller_completes=_checked_flag(caller_completes, "caller_completes"),
            )
            with contextlib.suppress(UnresolvedHint):  # what it names may be defined further down
                task.decoder = _decoder(args_type)
        except (ValidationError, RegistrationError) as problem:
            raise RegistrationError(f"task {kind!r}: {problem}") from None
        if kind in self.tasks:
            other = self.tasks[kind].handler
            raise RegistrationError(
                f"task {kind!r} is registered already, for {other.__module__}.{other.__qualname__}"
            )
        if caller_completes and self.triggers.specs(kind, args_type, Trigger.COMPLETED):
            raise RegistrationError(f"task {kind!r}: {_NO_SPECS}")
        self.tasks[kind] = task
        if args_type is not dict and self.by_type.setdefault(args_type, task) is not task:
            del self.by_type[args_type]  # two kinds share the type: requests must name the kind
        return task

    def add_spec(self, target: Any, trigger: Trigger, function: Callback) -> None:
        """Register what an outcome of a kind of job puts in. Errors: RegistrationError."""
        if trigger is Trigger.COMPLETED:
            for task in self.tasks.values():
                if task.caller_completes and (target == task.kind or target is task.args_type is not dict):
                    raise RegistrationError(f"on_completed_enqueue of task {task.kind!r}: {_NO_SPECS}")
        self.triggers.add_spec(target, trigger, function)

    def add_hook(self, hooks: list[Hook], hook: Hook) -> Hook:
        """Register a function without parameters in one of the two hook lists."""
        _check_callable(hook, "process hook", parameters=0)
        if inspect.iscoroutinefunction(hook):
            raise RegistrationError("a process hook is a plain function, not async def")
        hooks.append(hook)
        return hook

    def queues(self) -> list[str]:
        """Return the queues that the tasks name, in order of registration."""
        tasks = [task for task in self.tasks.values() if not task.kind.startswith(RESERVED)]
        return list(dict.fromkeys(task.queue for task in tasks))

    def decode_args(self, task: Task, value: Any) -> Any:
        """Rebuild a task's args from stored JSON; DecodeError (terminal) names the field that does not fit."""
        if (decoder := task.decoder) is None:
            try:
                decoder = task.decoder = _decoder(task.args_type)
            except (UnresolvedHint, RegistrationError) as problem:
                raise DecodeError(str(problem)) from None
        return decode_args(decoder, value)

    def resolve(self) -> None:
        """Make the decoders that were left for later, as their hints named what was not defined yet.

        Errors: RegistrationError naming task, class, field and annotation.
        """
        for task in self.tasks.values():
            if task.decoder is None:
                try:
                    task.decoder = _decoder(task.args_type)
                except (UnresolvedHint, RegistrationError) as problem:
                    raise RegistrationError(f"task {task.kind!r}: {problem}") from None

    def __getstate__(self) -> dict[str, Any]:
        self.resolve()  # in the other process the names of __main__ are gone
        return self.__dict__


def _decoder(args_type: Any) -> Decoder:
    """Compile the decoder. Errors: RegistrationError; UnresolvedHint when a hint names what is not defined yet."""
    if args_type is None:
        return anything
    decoder = compile_type(args_type)
    if not makes_objects(decoder):
        raise RegistrationError(f"args are stored as a JSON object: declare {OBJECTS}, not {args_type}")
    return decoder


def _checked_backoff(backoff: Any) -> Backoff:
    if backoff is not None and not callable(backoff):
        return checked_delay_s(backoff, "backoff")
    known: Backoff = backoff
    return known


def _checked_flag(given: Any, name: str) -> bool:
    if type(given) is not bool:
        raise ValidationError(f"expected True or False, got {type(given).__name__}", path=name)
    return given


def _checked_cancel_kill(given: Any, default: bool) -> bool:
    """By default only a handler that has its process's main thread to itself may take the process with it."""
    if given is not None and type(given) is not bool:
        raise ValidationError(f"expected True or False, got {type(given).__name__}", path="cancel_kill")
    return default if given is None else given


def _checked_waits(given: Any, is_async: bool) -> bool:
    if type(given) is not bool:
        raise ValidationError(f"expected True or False, got {type(given).__name__}", path="waits")
    if given and is_async:
        raise ValidationError(
            "it is for plain functions; an async handler may wait for callbacks without it", path="waits"
        )
    return given


def _check_callable(function: Any, what: str, *, parameters: int) -> None:
    """Refuse what a worker could not call: lambdas, generators, wrong signatures, functions of no module."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise RegistrationError(
            f"the {what} must be a function (def or async def), not {type(function).__name__}"
        )
    if function.__name__ == "<lambda>":
        raise RegistrationError(f"the {what} is a lambda, which worker processes cannot import: write a def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError(f"the {what} {function.__qualname__} is a generator: it must not yield")
    if function.__module__ not in sys.modules:
        raise RegistrationError(
            f"the {what} {function.__qualname__} belongs to no importable module ({function.__module__!r})"
        )
    try:
        inspect.signature(function).bind(*range(parameters))
    except TypeError:
        wanted = "one argument (the job)" if parameters else "no arguments"
        raise RegistrationError(
            f"the {what} {function.__qualname__} must be callable with {wanted}"
        ) from None
