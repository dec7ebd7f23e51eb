"""What a handler holds of a callback (`CallbackToken`), and what the answer to one brings to the run after it (`Resumed`)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from . import validation as gate
from .errors import ValidationError

TIMEOUT_S = (0.01, 365 * 86400.0)
ANSWER = "awa:callback"
"""Where the metadata of a job that was resumed carry the answer."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)

Registered = tuple[str, int]
"""Id and number of a callback."""
Rules = dict[str, str]
"""What an answer to a callback comes to: expressions by the name of the argument that gave them (see `rules`)."""


class Resumed(NamedTuple):
    """The answer with which a parked job goes on: which callback of the job it was, from 1, and what was sent."""

    number: int
    payload: Any


class CallbackToken:
    """A callback of one attempt: `id` is what the outside world answers, `number` counts the job's callbacks from 1.

    In an async handler it is to be awaited first: `token = await job.register_callback(60)`. `rules` are its expressions,
    by the names of their arguments.
    """

    __slots__ = ("_number", "_registering", "_text", "attempt", "rules", "spent", "timeout_s")

    def __init__(
        self,
        attempt: tuple[int, int],
        timeout_s: float,
        registered: Registered | None = None,
        registering: Callable[[], Awaitable[Registered]] | None = None,
        rules: Rules | None = None,
    ) -> None:
        """`attempt`: job id and run_lease of whose it is. Either it is registered, or awaiting it does so, once."""
        self.attempt = attempt
        self.timeout_s = timeout_s
        self.spent = False
        """Its handler has waited for it and got the payload: a token is for one wait."""
        self._text, self._number = registered or ("", 0)
        self._registering = registering
        self.rules = rules or {}

    @property
    def registered(self) -> bool:
        """Whether it has an id: not so before an async handler has awaited it."""
        return bool(self._text)

    @property
    def id(self) -> str:
        """The callback's id, a UUID as text: a secret, for whoever has it can answer. Errors: ValidationError before it is registered."""
        self._check()
        return self._text

    @property
    def number(self) -> int:
        """Which callback of its job this is, from 1. Errors: as `id`."""
        self._check()
        return self._number

    def _check(self) -> None:
        if not self._text:
            raise ValidationError(
                "it is not registered yet: write `await job.register_callback(…)`", path="token"
            )

    def __await__(self) -> Generator[Any, None, CallbackToken]:
        return self._registered().__await__()

    async def _registered(self) -> CallbackToken:
        registering, self._registering = self._registering, None
        if registering is not None:
            self._text, self._number = await registering()
        self._check()
        return self

    def __repr__(self) -> str:
        return f"CallbackToken(number={self._number or None})"  # the id is a secret


def is_callback_id(text: str) -> bool:
    """Tell whether a text looks like the id of a callback."""
    return _ID.fullmatch(text) is not None


def checked_timeout_s(value: Any) -> float:
    """Return how long a callback is waited for, in seconds (a number or a timedelta), 0.01 to 365 days."""
    return gate.checked_seconds(value, TIMEOUT_S, "timeout_seconds")


def checked_rules(filter: Any, on_complete: Any, on_fail: Any, transform: Any) -> Rules:
    """Return the rules of a callback, compiled and found good; {} where there are none. Errors: as `rules.checked`."""
    if filter is None and on_complete is None and on_fail is None and transform is None:
        return {}
    from . import rules  # only for handlers that have some

    return rules.checked(filter=filter, on_complete=on_complete, on_fail=on_fail, transform=transform)


def answer_of(metadata: dict[str, Any]) -> Resumed | None:
    """Return the answer that a job's metadata carry; None where there is none, or it is none of ours."""
    answer = metadata.get(ANSWER)
    if type(answer) is not dict or type(answer.get("number")) is not int:
        return None
    return Resumed(answer["number"], answer.get("payload"))
