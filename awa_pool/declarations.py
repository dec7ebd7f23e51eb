"""What both clients share: where the database is, what the app declares, and how a client travels to a worker."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from .errors import ConfigError
from .outcomes import Backoff
from .registry import Hook, Registry
from .sqlfiles import quoted_schema
from .states import Trigger
from .targets import check_args_type, checked_target

F = TypeVar("F", bound=Callable[..., Any])
DSN_VARIABLES = ("AWA_POOL_DSN", "DATABASE_URL")
SCHEMA_VARIABLE = "AWA_POOL_SCHEMA"


class Declarations:
    """The part of a client that needs no database. A client may be pickled: its connections stay behind."""

    def __init__(self, dsn: str | None = None, *, schema: str | None = None) -> None:
        """Remember where the database is; nothing is opened before the first use.

        Without `dsn` the variables AWA_POOL_DSN and DATABASE_URL are asked, at first use; without `schema` it is
        AWA_POOL_SCHEMA, which a pool sets for its workers, else `awa_pool`.
        """
        if schema is None:
            schema = os.environ.get(SCHEMA_VARIABLE) or "awa_pool"
        quoted_schema(schema)
        if dsn is not None and (not isinstance(dsn, str) or not dsn.strip()):
            raise ConfigError("the DSN is empty: write postgresql://user@host:5432/database, or leave it out")
        self.dsn = dsn
        self.schema = schema
        self.registry = Registry()
        self.unique_skips = 0  # jobs not put in so far, as others hold their keys
        self._pool: Any = None

    def task(
        self,
        args_type: Any = dict,
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
    ) -> Callable[[F], F]:
        """Register the decorated function, def or async def, as the handler of a kind of job.

        `args_type` is a dataclass, TypedDict, msgspec.Struct or pydantic model, whose snake_case name is the kind
        unless given; a plain `dict` needs `kind`. `backoff`: seconds, a timedelta, or a function of the attempt just
        failed; by default min(2^attempt s plus up to 25 % jitter, 24 h). Queue, max_attempts and priority are the
        defaults of its jobs. `deadline`: seconds or a timedelta that an attempt may take; then `DeadlineExceeded` is
        raised in it, and `grace` later (None: the pool's --kill-grace) its process is killed. `cancel_kill`: whether a
        cancelled attempt that goes on is killed after that grace too; None: if its handler has a worker to itself.
        `unique_opts`: at most one job with the same key at a time (docs/unique-jobs.md); {} takes the defaults.
        `waits`: a plain function may call `job.wait_for_callback`: it runs in a thread of its own, side by side with
        others (docs/callbacks.md). An async one may without it.
        `caller_completes`: the handler completes the job in a transaction of its own (docs/caller-owned-completion.md).
        Errors: RegistrationError, at once for what is no args type.
        """
        check_args_type(args_type)

        def register(handler: F) -> F:
            self.registry.add(
                args_type, handler, kind=kind, queue=queue, max_attempts=max_attempts, backoff=backoff,
                priority=priority, deadline=deadline, grace=grace, cancel_kill=cancel_kill,
                unique_opts=unique_opts, caller_completes=caller_completes, waits=waits,
            )  # fmt: skip
            return handler

        return register

    def process_start(self, hook: Hook) -> Hook:
        """Register a function to run once in each worker process before its first job."""
        return self.registry.add_hook(self.registry.process_start, hook)

    def process_stop(self, hook: Hook) -> Hook:
        """Register a function to run once in each worker process that ends by itself."""
        return self.registry.add_hook(self.registry.process_stop, hook)

    def on_completed_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what each completed job of a kind puts in, in the same transaction; also a decorator.

        `target` is the args type of a task, or the name of its kind. `function(args, job)` returns args, an
        EnqueueRequest, or None for nothing. One that raises undoes the completion: the attempt fails and tries again.
        Several are called in the order of registration. Errors: RegistrationError.
        """
        return self._spec(target, Trigger.COMPLETED, function)

    def on_retried_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what comes of an attempt that failed and will be retried: `function(args, job, error, attempt,
        next_run_at)`. Where it raises, the retry goes on without."""
        return self._spec(target, Trigger.RETRIED, function)

    def on_exhausted_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what comes of a job that has failed for good: `function(args, job, error, attempt)`. Where it raises,
        the job ends without, with the reason follow_up_failed."""
        return self._spec(target, Trigger.EXHAUSTED, function)

    def on_cancelled_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what comes of a cancelled job: `function(args, job, reason)`. Where it raises, a cancel by the handler
        is undone as a failed attempt, and `Client.cancel` raises and changes nothing."""
        return self._spec(target, Trigger.CANCELLED, function)

    def on_waiting_for_callback_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what comes of a job that parks until a callback: `function(args, job)`."""
        return self._spec(target, Trigger.WAITING_FOR_CALLBACK, function)

    def on_rescued_enqueue(self, target: Any, function: F | None = None) -> Any:
        """Register what comes of an attempt that was rescued: `function(args, job, rescue_reason)`; the reason is
        stale_heartbeat, deadline_exceeded or expired_callback."""
        return self._spec(target, Trigger.RESCUED, function)

    def on_event(self, args_type: Any) -> Callable[[F], F]:
        """Register who is told of the jobs of a task, by its args type: `function(event)`, after the commit, at most once.

        The events stand in `awa_pool.hooks` (docs/hooks.md). Errors: RegistrationError.
        """
        return self._event_hook(args_type, "on_event")

    def on_event_kind(self, kind: str) -> Callable[[F], F]:
        """Register who is told of the jobs of a kind, by its name; as `on_event`."""
        return self._event_hook(kind, "on_event_kind")

    def _event_hook(self, target: Any, decorator: str) -> Callable[[F], F]:
        checked_target(target, decorator)

        def register(function: F) -> F:
            self.registry.triggers.add_hook(target, function)
            return function

        return register

    def _spec(self, target: Any, trigger: Trigger, function: Any) -> Any:
        checked_target(target, f"on_{trigger}_enqueue")

        def register(spec: F) -> F:
            self.registry.add_spec(target, trigger, spec)
            return spec

        return register if function is None else register(function)

    def run(self, **options: Any) -> int:
        """Run a pool for this client's tasks until it is stopped; returns the exit status.

        Options are those of the command line: workers=4, drain=True, queues=["mail", "mail:4"], …
        Errors: ConfigError for an option that does not exist or is out of range.
        """
        supervisor = importlib.import_module(
            "awa_pool.supervisor"
        )  # a floor above: known only when it is used
        status: int = supervisor.run_client(self, **options)
        return status

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(schema={self.schema!r}, tasks={list(self.registry.tasks)})"

    def _found_dsn(self) -> str:
        for dsn in (self.dsn, *(os.environ.get(name) for name in DSN_VARIABLES)):
            if dsn:
                return dsn
        raise ConfigError(f"no database: give Client(dsn), or set {' or '.join(DSN_VARIABLES)}")
