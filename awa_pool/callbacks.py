"""Answers to callbacks, from outside: what a client may send, and the two doors that send it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from . import validation as gate
from .cancelling import AsyncCancelling, Cancelling
from .errors import CallbackNotFound, ValidationError
from .tokens import checked_timeout_s

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .store.asynchronous import AsyncConn
    from .store.callbacks import Answered, Resolution
    from .store.statements import Call
    from .store.store import Conn

PAYLOAD_BYTES = 1024 * 1024
DEFAULT_ACTIONS = ("complete", "fail", "ignore")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_SHOWN_CHARS = 36


def checked_callback_id(value: Any) -> str:
    """Return the id of a callback, given as text or UUID.

    Errors: ValidationError for another type; CallbackNotFound for text that no callback has for an id.
    """
    if isinstance(value, UUID):
        return str(value)
    if type(value) is not str:
        raise ValidationError(f"expected text, got {type(value).__name__}", path="callback_id")
    if not _ID.fullmatch(value):
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


def checked_default_action(value: Any) -> str:
    """Return what an answer means by default: complete, fail or ignore."""
    if value not in DEFAULT_ACTIONS:
        raise ValidationError(f"expected one of {', '.join(DEFAULT_ACTIONS)}", path="default_action")
    return str(value)


def _complete_call(callback_id: Any, payload: Any, resume: Any) -> Call[Answered]:
    from .store import callbacks

    if type(resume) is not bool:
        raise ValidationError(f"expected True or False, got {type(resume).__name__}", path="resume")
    return callbacks.complete_external(checked_callback_id(callback_id), checked_payload(payload), resume)


def _resolve_call(callback_id: Any, payload: Any, default_action: Any) -> Call[Resolution]:
    from .store import callbacks

    action = checked_default_action(default_action)
    return callbacks.resolve_callback(checked_callback_id(callback_id), checked_payload(payload), action)


class Answering(Cancelling):
    """The part of `Client` that answers callbacks.

    Every id counts once: an unknown, malformed, spent or older one raises CallbackNotFound, and nothing changes. With
    `conn=` an answer is given when the caller's transaction commits; until then another sender of the same id waits.
    """

    def resume_external(
        self, callback_id: str | UUID, payload: Any = None, *, conn: Conn | None = None
    ) -> Answered:
        """Answer a callback: the job goes on, with this payload (JSON of at most 1 MiB).

        A handler that has not begun to wait gets it when it does. A parked job becomes available, in the same attempt.
        Errors: CallbackNotFound; UniqueConflict when another job holds a parked job's unique key: send it again later.
        """
        from .store import callbacks

        call = callbacks.resume_external(checked_callback_id(callback_id), checked_payload(payload))
        return self._run(call, conn)

    def complete_external(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        resume: bool = False,
        *,
        conn: Conn | None = None,
    ) -> Answered:
        """Answer a callback: the job is completed, whatever its handler still does. With `resume` it is `resume_external`."""
        return self._run(_complete_call(callback_id, payload, resume), conn)

    def fail_external(self, callback_id: str | UUID, error: str, *, conn: Conn | None = None) -> Answered:
        """Answer a callback: the job has failed for good, with this error and the reason callback_failed."""
        from .store import callbacks

        call = callbacks.fail_external(checked_callback_id(callback_id), checked_error(error))
        return self._run(call, conn)

    def retry_external(self, callback_id: str | UUID, *, conn: Conn | None = None) -> Answered:
        """Answer a callback: the job runs again from the top, now, with all its attempts. Only while it waits."""
        from .store import callbacks

        return self._run(callbacks.retry_external(checked_callback_id(callback_id)), conn)

    def resolve_callback(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        default_action: str = "ignore",
        *,
        conn: Conn | None = None,
    ) -> Resolution:
        """Answer a callback without saying what that means: `default_action` does, complete, fail or ignore.

        Ignore changes nothing, and the callback stays open.
        """
        return self._run(_resolve_call(callback_id, payload, default_action), conn)

    def heartbeat_callback(
        self, callback_id: str | UUID, timeout_seconds: float | timedelta, *, conn: Conn | None = None
    ) -> datetime:
        """Let a callback time out so many seconds from now; returns when that is. Only while the job waits."""
        from .store import callbacks

        timeout_s = checked_timeout_s(timeout_seconds)
        return self._run(callbacks.heartbeat_callback(checked_callback_id(callback_id), timeout_s), conn)


class AsyncAnswering(AsyncCancelling):
    """The part of `AsyncClient` that answers callbacks; see `Answering`."""

    async def resume_external(
        self, callback_id: str | UUID, payload: Any = None, *, conn: AsyncConn | None = None
    ) -> Answered:
        """Answer a callback: the job goes on. See `Client.resume_external`."""
        from .store import callbacks

        call = callbacks.resume_external(checked_callback_id(callback_id), checked_payload(payload))
        return await self._run(call, conn)

    async def complete_external(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        resume: bool = False,
        *,
        conn: AsyncConn | None = None,
    ) -> Answered:
        """Answer a callback: the job is completed. See `Client.complete_external`."""
        return await self._run(_complete_call(callback_id, payload, resume), conn)

    async def fail_external(
        self, callback_id: str | UUID, error: str, *, conn: AsyncConn | None = None
    ) -> Answered:
        """Answer a callback: the job has failed for good. See `Client.fail_external`."""
        from .store import callbacks

        call = callbacks.fail_external(checked_callback_id(callback_id), checked_error(error))
        return await self._run(call, conn)

    async def retry_external(self, callback_id: str | UUID, *, conn: AsyncConn | None = None) -> Answered:
        """Answer a callback: the job runs again from the top. See `Client.retry_external`."""
        from .store import callbacks

        return await self._run(callbacks.retry_external(checked_callback_id(callback_id)), conn)

    async def resolve_callback(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        default_action: str = "ignore",
        *,
        conn: AsyncConn | None = None,
    ) -> Resolution:
        """Answer a callback without saying what that means. See `Client.resolve_callback`."""
        return await self._run(_resolve_call(callback_id, payload, default_action), conn)

    async def heartbeat_callback(
        self, callback_id: str | UUID, timeout_seconds: float | timedelta, *, conn: AsyncConn | None = None
    ) -> datetime:
        """Let a callback time out so many seconds from now. See `Client.heartbeat_callback`."""
        from .store import callbacks

        timeout_s = checked_timeout_s(timeout_seconds)
        return await self._run(
            callbacks.heartbeat_callback(checked_callback_id(callback_id), timeout_s), conn
        )
