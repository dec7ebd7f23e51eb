"""Answers whose meaning is not the sender's to say: the callback's rules do, and where they are silent a default action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from .callbacks import (
    PAYLOAD_BYTES,
    Answering,
    AsyncAnswering,
    checked_callback_id,
    checked_payload,
    completing,
    failing,
)
from .cancelling import Steps, Told, drive, drive_async, interested_kinds, outcome_steps, tell_hooks
from .errors import ValidationError
from .rules import Verdict, judge
from .states import Trigger

if TYPE_CHECKING:  # psycopg costs a worker 20 MB
    from .declarations import Declarations
    from .store.asynchronous import AsyncConn
    from .store.callbacks import Resolution, Ruled
    from .store.store import Conn

DEFAULT_ACTIONS = ("complete", "fail", "ignore", "resume")
DEFAULT_FAILURE = "an answer came, and by default such an answer fails the job"
_TRIGGERS = {"complete": Trigger.COMPLETED, "fail": Trigger.EXHAUSTED}


def checked_default_action(value: Any) -> str:
    """Return what an answer means by default: complete, fail, ignore or resume."""
    if value not in DEFAULT_ACTIONS:
        raise ValidationError(f"expected one of {', '.join(DEFAULT_ACTIONS)}", path="default_action")
    return str(value)


def resolution_steps(
    client: Declarations, callback_id: str, held: Ruled, verdict: Verdict, *, ours: bool
) -> Steps:
    """Do what the verdict on a held callback says; the answer is a `Resolution`. `ours`, errors: as `outcome_steps`."""
    from .store.callbacks import OUTCOMES, Answered, Resolution, resume_external

    payload, tell = None, None
    answered = Answered(held.job_id, held.number, held.state)
    if verdict.action == "resume":
        answered = yield resume_external(callback_id, verdict.payload)
    elif verdict.action != "ignore":
        answer = (
            completing(callback_id, verdict.payload)
            if verdict.action == "complete"
            else failing(callback_id, verdict.error or DEFAULT_FAILURE)
        )
        if interested_kinds(client, answer.trigger):
            done, tell = yield from outcome_steps(client, answer.trigger, answer.told, ours=ours)
            answered = Answered(*done[:3])
        else:
            answered = yield answer.plain
    if verdict.action in ("complete", "resume"):
        payload = orjson.loads(verdict.payload)
    return Told(Resolution(OUTCOMES[verdict.action], *answered, verdict.reason, payload), tell)


class Resolving(Answering):
    """The part of `Client` that resolves callbacks."""

    def resolve_callback(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        default_action: str = "ignore",
        *,
        conn: Conn | None = None,
    ) -> Resolution:
        """Answer a callback without saying what that means: its rules do, or `default_action`: complete, fail, ignore, resume.

        Ignored, nothing changes, and the callback stays open. Its row is held while the rules are evaluated.
        Errors: as of the answer that it comes to; ConfigError where it has rules and the extra `cel` is not installed.
        """
        from .store.callbacks import rules_of_callback
        from .store.store import is_in_transaction

        checked, text = checked_callback_id(callback_id), checked_payload(payload)
        action = checked_default_action(default_action)
        with self._store(conn) as store:
            ours = not is_in_transaction(store.conn)
            with store.undone_if_it_fails():
                held = store.run(rules_of_callback(checked))
                verdict = judge(held.rules, text, action, checked, PAYLOAD_BYTES)
                done = drive(resolution_steps(self, checked, held, verdict, ours=ours), store)
        if done.tell is not None:
            tell_hooks(self, _TRIGGERS[verdict.action], done.tell)
        resolution: Resolution = done.answer
        return resolution


class AsyncResolving(AsyncAnswering):
    """The part of `AsyncClient` that resolves callbacks."""

    async def resolve_callback(
        self,
        callback_id: str | UUID,
        payload: Any = None,
        default_action: str = "ignore",
        *,
        conn: AsyncConn | None = None,
    ) -> Resolution:
        """Answer a callback without saying what that means. See `Client.resolve_callback`."""
        import asyncio

        from .store.callbacks import rules_of_callback
        from .store.store import is_in_transaction

        checked, text = checked_callback_id(callback_id), checked_payload(payload)
        action = checked_default_action(default_action)
        async with self._store(conn) as store:
            ours = not is_in_transaction(store.conn)
            async with store.undone_if_it_fails():
                held = await store.run(rules_of_callback(checked))
                if held.rules:  # which may take a while, with a large payload
                    verdict = await asyncio.to_thread(judge, held.rules, text, action, checked, PAYLOAD_BYTES)
                else:
                    verdict = judge({}, text, action, checked, PAYLOAD_BYTES)
                done = await drive_async(resolution_steps(self, checked, held, verdict, ours=ours), store)
        if done.tell is not None:  # hooks are plain functions, which may block
            await asyncio.to_thread(tell_hooks, self, _TRIGGERS[verdict.action], done.tell)
        resolution: Resolution = done.answer
        return resolution
