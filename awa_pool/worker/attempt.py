"""The `Job` that handlers of a worker see: as everywhere, and able to stage follow-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from awa_pool.job import Job
from awa_pool.registry import Registry

if TYPE_CHECKING:  # loaded by the first handler that stages
    from awa_pool.follow_ups import StagingBuffer

TRACEPARENT = "awa:traceparent"


def job_type_of(registry: Registry) -> type[Job[Any]]:
    """Return the class of the jobs of an app: what they stage is validated by its registry."""

    class Attempt(Job[Any]):
        __slots__ = ()
        _registry: ClassVar[Registry] = registry

        def _open_staging(self) -> StagingBuffer:
            from awa_pool.follow_ups import StagingBuffer

            return StagingBuffer(self._registry, self.id, self.metadata.get(TRACEPARENT))

    Attempt.__name__ = Attempt.__qualname__ = "Job"
    return Attempt
