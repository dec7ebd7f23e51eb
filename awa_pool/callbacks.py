"""Answers to callbacks, from outside: what a client may send, and the two doors that send it."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from . import validation as gate
from .cancelling import AsyncCancelling, Cancelling, TellingCall, interested_kinds
from .errors import CallbackNotFound, ValidationError
from .states import Trigger
from .tokens import checked_timeout_s, is_callback_id

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .store.asynchronous import AsyncConn
    from .store.callbacks import Answered
    from .store.calls import Call
    from .store.store import Conn

PAYLOAD_BYTES = 1024 * 1024
_SHOWN_CHARS = 36


def checked_callback_id(value: Any) -> str:
    """Return the id of a callback, given as text or UUID.

    Errors: ValidationError for another type; CallbackNotFound for text that no callback has for an id.
    """
    if isinstance(value, UUID):
        return str(value)
    if type(value) is not str:
        raise ValidationError(f"expected text, got {type(value).__name__}", path="callback_id")
    if not is_callback_id(value):
        raise CallbackNotFound(f"no callback waits for an answer under the id {value[:_SHOWN_CHARS]!a}")
    return value


def checked_payload(value: Any) -> bytes:
    """Return the JSON text of a payload, None as null; ValidationError with the path of what JSON cannot carry exactly."""
    return gate.exact_json(value, "payload", PAYLOAD_BYTES)


def checked_error(value: Any) -> str:
    """Return what went wrong as text that can be stored; the database keeps its first 4096 bytes."""
    if type(value) is not str:
        raise ValidationError(f"expected text, got {type(value).__name__}", path="error")
    if not value.strip():
        raise ValidationError("say what went wrong", path="error")
    gate.check_text(value, "error")
    return value


class Answer(NamedTuple):
    """An answer that ends the attempt: what it comes to, the call for clients that want to know nothing of it, and that for the others."""

    trigger: Trigger
    plain: Call[Answered]
    told: TellingCall


def completing(checked: str, text: bytes) -> Answer:
    """Return the answer that completes the job, of an id and a payload's JSON text that are checked."""
    from .store import callbacks

    return Answer(
        Trigger.COMPLETED,
        callbacks.complete_external(checked, text, False),
        partial(callbacks.answer_told, checked, "complete", text, ""),
    )


def failing(checked: str, text: str) -> Answer:
    """Return the answer that fails the job, of an id and an error that are checked."""
    from .store import callbacks

    return Answer(
        Trigger.EXHAUSTED,
        callbacks.fail_external(checked, text),
        partial(callbacks.answer_told, checked, "fail", b"null", text),
    )


def _retrying(callback_id: Any) -> Answer:
    from .store import callbacks

    checked = checked_callback_id(callback_id)
    return Answer(
        Trigger.RETRIED,
        callbacks.retry_external(checked),
        partial(callbacks.answer_told, checked, "retry", b"null", ""),
    )


def _resuming(callback_id: Any, payload: Any, conn: Conn | AsyncConn | None) -> Call[Answered]:
    from .store import callbacks
    from .store.store import is_alone

    checked, text = checked_callback_id(callback_id), checked_payload(payload)
    return callbacks.resume_external(checked, text, alone=conn is None or is_alone(conn))


def _checked_resume(resume: Any) -> bool:
    if type(resume) is not bool:
        raise ValidationError(f"expected True or False, got {type(resume).__name__}", path="resume")
    return resume


class Answering(Cancelling):
    """The part of `Client` that answers callbacks.

    Every id counts once: an unknown, malformed, spent or older one raises CallbackNotFound, and nothing changes. With
    `conn=` an answer is given when the caller's transaction commits; until then another sender of the same id waits.
    What this client's app registered for what the answer brings about (completed, exhausted, retried) is put in in the same
    transaction, and hooks are told after it, as of a cancel. Errors of every answer: FollowUpFailed, and nothing has changed.
    """

    def resume_external(
        self, callback_id: str | UUID, payload: Any = None, *, conn: Conn | None = None
    ) -> Answered:
        """Answer a callback: the job goes on, with this payload (JSON of at most 1 MiB).

        A handler that has not begun to wait gets it when it does. A parked job becomes available, in the same attempt.
        Errors: CallbackNotFound; UniqueConflict when another job holds a parked job's unique key: send it again later.
        """
        return self._run(_resuming(callback_id, payload, conn), conn)

    def complete_external(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        resume: bool = False,
        *,
        conn: Conn | None = None,
    ) -> Answered:
        """Answer a callback: the job is completed, whatever its handler still does. With `resume` it is `resume_external`."""
        if _checked_resume(resume):
            return self.resume_external(callback_id, payload, conn=conn)
        return self._answer(completing(checked_callback_id(callback_id), checked_payload(payload)), conn)

    def fail_external(self, callback_id: str | UUID, error: str, *, conn: Conn | None = None) -> Answered:
        """Answer a callback: the job has failed for good, with this error and the reason callback_failed."""
        return self._answer(failing(checked_callback_id(callback_id), checked_error(error)), conn)

    def retry_external(self, callback_id: str | UUID, *, conn: Conn | None = None) -> Answered:
        """Answer a callback: the job runs again from the top, now, with all its attempts. Only while it waits."""
        return self._answer(_retrying(callback_id), conn)

    def heartbeat_callback(
        self, callback_id: str | UUID, timeout_seconds: float | timedelta, *, conn: Conn | None = None
    ) -> datetime:
        """Let a callback time out so many seconds from now; returns when that is. Only while the job waits."""
        from .store import callbacks

        timeout_s = checked_timeout_s(timeout_seconds)
        return self._run(callbacks.heartbeat_callback(checked_callback_id(callback_id), timeout_s), conn)

    def _answer(self, answer: Answer, conn: Conn | None) -> Answered:
        from .store.callbacks import Answered

        if not interested_kinds(self, answer.trigger):
            return self._run(answer.plain, conn)
        return Answered(*self._told(answer.trigger, answer.told, conn)[:3])


class AsyncAnswering(AsyncCancelling):
    """The part of `AsyncClient` that answers callbacks; see `Answering`."""

    async def resume_external(
        self, callback_id: str | UUID, payload: Any = None, *, conn: AsyncConn | None = None
    ) -> Answered:
        """Answer a callback: the job goes on. See `Client.resume_external`."""
        return await self._run(_resuming(callback_id, payload, conn), conn)

    async def complete_external(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        resume: bool = False,
        *,
        conn: AsyncConn | None = None,
    ) -> Answered:
        """Answer a callback: the job is completed. See `Client.complete_external`."""
        if _checked_resume(resume):
            return await self.resume_external(callback_id, payload, conn=conn)
        return await self._answer(
            completing(checked_callback_id(callback_id), checked_payload(payload)), conn
        )

    async def fail_external(
        self, callback_id: str | UUID, error: str, *, conn: AsyncConn | None = None
    ) -> Answered:
        """Answer a callback: the job has failed for good. See `Client.fail_external`."""
        return await self._answer(failing(checked_callback_id(callback_id), checked_error(error)), conn)

    async def retry_external(self, callback_id: str | UUID, *, conn: AsyncConn | None = None) -> Answered:
        """Answer a callback: the job runs again from the top. See `Client.retry_external`."""
        return await self._answer(_retrying(callback_id), conn)

    async def heartbeat_callback(
        self, callback_id: str | UUID, timeout_seconds: float | timedelta, *, conn: AsyncConn | None = None
    ) -> datetime:
        """Let a callback time out so many seconds from now. See `Client.heartbeat_callback`."""
        from .store import callbacks

        timeout_s = checked_timeout_s(timeout_seconds)
        return await self._run(
            callbacks.heartbeat_callback(checked_callback_id(callback_id), timeout_s), conn
        )

    async def _answer(self, answer: Answer, conn: AsyncConn | None) -> Answered:
        from .store.callbacks import Answered

        if not interested_kinds(self, answer.trigger):
            return await self._run(answer.plain, conn)
        return Answered(*(await self._told(answer.trigger, answer.told, conn))[:3])
