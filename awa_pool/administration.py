"""What both clients do with dead jobs and with queues: two doors to the same statements and steps."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, Unpack

from . import validation as gate
from .body import INT64
from .dead_letters import (
    ENDED_STATES,
    BulkResult,
    DeadCount,
    DeadFilter,
    DeadJob,
    QueueSettings,
    Refused,
    Which,
    bulk_filter,
    checked_cursor,
    checked_reason,
    filter_of,
)
from .declarations import Declarations
from .errors import JobNotFound, TransitionRefused, ValidationError
from .job import JobRow

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .store.asynchronous import AsyncConn
    from .store.calls import Call
    from .store.dead import Steps
    from .store.store import Conn

T = TypeVar("T")
PAGE_JOBS = 1000
RETENTION_S = (1.0, 3_155_760_000.0)


class _Nothing(Enum):
    UNSET = "unset"


_Unset = Literal[_Nothing.UNSET]
UNSET: Final = _Nothing.UNSET


class Administration(Declarations):
    """The part of `Client` that looks after dead jobs and queues."""

    def list_dead(
        self,
        *,
        limit: int = 100,
        cursor: tuple[datetime, int] | None = None,
        conn: Conn | None = None,
        **which: Unpack[Which],
    ) -> list[DeadJob]:
        """Return dead jobs, the newest death first, at most `limit` (to 1000); page on with the last one's `cursor`.

        `after` (included) and `before` bound the time of death. Args and errors are cut: `get_job` has them whole.
        """
        chosen = filter_of(**which)
        return self._run(_list_call(chosen, limit, cursor), conn)

    def count_dead(
        self,
        *,
        conn: Conn | None = None,
        **which: Unpack[Which],
    ) -> DeadCount:
        """Return how many dead jobs a filter takes in, by reason: the preview of an action on all of them."""
        from .store import dead

        chosen = filter_of(**which)
        return self._run(dead.count_dead(chosen), conn)

    def retry_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        run_at: datetime | None = None,
        priority: int | None = None,
        to_queue: str | None = None,
        conn: Conn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Give dead jobs all their attempts again: same id, errors, metadata and tags; progress goes.

        Names them by id, or by a filter as of `list_dead`; every one only with `all=True`. They are available at once,
        or at `run_at`; `priority` and `to_queue` change them on the way. Works in steps of some hundred jobs, each a
        transaction: after an error, call it again, and it goes on with the rest.
        Errors: for a single id JobNotFound and TransitionRefused; of several, refused ones stand in the result.
        """
        chosen = bulk_filter(job_ids, all=all, **which)
        result = self._drive(_retry_steps(chosen, run_at, priority, to_queue), conn)
        if isinstance(job_ids, int) and result.refused:
            _refuse(result.refused[0], self._run(_look(job_ids), conn))
        return result

    def purge_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        conn: Conn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Delete dead jobs for good. Names them as `retry_dead` does, with the same steps and errors."""
        chosen = bulk_filter(job_ids, all=all, **which)
        result = self._drive(_purge_steps(chosen), conn)
        if isinstance(job_ids, int) and result.refused:
            _refuse(result.refused[0], self._run(_look(job_ids), conn))
        return result

    def move_to_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        state: str = "failed",
        all: bool = False,
        why: str = "manual",
        conn: Conn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Move jobs into the dead letter queue by hand; `why` becomes their reason.

        By id: any job that neither runs nor has completed. By a filter: jobs of the history in `state`, failed or
        cancelled; `reason`, `after` and `before` are about their end. Steps and errors as of `retry_dead`.
        """
        chosen = bulk_filter(job_ids, all=all, **which)
        if isinstance(job_ids, int):
            self._run(_move_call(job_ids, why), conn)
            return BulkResult(done=1)
        return self._drive(_move_steps(chosen, state, why), conn)

    def set_queue(
        self,
        queue: str,
        *,
        deadline: float | timedelta | _Unset | None = UNSET,
        dlq: bool | _Unset | None = UNSET,
        dlq_retention: float | timedelta | _Unset | None = UNSET,
        conn: Conn | None = None,
    ) -> QueueSettings:
        """Change settings of a queue, those given; None puts one back to its default. Returns all of them.

        `deadline`: seconds or a timedelta that an attempt may take. `dlq`: whether jobs that fail go to the dead letter
        queue (they do by default). `dlq_retention`: how long they are kept there (default: the pool's, 30 days).
        """
        return self._run(_set_queue_call(queue, deadline, dlq, dlq_retention), conn)

    def pause_queue(self, queue: str, *, conn: Conn | None = None) -> None:
        """Stop claims of a queue on all hosts; what runs goes on.

        Errors: ValidationError for a name that no job, task, setting or waiting pool knows.
        """
        from .store import statements as do

        self._run(do.pause_queue(gate.checked_queue(queue), known=queue in self.registry.queues()), conn)

    def resume_queue(self, queue: str, *, conn: Conn | None = None) -> None:
        """Let claims of a queue go on. Errors: as `pause_queue`."""
        from .store import statements as do

        self._run(do.resume_queue(gate.checked_queue(queue), known=queue in self.registry.queues()), conn)

    def _drive(self, steps: Steps, conn: Conn | None) -> BulkResult:
        from .store.dead import run_steps

        return run_steps(steps, lambda call: self._run(call, conn))

    def _run(self, call: Call[T], conn: Conn | None) -> T:
        raise NotImplementedError


class AsyncAdministration(Declarations):
    """The part of `AsyncClient` that looks after dead jobs and queues."""

    async def list_dead(
        self,
        *,
        limit: int = 100,
        cursor: tuple[datetime, int] | None = None,
        conn: AsyncConn | None = None,
        **which: Unpack[Which],
    ) -> list[DeadJob]:
        """Return dead jobs, the newest death first, at most `limit` (to 1000). See `Client.list_dead`."""
        chosen = filter_of(**which)
        return await self._run(_list_call(chosen, limit, cursor), conn)

    async def count_dead(
        self,
        *,
        conn: AsyncConn | None = None,
        **which: Unpack[Which],
    ) -> DeadCount:
        """Return how many dead jobs a filter takes in, by reason. See `Client.count_dead`."""
        from .store import dead

        chosen = filter_of(**which)
        return await self._run(dead.count_dead(chosen), conn)

    async def retry_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        run_at: datetime | None = None,
        priority: int | None = None,
        to_queue: str | None = None,
        conn: AsyncConn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Give dead jobs all their attempts again. See `Client.retry_dead`."""
        chosen = bulk_filter(job_ids, all=all, **which)
        result = await self._drive(_retry_steps(chosen, run_at, priority, to_queue), conn)
        if isinstance(job_ids, int) and result.refused:
            _refuse(result.refused[0], await self._run(_look(job_ids), conn))
        return result

    async def purge_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        all: bool = False,
        conn: AsyncConn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Delete dead jobs for good. See `Client.purge_dead`."""
        chosen = bulk_filter(job_ids, all=all, **which)
        result = await self._drive(_purge_steps(chosen), conn)
        if isinstance(job_ids, int) and result.refused:
            _refuse(result.refused[0], await self._run(_look(job_ids), conn))
        return result

    async def move_to_dead(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        state: str = "failed",
        all: bool = False,
        why: str = "manual",
        conn: AsyncConn | None = None,
        **which: Unpack[Which],
    ) -> BulkResult:
        """Move jobs into the dead letter queue by hand. See `Client.move_to_dead`."""
        chosen = bulk_filter(job_ids, all=all, **which)
        if isinstance(job_ids, int):
            await self._run(_move_call(job_ids, why), conn)
            return BulkResult(done=1)
        return await self._drive(_move_steps(chosen, state, why), conn)

    async def set_queue(
        self,
        queue: str,
        *,
        deadline: float | timedelta | _Unset | None = UNSET,
        dlq: bool | _Unset | None = UNSET,
        dlq_retention: float | timedelta | _Unset | None = UNSET,
        conn: AsyncConn | None = None,
    ) -> QueueSettings:
        """Change settings of a queue, those given. See `Client.set_queue`."""
        return await self._run(_set_queue_call(queue, deadline, dlq, dlq_retention), conn)

    async def pause_queue(self, queue: str, *, conn: AsyncConn | None = None) -> None:
        """Stop claims of a queue on all hosts. See `Client.pause_queue`."""
        from .store import statements as do

        await self._run(
            do.pause_queue(gate.checked_queue(queue), known=queue in self.registry.queues()), conn
        )

    async def resume_queue(self, queue: str, *, conn: AsyncConn | None = None) -> None:
        """Let claims of a queue go on. See `Client.resume_queue`."""
        from .store import statements as do

        await self._run(
            do.resume_queue(gate.checked_queue(queue), known=queue in self.registry.queues()), conn
        )

    async def _drive(self, steps: Steps, conn: AsyncConn | None) -> BulkResult:
        answer = None
        while True:
            try:
                call = steps.send(answer)
            except StopIteration as end:
                result: BulkResult = end.value
                return result
            answer = await self._run(call, conn)

    async def _run(self, call: Call[T], conn: AsyncConn | None) -> T:
        raise NotImplementedError


def _list_call(chosen: DeadFilter, limit: int, cursor: Any) -> Call[list[DeadJob]]:
    from .store import dead

    return dead.list_dead(chosen, gate.checked_int(limit, (1, PAGE_JOBS), "limit"), checked_cursor(cursor))


def _retry_steps(chosen: DeadFilter, run_at: Any, priority: int | None, to_queue: str | None) -> Steps:
    from .store import dead

    return dead.retry_dead(
        chosen, BulkResult(),
        run_at=gate.checked_run_at(run_at),
        priority=None if priority is None else gate.checked_priority(priority),
        queue=None if to_queue is None else gate.checked_name(to_queue, "to_queue"),
    )  # fmt: skip


def _purge_steps(chosen: DeadFilter) -> Steps:
    from .store import dead

    return dead.purge_dead(chosen, BulkResult())


def _move_steps(chosen: DeadFilter, state: str, why: str) -> Steps:
    from .store import dead

    if state not in ENDED_STATES:
        raise ValidationError(f"expected one of {', '.join(ENDED_STATES)}", path="state")
    return dead.move_many_to_dead(chosen, str(state), checked_reason(why), BulkResult())


def _move_call(job_id: int, why: str) -> Call[str]:
    from .store import dead

    return dead.move_to_dead(gate.checked_int(job_id, INT64, "job_ids"), checked_reason(why))


def _look(job_id: int) -> Call[JobRow | None]:
    from .store import inspecting

    return inspecting.job(job_id)


def _refuse(refused: Refused, found: JobRow | None) -> NoReturn:
    """Say why the one job that was named stayed where it was."""
    if found is None:
        raise JobNotFound(f"no job has the id {refused.job_id}")
    state = "" if found.dead else f" (it is {found.state})"
    raise TransitionRefused(f"job {refused.job_id} stays as it is: {refused.why}{state}")


def _set_queue_call(queue: str, deadline: Any, dlq: Any, dlq_retention: Any) -> Call[QueueSettings]:
    from .store import dead

    given: dict[str, Any] = {}
    if deadline is not UNSET:
        given["deadline_s"] = None if deadline is None else gate.checked_deadline_s(deadline)
    if dlq is not UNSET:
        if dlq is not None and not isinstance(dlq, bool):
            raise ValidationError(f"expected True, False or None, got {type(dlq).__name__}", path="dlq")
        given["dlq"] = dlq
    if dlq_retention is not UNSET:
        path = "dlq_retention"
        given["dlq_retention_s"] = (
            None if dlq_retention is None else gate.checked_seconds(dlq_retention, RETENTION_S, path)
        )
    return dead.set_queue(gate.checked_queue(queue), given)
