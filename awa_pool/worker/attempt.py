"""The `Job` that handlers of a worker see: as everywhere, and able to stage follow-ups and to register callbacks."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from awa_pool.job import Job
from awa_pool.registry import Registry
from awa_pool.tokens import CallbackToken, Registered, Rules, checked_rules, checked_timeout_s
from awa_pool.tracing import TRACEPARENT

if TYPE_CHECKING:  # loaded by the first handler that completes its job, or stages
    from awa_pool.completing import Completing, Completion
    from awa_pool.follow_ups import StagingBuffer
    from awa_pool.hooks import JobEvent

    from .events import Piece
    from .registering import Registrar
    from .reporting import Reporter
    from .seats import Seat
    from .waiting import Wait


class Attempt(Job[Any]):
    """A job with what a worker has to remember of it while it runs."""

    __slots__ = (
        "_asked",
        "_began_s",
        "_completion",
        "_left",
        "_piece",
        "_seat",
        "_told",
        "_wait",
        "_waited_for",
    )
    _asked: int
    """How many callbacks its handler has asked for."""
    _began_s: float
    """Set where the kind has hooks."""
    _completion: Completion
    """Set by the first use of `completing`."""
    _left: CallbackToken | str | None
    """The callback that its handler registered last, until it waits for one; a text where it asked for a wait that has not begun."""
    _piece: Piece | None
    """The piece that it is of; None once it is settled."""
    _seat: Seat
    """Set in the async lane."""
    _wait: Wait | None
    """The wait of its handler, while there is one."""
    _waited_for: str
    """The id of the callback that its handler has waited for last."""
    _told: list[JobEvent]
    """Set by an owed outcome: what hooks are to hear of the job it is about."""


NOT_AWAITED = "`job.wait_for_callback(…)` was not awaited: its handler waited for nothing"


def job_type_of(
    registry: Registry, reporter: Reporter | None, registrar: Registrar | None, settled: set[str]
) -> type[Attempt]:
    """Return the class of the jobs of an app: what they stage is validated by its registry.

    To `settled` the kinds whose handlers register callbacks are added: how they end is to be looked at.
    """

    class Ours(Attempt):
        __slots__ = ()
        _registry: ClassVar[Registry] = registry
        _reporter: ClassVar[Reporter | None] = reporter
        _registrar: ClassVar[Registrar | None] = registrar

        def completing(self, conn: Any) -> Completing:
            from .leasing import completing

            if self._registrar is None:
                return super().completing(conn)
            return completing(self, self._registrar, self._registry.tasks.get(self.kind), conn)

        def _open_staging(self) -> StagingBuffer:
            from awa_pool.follow_ups import StagingBuffer

            task = self._registry.tasks.get(self.kind)
            if task is not None and task.caller_completes:
                from .leasing import refuse_staging

                raise refuse_staging(self)

            return StagingBuffer(self._registry, self.id, self.metadata.get(TRACEPARENT))

        def _say_progress(self, *, at_once: bool) -> None:
            if self._reporter is not None:
                self._reporter.say(self, at_once=at_once)

        def register_callback(
            self,
            timeout_seconds: float | timedelta,
            *,
            filter: str | None = None,
            on_complete: str | None = None,
            on_fail: str | None = None,
            transform: str | None = None,
        ) -> CallbackToken:
            timeout_s = checked_timeout_s(timeout_seconds)
            rules = checked_rules(filter, on_complete, on_fail, transform)
            registrar = self._registrar
            if registrar is None:
                return super().register_callback(timeout_seconds)
            settled.add(self.kind)
            attempt = (self.id, self.run_lease)
            task = self._registry.tasks.get(self.kind)
            if task is not None and task.is_async:
                registering = partial(self._registering, timeout_s, rules)
                self._left = CallbackToken(attempt, timeout_s, registering=registering, rules=rules)
                return self._left
            registered = registrar.register(self, timeout_s, rules)
            self._note(registered)
            self._left = CallbackToken(attempt, timeout_s, registered, rules=rules)
            return self._left

        async def _registering(self, timeout_s: float, rules: Rules) -> Registered:
            assert self._registrar is not None
            registered = await self._registrar.register_async(self, timeout_s, rules)
            self._note(registered)
            return registered

        def wait_for_callback(self, token: CallbackToken) -> Any:
            registrar = self._registrar
            if registrar is None:
                return super().wait_for_callback(token)
            from .waiting import wait, wait_async

            task = self._registry.tasks.get(self.kind)
            if task is not None and task.is_async:
                self._left = NOT_AWAITED  # until the coroutine begins
                return wait_async(registrar, self, token)
            self._left = None
            return wait(registrar, self, task, token)

        def _note(self, registered: Registered) -> None:
            text, number = registered
            self._newest = max(getattr(self, "_newest", (0, "")), (number, text))

    Ours.__name__ = Ours.__qualname__ = "Job"
    return Ours
