"""A handler waits for its callback, where it is, as often as it likes; loaded by the first that does.

What can be told here is told here: the token is another attempt's, was answered, was replaced. The rest the database says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import orjson

from awa_pool.body import has_long_number, has_wide_integer
from awa_pool.errors import (
    AwaError,
    CallbackNotFound,
    CallbackTimeout,
    DeadlineExceeded,
    DecodeError,
    JobCancelled,
    LeaseLost,
    StoreRefused,
    TransitionRefused,
    ValidationError,
)
from awa_pool.messages import AwaitCallback, CallbackAnswered, ForgetCallback, Message
from awa_pool.tokens import CallbackToken

from .asking import Request
from .reporting import identity_of

if TYPE_CHECKING:
    from awa_pool.job import Job
    from awa_pool.registry import Task

    from .attempt import Attempt
    from .registering import Registrar

_ENDED = {
    "completed": "its callback completed the job",
    "failed": "its callback failed the job",
    "retried": "its callback had the job run again",
}


class Wait(Request):
    """A wait for the answer to a callback; the attempt's seat is given away for its time."""

    expects = CallbackAnswered
    cut_short = "the pool stops while the handler waits for a callback: the job goes back"
    __slots__ = ("job",)

    def __init__(
        self, job: Attempt, number: int, message: AwaitCallback, wake: Callable[[], object], now_s: float
    ) -> None:
        super().__init__(number, message, wake, now_s)
        self.job = job

    def ends_s(self, stopping_s: float, look_s: float) -> float:
        return stopping_s + look_s if self.asked_s < stopping_s else stopping_s

    def farewell(self) -> Message | None:
        return ForgetCallback(self.number)

    def begun(self) -> None:
        if (seat := getattr(self.job, "_seat", None)) is not None:
            seat.begins_to_wait()

    def over(self) -> None:
        if (seat := getattr(self.job, "_seat", None)) is not None:
            seat.goes_on()
        self.job._wait = None

    def result(self) -> Any:
        """Return the payload, or raise what has come in its place."""
        match self.outcome:
            case CallbackAnswered(_, "answered"):
                return payload_of(self.payload[0] if self.payload else b"null")
            case CallbackAnswered(_, "refused"):
                raise CallbackNotFound(
                    "it is not the newest callback of its attempt, or its payload was given"
                )
            case CallbackAnswered(_, "stale", _, why):
                raise ended(why)
            case CallbackAnswered(_, _, _, why):
                raise StoreRefused(f"the handler could not wait for its callback: {why}")
            case AwaError() as problem:
                raise problem
        raise LeaseLost("nobody has answered")


def wait_for(
    job: Attempt, callback_id: str, wake: Callable[[], object], number: int, identity: list[int]
) -> Wait:
    """Make the request to be told of an answer. Errors: TransitionRefused while the attempt waits already."""
    if getattr(job, "_wait", None) is not None:
        raise TransitionRefused("the attempt waits for a callback already: one wait at a time")
    slot, receipt_id, nonce, index, job_id, run_lease = identity
    message = AwaitCallback(number, slot, receipt_id, nonce, index, job_id, run_lease, callback_id)
    job._wait = wait = Wait(job, number, message, wake, monotonic())
    job._waited_for = callback_id
    return wait


def wait(registrar: Registrar, job: Attempt, task: Task | None, token: CallbackToken) -> Any:
    """Block a plain handler until its callback is answered. Errors: as of `Job.wait_for_callback`."""
    _check_runs(job)
    check_token(job, token)
    check_waits(job.kind, task)
    _check_goes_on(job)
    payload = registrar.wait(job, token.id)
    token.spent = True
    return payload


async def wait_async(registrar: Registrar, job: Attempt, token: CallbackToken) -> Any:
    """Let an async handler await the answer to its callback. Errors: as of `Job.wait_for_callback`."""
    job._left = None
    _check_runs(job)
    check_token(job, token)
    _check_goes_on(job)
    payload = await registrar.wait_async(job, token.id)
    token.spent = True
    return payload


def _check_runs(job: Attempt) -> None:
    if identity_of(job) is None:
        raise LeaseLost("the attempt has ended: a callback is waited for while its handler runs")


def _check_goes_on(job: Attempt) -> None:
    """Refuse to wait in an attempt that was told to end: it would be killed in that wait, and its worker with it."""
    if job.is_cancelled():
        raise JobCancelled("the job was cancelled")
    seat = getattr(job, "_seat", None)
    if seat is not None and seat.reins.late:
        raise DeadlineExceeded("the deadline has passed: the handler waits for nothing more")


def check_token(job: Job[Any], token: Any) -> None:
    """Refuse what this attempt cannot wait for. Errors: ValidationError, TransitionRefused, CallbackNotFound."""
    if not isinstance(token, CallbackToken):
        raise ValidationError(
            f"expected what job.register_callback returned, got {type(token).__name__}", path="token"
        )
    number, _ = token.number, token.id
    if token.attempt != (job.id, job.run_lease):
        raise TransitionRefused(
            f"the token is of another attempt (job {token.attempt[0]}): a handler waits for callbacks of its own"
        )
    newest, _ = getattr(job, "_newest", (0, ""))
    if number < newest:
        raise CallbackNotFound(f"callback #{newest} of this attempt has taken the place of #{number}")
    if token.spent:
        raise TransitionRefused(
            f"callback #{number} was answered, and its payload given: register another to wait again"
        )


def check_waits(kind: str, task: Task | None) -> None:
    """Refuse a plain handler that was not declared to wait. Errors: TransitionRefused."""
    if task is not None and not task.waits:
        raise TransitionRefused(
            f"the handler of {kind!r} is a plain function that holds its worker: declare it with waits=True to wait "
            "in it, or return WaitForCallback(token)"
        )


def check_thread(job: Attempt) -> None:
    """Refuse threads that the handler has started. Errors: TransitionRefused."""
    seat = getattr(job, "_seat", None)
    if seat is None:  # on the lane of plain handlers
        own = threading.current_thread() is threading.main_thread()
    else:
        own = seat.reins.of_this_thread() is not None
    if not own:
        raise TransitionRefused(
            "a plain handler waits on its own thread: wait there, and hand the payload to the others"
        )


def payload_of(text: bytes) -> Any:
    """Read what was sent with an answer, exactly. Errors: DecodeError for what no reader could give back."""
    try:
        payload = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"what was sent cannot be read: {error}", path="payload") from None
    if has_long_number(text) and has_wide_integer(text):  # read as a float it would be another number
        raise DecodeError("an integer in it does not fit 64 bits, signed", path="payload")
    return payload


def ended(why: str) -> AwaError:
    """Return what to raise in a handler whose attempt has ended while it waited."""
    if why == "expired":
        return CallbackTimeout("the callback was not answered in time: the attempt has ended")
    if why == "cancelled":
        return JobCancelled("the job was cancelled")
    return LeaseLost(_ENDED.get(why, "the attempt was taken from this worker: it was rescued, or has ended"))
