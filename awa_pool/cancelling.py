"""An outcome that a client brings about (a cancel, an answer to a callback) and for which its app has registered something:
follow-ups in the same transaction, hooks after it.

Both clients drive the same steps on a connection: a step yields a call and is sent its answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from . import validation as gate
from .administration import Administration, AsyncAdministration
from .body import INT64
from .declarations import Declarations
from .errors import AwaError, DecodeError, FollowUpFailed, StoreRefused
from .inserting import key_to_cancel, note_skips
from .job import Job, JobRow
from .states import State, Trigger

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .specs import Event
    from .store.asynchronous import AsyncConn, AsyncStore
    from .store.calls import Call
    from .store.store import Conn, Store

Steps = Generator["Call[Any]", Any, "Told"]


class OutcomeTold(Protocol):
    """What the database says of an outcome: of which job, None where there was none; whether the caller sees to follow-ups."""

    @property
    def job_id(self) -> int | None: ...
    @property
    def told(self) -> bool: ...


TellingCall = Callable[[list[str], list[str]], "Call[Any]"]
"""Of kinds and owed kinds: the call whose answer is an `OutcomeTold`."""


class Told(NamedTuple):
    """What the database has answered, and the row of the job where this app's hooks are to hear of it."""

    answer: Any
    tell: JobRow | None


_WORDS = {
    Trigger.CANCELLED: "cancelled",
    Trigger.COMPLETED: "completed",
    Trigger.EXHAUSTED: "failed",
    Trigger.RETRIED: "run again",
}


def interested_kinds(client: Declarations, trigger: Trigger) -> list[str]:
    """Return the kinds of which this app wants to know that a job has come to that outcome."""
    triggers, tasks = client.registry.triggers, client.registry.tasks.values()
    wanted = triggers.wanted((task.kind, task.args_type) for task in tasks)
    return [kind for kind, outcomes in wanted.items() if trigger in outcomes]


def outcome_steps(client: Declarations, trigger: Trigger, call: TellingCall, *, ours: bool) -> Steps:
    """Bring the outcome about by `call`, and put in what the app's specs return, all in one transaction.

    `ours`: the transaction ends with these steps, so hooks can be told afterwards; else a worker tells them.
    Errors: FollowUpFailed, after which the transaction has to be undone.
    """
    from .store import cancels, inspecting

    kinds = interested_kinds(client, trigger)
    tasks = client.registry.tasks
    hooked = [kind for kind in kinds if client.registry.triggers.hooks(kind, tasks[kind].args_type)]
    done = yield call(kinds, [] if ours else hooked)
    if not done.told:
        return Told(done, None)
    row = yield inspecting.job(done.job_id)
    texts = _follow_ups(client, trigger, row)
    if texts:
        try:
            skipped = yield cancels.put_follow_ups(b"[%s]" % b",".join(texts))
        except StoreRefused as refused:
            raise FollowUpFailed(
                f"job {row.id} is not {_WORDS[trigger]}: a follow-up could not be stored: {refused}"
            ) from refused
        note_skips(client, skipped)
    return Told(done, row if ours and row.kind in hooked else None)


def tell_hooks(client: Declarations, trigger: Trigger, row: JobRow | None) -> None:
    """Call the hooks of a job that has come to an outcome; what they raise is logged."""
    if row is not None:
        from . import hooks

        task = client.registry.tasks[row.kind]
        event = hooks.job_event(_event(trigger, row), _job_of(client, row))
        assert event is not None
        hooks.call_hooks(client.registry.triggers, task.args_type, event)


def _event(trigger: Trigger, row: JobRow) -> Event:
    """Return what has become of the job, as its row tells."""
    from . import specs

    match trigger:
        case Trigger.EXHAUSTED:
            error = row.errors[-1].get("error") if row.errors else row.reason
            return specs.Event(trigger, error=str(error), attempt=row.attempt)
        case Trigger.RETRIED:
            return specs.Event(
                trigger, error="retried_by_callback", attempt=row.attempt, next_run_at=datetime.now(UTC)
            )
    return specs.Event(trigger, attempt=row.attempt, reason=row.reason)


def _follow_ups(client: Declarations, trigger: Trigger, row: JobRow) -> list[bytes]:
    from . import specs

    task = client.registry.tasks[row.kind]
    try:
        made = specs.evaluate(client.registry, _event(trigger, row), _job_of(client, row), task.args_type)
    except specs.SpecFailed as failed:
        cause = failed.cause
        raise FollowUpFailed(
            f"job {row.id} is not {_WORDS[trigger]}: {failed.name} raised {type(cause).__name__}: {cause}",
            spec=failed.name,
        ) from cause
    return [sealed.text for sealed in made]


def _job_of(client: Declarations, row: JobRow) -> Job[Any]:
    """Return the job as a spec sees it; args that do not decode come as they are stored."""
    try:
        args = client.registry.decode_args(client.registry.tasks[row.kind], row.args)
    except DecodeError:
        args = row.args
    extra = {
        "metadata": row.metadata,
        "tags": row.tags,
        "snoozes": row.snoozes,
        "ordering_key": row.ordering_key,
        "progress": row.progress,
    }
    return Job(
        args, row.id, row.kind, row.attempt, row.max_attempts, row.queue, row.priority, row.run_lease, extra
    )


class Cancelling(Administration):
    """The part of `Client` that cancels jobs."""

    def cancel(self, job_id: int, *, conn: Conn | None = None) -> State:
        """Cancel a job; returns its new state. A running attempt can no longer change it.

        What this client's app registered with `on_cancelled_enqueue` is put in in the same transaction; its hooks are
        called afterwards, with `conn=` by a worker once it is committed.
        Errors: JobNotFound; TransitionRefused when the job has ended; FollowUpFailed, and nothing has changed; StoreConflict
        when another transaction holds the job for 2 s.
        """
        from .store import cancels
        from .store import statements as do

        job_id = gate.checked_int(job_id, INT64, "job_id")
        if interested_kinds(self, Trigger.CANCELLED):
            self._told(Trigger.CANCELLED, partial(cancels.cancel_told, job_id), conn)
            return State.CANCELLED
        return State(self._run(do.cancel(job_id), conn))

    def cancel_by_unique_key(
        self,
        kind: str,
        *,
        queue: str | None = None,
        args: Any = None,
        by_period: int | timedelta | None = None,
        conn: Conn | None = None,
    ) -> int | None:
        """Cancel the job that holds the key of exactly these parts; returns its id, or None where none is live.

        Give `queue` for jobs put in with by_queue, `args` unless they were with by_args=False. Follow-ups and errors
        as of `cancel`.
        """
        from .store import cancels, unique

        key = key_to_cancel(kind, queue, args, by_period)
        if kind in interested_kinds(self, Trigger.CANCELLED):
            done = self._told(Trigger.CANCELLED, partial(cancels.cancel_by_key_told, key), conn)
            return cast("int | None", done.job_id)
        return self._run(unique.cancel_by_key(key), conn)

    def _store(self, conn: Conn | None) -> contextlib.AbstractContextManager[Store]:
        raise NotImplementedError

    def _told(self, trigger: Trigger, call: TellingCall, conn: Conn | None) -> Any:
        from .store.store import is_in_transaction

        with self._store(conn) as store:
            steps = outcome_steps(self, trigger, call, ours=not is_in_transaction(store.conn))
            with store.undone_if_it_fails():
                done = drive(steps, store)
        tell_hooks(self, trigger, done.tell)
        return done.answer


class AsyncCancelling(AsyncAdministration):
    """The part of `AsyncClient` that cancels jobs."""

    async def cancel(self, job_id: int, *, conn: AsyncConn | None = None) -> State:
        """Cancel a job; returns its new state. See `Client.cancel`."""
        from .store import cancels
        from .store import statements as do

        job_id = gate.checked_int(job_id, INT64, "job_id")
        if interested_kinds(self, Trigger.CANCELLED):
            await self._told(Trigger.CANCELLED, partial(cancels.cancel_told, job_id), conn)
            return State.CANCELLED
        return State(await self._run(do.cancel(job_id), conn))

    async def cancel_by_unique_key(
        self,
        kind: str,
        *,
        queue: str | None = None,
        args: Any = None,
        by_period: int | timedelta | None = None,
        conn: AsyncConn | None = None,
    ) -> int | None:
        """Cancel the job that holds the key of exactly these parts. See `Client.cancel_by_unique_key`."""
        from .store import cancels, unique

        key = key_to_cancel(kind, queue, args, by_period)
        if kind in interested_kinds(self, Trigger.CANCELLED):
            done = await self._told(Trigger.CANCELLED, partial(cancels.cancel_by_key_told, key), conn)
            return cast("int | None", done.job_id)
        return await self._run(unique.cancel_by_key(key), conn)

    def _store(self, conn: AsyncConn | None) -> contextlib.AbstractAsyncContextManager[AsyncStore]:
        raise NotImplementedError

    async def _told(self, trigger: Trigger, call: TellingCall, conn: AsyncConn | None) -> Any:
        import asyncio

        from .store.store import is_in_transaction

        async with self._store(conn) as store:
            steps = outcome_steps(self, trigger, call, ours=not is_in_transaction(store.conn))
            async with store.undone_if_it_fails():
                done = await drive_async(steps, store)
        if done.tell is not None:  # hooks are plain functions, which may block
            await asyncio.to_thread(tell_hooks, self, trigger, done.tell)
        return done.answer


def drive(steps: Steps, store: Store) -> Told:
    """Take the steps on a connection."""
    try:
        call = next(steps)
        while True:
            try:
                answer = store.run(call)
            except AwaError as problem:
                call = steps.throw(problem)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        done: Told = end.value
        return done


async def drive_async(steps: Steps, store: AsyncStore) -> Told:
    """Take the steps on a connection."""
    try:
        call = next(steps)
        while True:
            try:
                answer = await store.run(call)
            except AwaError as problem:
                call = steps.throw(problem)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        done: Told = end.value
        return done
