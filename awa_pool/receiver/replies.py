"""What the sender of an answer is told: a status, one JSON object, and in every error what to do now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from awa_pool.errors import (
    CallbackNotFound,
    FollowUpFailed,
    JobNotFound,
    PayloadTooLarge,
    SchemaMismatch,
    StoreConflict,
    StoreUnavailable,
    TransitionRefused,
    UniqueConflict,
    ValidationError,
)

from .signing import ACTIONS, SIGNATURE_HEADER

BUSY_S, AWAY_S, OPERATOR_S = 1, 5, 60
CLOSE = {"Connection": "close"}


class Reply(NamedTuple):
    """A status, a JSON object and headers."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The document as it is sent."""
        return json.dumps(self.document, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


class Refused(Exception):
    """This request is answered with an error before the database is asked."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.document.get("error"))
        self.reply = reply


def refusal(status: int, text: str, **headers: str) -> Reply:
    """Return an error; names of headers are written with underscores."""
    return Reply(status, {"error": text}, {name.replace("_", "-"): value for name, value in headers.items()})


def taken(answer: Any) -> Reply:
    """Return what is said of an answer that counts: its job, or the new time-out."""
    if isinstance(answer, datetime):
        return Reply(200, {"until": answer.isoformat()})
    decided = {name: getattr(answer, name) for name in ("outcome", "reason") if hasattr(answer, name)}
    return Reply(
        200, {"job_id": answer.job_id, "number": answer.number, "state": str(answer.state), **decided}
    )


NO_CALLBACK = refusal(
    404,
    "no callback waits for an answer under this id: it is unknown, was answered already, has timed out, or a newer one has "
    "taken its place; do not send it again",
)
NOT_YET = refusal(
    409, "its handler runs, and does not wait for this callback yet; nothing has changed: send it again later"
)
NO_ACTION = refusal(404, f"there is nothing here: POST to …/ID/ACTION, ACTION one of {', '.join(ACTIONS)}")
UNSIGNED = refusal(
    401,
    f"the header {SIGNATURE_HEADER} is missing: send HMAC-SHA256 over the id, a line feed, the action, a line feed and the body, "
    "in hexadecimal",
    WWW_Authenticate=f'HMAC-SHA256 header="{SIGNATURE_HEADER}"',
)
FORGED = refusal(
    401,
    f"{SIGNATURE_HEADER} does not fit: sign this id, this action and the bytes of this body with the secret in force",
    WWW_Authenticate=f'HMAC-SHA256 header="{SIGNATURE_HEADER}"',
)
NOT_JSON = refusal(415, "send the body as Content-Type: application/json, and not compressed")
TOO_SLOW = Reply(408, {"error": "the request took too long to arrive: send it again, all at once"}, CLOSE)
BUSY = refusal(503, "too much is under way here: send it again in a second", Retry_After=str(BUSY_S))
UNDER_WAY = refusal(503, "another answer is under way: send it again in a second", Retry_After=str(BUSY_S))
LATE = refusal(
    503,
    "the database did not answer in time: send it again; a 404 then means that this one was taken",
    Retry_After=str(AWAY_S),
)


def too_large(limit_bytes: int) -> Reply:
    """Return the refusal of a body over the limit."""
    return refusal(
        413, f"the body is longer than {limit_bytes} bytes: send less, such as a reference to where it lies"
    )


def reply_to(problem: Exception) -> Reply:
    """Return what the sender is told of an error; what is nobody's business outside is left to the log."""
    match problem:
        case Refused():
            return problem.reply
        case CallbackNotFound(is_open=True):
            return NOT_YET
        case CallbackNotFound() | JobNotFound():
            return NO_CALLBACK
        case UniqueConflict():
            return refusal(
                409, "another job holds this job's unique key, and nothing has changed: send it again later"
            )
        case TransitionRefused():
            return refusal(409, "the job's state does not allow this answer, and nothing has changed")
        case PayloadTooLarge():
            return refusal(413, str(problem))
        case ValidationError():
            return refusal(400, str(problem))
        case FollowUpFailed():
            return _failed(problem)
        case StoreConflict():
            return UNDER_WAY
        case SchemaMismatch():
            return refusal(
                503,
                "the database is not ready for this receiver: send it again later",
                Retry_After=str(OPERATOR_S),
            )
        case StoreUnavailable():
            return refusal(503, "the database is away: send it again", Retry_After=str(AWAY_S))
    return refusal(
        500, "this receiver has failed, its log says how: tell who runs it, and send it again later"
    )


def _failed(problem: FollowUpFailed) -> Reply:
    name = f"the function {problem.spec}" if problem.spec else "a job"
    text = f"{name} that the app registered for this answer failed, and nothing has changed: send it again once that is repaired"
    return Reply(500, {"error": text, "function": problem.spec})
