"""The `Job` that handlers of a worker see: as everywhere, and able to stage follow-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from awa_pool.job import Job
from awa_pool.registry import Registry

if TYPE_CHECKING:  # loaded by the first handler that stages
    from awa_pool.follow_ups import StagingBuffer
    from awa_pool.hooks import JobEvent

    from .events import Piece
    from .reporting import Reporter

TRACEPARENT = "awa:traceparent"


class Attempt(Job[Any]):
    """A job with what a worker has to remember of it while it runs."""

    __slots__ = ("_began_s", "_piece", "_told")
    _began_s: float
    """Set where the kind has hooks."""
    _piece: Piece | None
    """The piece that it is of; None once it is settled."""
    _told: list[JobEvent]
    """Set by an owed outcome: what hooks are to hear of the job it is about."""


def job_type_of(registry: Registry, reporter: Reporter | None) -> type[Attempt]:
    """Return the class of the jobs of an app: what they stage is validated by its registry."""

    class Ours(Attempt):
        __slots__ = ()
        _registry: ClassVar[Registry] = registry
        _reporter: ClassVar[Reporter | None] = reporter

        def _open_staging(self) -> StagingBuffer:
            from awa_pool.follow_ups import StagingBuffer

            return StagingBuffer(self._registry, self.id, self.metadata.get(TRACEPARENT))

        def _say_progress(self, *, at_once: bool) -> None:
            if self._reporter is not None:
                self._reporter.say(self, at_once=at_once)

    Ours.__name__ = Ours.__qualname__ = "Job"
    return Ours
