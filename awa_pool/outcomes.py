"""What a handler may answer, and what that means for its attempt.

A handler returns None (completed) or one of `RetryAfter`, `Snooze`, `Cancel`, `WaitForCallback`; raising one of these means the same
as returning it. Any other exception is a failed attempt; `TerminalError` fails the job at once. One of these classes itself, or an
exception, that is returned is a slip of the pen: a failed attempt too. Of an exception group its leaves decide.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from .errors import DeadlineExceeded, JobCancelled, LeaseLost, ShuttingDown, TerminalError, ValidationError
from .states import Outcome
from .tokens import CallbackToken

MIN_DELAY_S = 0.01  # floor: one job cannot come back faster, whatever its handler asks for
MAX_DELAY_S = 3650 * 86400.0
BACKOFF_CAP_S = 86400.0
_DOUBLINGS_TO_CAP = 17  # 2^17 s is more than a day: larger powers are never computed
JITTER = 0.25

DEADLINE_EXCEEDED = "deadline_exceeded"
"""`reason` in the error of an attempt that ended because its deadline had passed."""

_PLAIN_MODULES = ("builtins", "awa_pool.errors")  # whose classes go by their bare names
INTERRUPTIONS = (ShuttingDown, LeaseLost)
"""What ends an attempt that is not to count."""
ERROR_TEXT_BYTES = 4096  # of one error record: message, type and traceback together
_MESSAGE_BYTES = 2048
_TYPE_CHARS = 200
_FRAMES = 8
_LEAVES = 8  # of a group are told
_LEAF_CHARS = 200

Backoff = float | Callable[[int], float] | None
"""Seconds before the next attempt: a constant, a function of the attempt just failed (1-based), or the default."""


class _Answer(Exception):
    """Base of what a handler may return, or raise, instead of None."""


class RetryAfter(_Answer):
    """Fail this attempt and try again after `seconds` (a number or a timedelta): counted, fails on the last one."""

    def __init__(self, seconds: float | timedelta, reason: str | None = None) -> None:
        super().__init__(seconds, reason)
        self.seconds = checked_delay_s(seconds, "RetryAfter")
        self.reason = reason


class Snooze(_Answer):
    """Run this job again after `seconds` (a number or a timedelta) without using up an attempt."""

    def __init__(self, seconds: float | timedelta) -> None:
        super().__init__(seconds)
        self.seconds = checked_delay_s(seconds, "Snooze")


class Cancel(_Answer):
    """End this job as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class WaitForCallback(_Answer):
    """Let the job wait for a callback of this attempt with no handler alive; answered, it runs again from the top."""

    def __init__(self, token: CallbackToken) -> None:
        if not isinstance(token, CallbackToken):
            raise ValidationError(
                f"expected what job.register_callback returned, got {_type_name(token)}",
                path="WaitForCallback",
            )
        _ = token.id  # it is registered
        super().__init__(token)
        self.token = token


class Ending(NamedTuple):
    """How an attempt ends.

    `delay_s` is set for RETRY and SNOOZE; `error` is a small JSON object `{error, type, traceback?}`, or None;
    `dropped` names the type of a return value that nobody keeps (to be warned about once per kind); `token` is set for PARK.
    """

    outcome: Outcome
    delay_s: float | None = None
    error: dict[str, str] | None = None
    dropped: str | None = None
    token: CallbackToken | None = None


COMPLETED = Ending(Outcome.COMPLETED)


def checked_delay_s(seconds: object, name: str) -> float:
    """Return `seconds` as a float within bounds (lifted to `MIN_DELAY_S`); ValidationError when it is not a delay."""
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValidationError(f"expected seconds or a timedelta, got {_type_name(value)}", path=name)
    if not 0 <= value <= MAX_DELAY_S:  # false for NaN too
        raise ValidationError(f"a delay lies between 0 and {MAX_DELAY_S:.0f} seconds", path=name)
    return max(float(value), MIN_DELAY_S)


def default_backoff_s(attempt: int, rng: Random) -> float:
    """Return min(2^attempt s plus up to 25 % jitter, 24 h); the power is capped before it is computed."""
    base_s = 2.0 ** min(max(attempt, 0), _DOUBLINGS_TO_CAP)
    return min(base_s * (1 + JITTER * rng.random()), BACKOFF_CAP_S)


def resolve_outcome(
    result: object,
    raised: BaseException | None,
    *,
    attempt: int,
    backoff: Backoff,
    rng: Random,
    late: bool = False,
) -> Ending:
    """Say how an attempt ends whose handler returned `result`, or raised `raised`.

    `attempt` is this attempt's number, `backoff` the task's; `late`: it had been told that its deadline has passed.
    Never raises, whatever the handler made.
    """
    answer = raised if raised is not None else result
    if answer is None:
        return COMPLETED
    if raised is None:
        raised = _slip(result)
        answer = result if raised is None else raised
    # By the type alone: isinstance would ask the object's own __class__, which is user code.
    parts = leaves(answer)
    delay_s: float | None = None
    try:
        answer = _ruling(parts)
        if issubclass(type(answer), _Answer):
            ending = _resolve_answer(answer)
            if ending.outcome is not Outcome.RETRY or all(issubclass(type(each), _Answer) for each in parts):
                return ending
            delay_s = ending.delay_s
    except BaseException as problem:  # noqa: BLE001 (an answer of the user's own making that says nothing)
        raised = answer = problem
    if raised is None:
        return Ending(Outcome.COMPLETED, dropped=_type_name(result))
    if issubclass(type(answer), JobCancelled):
        return Ending(Outcome.CANCEL, error={"error": "the job was cancelled", "type": "JobCancelled"})
    if issubclass(type(answer), INTERRUPTIONS):  # no failure
        return Ending(Outcome.RETURN)
    error = describe_error(raised)
    if any(issubclass(type(each), DeadlineExceeded) for each in parts):
        error["type"], late = "DeadlineExceeded", True
    if late:
        error["reason"] = DEADLINE_EXCEEDED
    if issubclass(type(answer), TerminalError):
        return Ending(Outcome.FAIL, error=error)
    if delay_s is not None:
        return Ending(Outcome.RETRY, delay_s, error)
    delay_s, complaint = _backoff_s(backoff, attempt, rng)
    if complaint:
        error["backoff"] = complaint
    return Ending(Outcome.RETRY, delay_s, error)


def _ruling(parts: list[Any]) -> Any:
    """Return the one of what a handler raised together that decides how its attempt ends.

    First what is for good, then what takes the attempt away: errors beside that most likely come of the breaking off, and those
    that do not will be met again. An error that is left fails the attempt, after the longest delay that was asked for with it.
    """
    if len(parts) == 1:
        return parts[0]
    for kinds in ((TerminalError,), (JobCancelled, Cancel), INTERRUPTIONS):
        for each in parts:
            if issubclass(type(each), kinds):
                return each
    errors = [each for each in parts if not issubclass(type(each), _Answer)]
    for kind in (RetryAfter,) if errors else (RetryAfter, Snooze):
        if asked := [each for each in parts if issubclass(type(each), kind)]:
            return max(asked, key=lambda each: each.seconds)
    return (errors or parts)[0]


def leaves(raised: object) -> list[Any]:
    """Return the exceptions in a group and in the groups in it, each once and in their order; of anything else itself."""
    found: dict[int, object] = {}
    left = [raised]
    seen: set[int] = set()  # the same group may lie in many others
    while left:
        part = left.pop()
        if not issubclass(type(part), BaseExceptionGroup):
            found[id(part)] = part
        elif id(part) not in seen:
            seen.add(id(part))
            # By the descriptor: a subclass may say anything of its own.
            left += reversed(BaseExceptionGroup.exceptions.__get__(part))
    return list(found.values())


def _slip(result: object) -> TypeError | None:
    """Return what is wrong with a returned value that was clearly meant otherwise: to complete the job would lose the intent."""
    # By the type alone, as above.
    if issubclass(type(result), type):
        name = _safe(lambda: result.__name__)  # type: ignore[attr-defined]
        if issubclass(result, _Answer):  # type: ignore[arg-type]
            return TypeError(f"the handler returned the class {name} itself: call it, `return {name}(…)`")
        if issubclass(result, BaseException):  # type: ignore[arg-type]
            return TypeError(f"the handler returned the class {name}: raise it, `raise {name}(…)`")
    elif issubclass(type(result), BaseException) and not issubclass(type(result), _Answer):
        slip = TypeError("the handler returned an exception instead of raising it: `raise` it")
        slip.__cause__ = result  # type: ignore[assignment]
        return slip
    return None


def _resolve_answer(answer: _Answer) -> Ending:
    if isinstance(answer, Snooze):
        return Ending(Outcome.SNOOZE, checked_delay_s(answer.seconds, "Snooze"))
    if isinstance(answer, WaitForCallback):
        return Ending(Outcome.PARK, token=answer.token)
    if isinstance(answer, RetryAfter):
        delay_s = checked_delay_s(answer.seconds, "RetryAfter")
        text = _reason(answer.reason) or f"the handler asked for another try after {delay_s:g} s"
        return Ending(Outcome.RETRY, delay_s, {"error": clean_text(text), "type": "RetryAfter"})
    reason = _reason(answer.reason) if isinstance(answer, Cancel) else ""
    return Ending(
        Outcome.CANCEL, error={"error": clean_text(reason or "cancelled by its handler"), "type": "Cancel"}
    )


def _reason(given: object) -> str:
    """Return a reason as text; anything may have been given for one."""
    return "" if given is None else _safe(lambda: str(given))


def _backoff_s(backoff: Backoff, attempt: int, rng: Random) -> tuple[float, str | None]:
    """Return the delay and, where the task's own back-off is of no use, what is wrong with it."""
    if backoff is None:
        return default_backoff_s(attempt, rng), None
    try:
        value = backoff(attempt) if callable(backoff) else backoff
        if value == math.inf:
            return MAX_DELAY_S, None
        return checked_delay_s(value, "backoff"), None
    except BaseException as problem:  # noqa: BLE001 (the user's function: the retry must not be lost with it)
        return default_backoff_s(attempt, rng), f"{_type_name(problem)}: {_message(problem)}"[:500]


def retry_delay_s(backoff: Backoff, attempt: int, rng: Random) -> float:
    """Return the seconds until the next attempt by a task's back-off, or by the default where that is of no use."""
    return _backoff_s(backoff, attempt, rng)[0]


def describe_error(raised: BaseException) -> dict[str, str]:
    """Return `{error, type, traceback?}` of an exception: clean text, bounded to `ERROR_TEXT_BYTES` together."""
    try:
        return _describe(raised)
    except BaseException as problem:  # noqa: BLE001 (every attribute of an exception may be user code)
        text = f"<{type(problem).__name__} while it was described>"
        return {"error": text, "type": clean_text(_type_name(raised), _TYPE_CHARS)}


def _describe(raised: BaseException) -> dict[str, str]:
    kind = clean_text(_type_name(raised), _TYPE_CHARS)
    if issubclass(type(raised), SystemExit):
        code = getattr(raised, "code", None)
        message = f"the handler called exit with {_safe(lambda: repr(code))}"
    else:
        message = _message(raised)
    text = (message or kind) + _safe(lambda: _causes(raised, message))
    described = {"error": clean_text(text, _MESSAGE_BYTES), "type": kind}
    room = ERROR_TEXT_BYTES - 64 - sum(len(part.encode()) for part in described.values())
    frames = _frames(raised)
    if issubclass(type(raised), BaseExceptionGroup):
        first = leaves(raised)[0]
        if inside := _frames(first):
            frames += f"{_type_name(first)}:\n{inside}"
    if frames:
        described["traceback"] = clean_text(frames, room, keep_end=True)
    return described


def _frames(raised: BaseException) -> str:
    return _safe(lambda: "".join(traceback.format_tb(raised.__traceback__, limit=-_FRAMES)))


def _causes(raised: BaseException, message: str) -> str:
    """Return ` (after Type: text)` of each cause, up to three; what has been said already is not said again."""
    cause, told, said = raised, [message], message
    text = ""
    for _ in range(3):
        following = cause.__cause__
        if following is None and not cause.__suppress_context__:
            following = cause.__context__
        if following is None:
            break
        cause = following
        kind, message = _type_name(cause), _message(cause)
        if message and (message in told or f"{kind}: {message}" in said):
            continue
        quoted = said.endswith(message)  # "cannot read: no such file": all but the type has been said
        after = f" (after {kind if quoted else f'{kind}: {message[:200]}'})"
        text, said = text + after, said + after
        told.append(message)
    return text


def error_line(error: dict[str, Any]) -> str:
    """Return `Type: text` of an error record, whoever wrote it; the type once only."""
    text, kind = str(error.get("error") or "").strip(), str(error.get("type") or "")
    if not kind or text == kind or text.startswith(f"{kind}: "):
        return text or str(error)
    return f"{kind}: {text}" if text else kind


def clean_text(text: str, limit_bytes: int = _MESSAGE_BYTES, *, keep_end: bool = False) -> str:
    """Return `text` without NUL and lone surrogates, cut to `limit_bytes` of UTF-8 (at its start with `keep_end`)."""
    part = text[-limit_bytes:] if keep_end else text[:limit_bytes]
    data = part.replace("\0", "\ufffd").encode("utf-8", "backslashreplace")
    if len(data) <= limit_bytes and len(part) == len(text):
        return data.decode()
    mark = "…".encode()
    kept = limit_bytes - len(mark)
    if keep_end:
        return (mark + data[-kept:]).decode("utf-8", "ignore")
    return data[:kept].decode("utf-8", "ignore") + "…"


def _message(raised: BaseException) -> str:
    text = _safe(lambda: str(raised))[:_MESSAGE_BYTES]
    if issubclass(type(raised), BaseExceptionGroup):
        found = leaves(raised)
        told = [f"{_type_name(leaf)}: {_message(leaf)[:_LEAF_CHARS]}" for leaf in found[:_LEAVES]]
        more = [f"and {len(found) - _LEAVES} more"] if len(found) > _LEAVES else []
        text = f"{text}: {'; '.join(told + more)}"[:_MESSAGE_BYTES]
    return text


def _type_name(value: object) -> str:
    def name() -> str:
        cls = type(value)
        return (
            cls.__qualname__ if cls.__module__ in _PLAIN_MODULES else f"{cls.__module__}.{cls.__qualname__}"
        )

    return _safe(name)


def _safe(make: Callable[[], object]) -> str:
    """Return the text that user code makes; when making it fails, say so instead."""
    try:
        text = make()
        return str.__str__(text) if isinstance(text, str) else "<not a text>"
    except BaseException as problem:  # noqa: BLE001 (__str__, __repr__ and metaclasses are user code too)
        return f"<{type(problem).__name__} while it was described>"
