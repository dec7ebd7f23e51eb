"""How an answer to a callback proves who sent it. Light: a handler may import this, and so may the side that answers.

The signature is HMAC-SHA256, in hexadecimal, over `id LF action LF body`, keyed with the secret's text. Neither an id nor an
action can hold a line feed, so no other answer has the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from awa_pool.errors import ConfigError, ValidationError
from awa_pool.tokens import is_callback_id

SIGNATURE_HEADER = "X-Awa-Signature"
ACTIONS = ("complete", "fail", "resume", "resolve", "retry", "heartbeat")
DEFAULT_PREFIX = "/api/callbacks"
SECRET_CHARS = (32, 512)
MOST_SECRETS = 2
_SECRET = re.compile(r"[!-~]+")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def sign(secret: str, callback_id: str | UUID, action: str, body: bytes = b"") -> str:
    """Return the signature of an answer, for the header `X-Awa-Signature`; `body` is what will be sent, byte by byte.

    Errors: ValidationError for an id, action or body that is none; ConfigError for a secret that is too short.
    """
    (key,) = checked_secrets([secret])
    return _signature(key, _checked_id(callback_id), _checked_action(action), _checked_body(body))


def verify(
    secrets: str | Sequence[str], callback_id: str | UUID, action: str, body: bytes, signature: str
) -> bool:
    """Tell whether one of these secrets (one, or two while they change) made the signature; the time taken tells nothing.

    Errors: ConfigError for a secret that is too short, or none at all.
    """
    keys = checked_secrets([secrets] if isinstance(secrets, str) else secrets)
    if not keys:
        raise ConfigError("a signature is verified with a secret: none was given")
    name = str(callback_id)
    if not is_callback_id(name) or action not in ACTIONS or not isinstance(signature, str):
        return False
    shown = signature.strip().lower().encode("utf-8", "replace")
    found = [hmac.compare_digest(_signature(key, name, action, body).encode(), shown) for key in keys]
    return any(found)


def build_callback_url(
    base_url: str, callback_id: str | UUID, action: str = "complete", *, prefix: str = DEFAULT_PREFIX
) -> str:
    """Return the address at which the receiver under `base_url` (https://jobs.example.com) takes that answer.

    Errors: ValidationError naming what is wrong.
    """
    parts = urlsplit(base_url) if isinstance(base_url, str) else None
    if (
        parts is None
        or parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise ValidationError("write an address such as https://jobs.example.com", path="base_url")
    name, word = _checked_id(callback_id), _checked_action(action)
    return f"{base_url.rstrip('/')}{checked_prefix(prefix)}/{name}/{word}"


def checked_secrets(secrets: Sequence[str]) -> tuple[str, ...]:
    """Return at most two different secrets, of 32 to 512 printable ASCII characters without blanks. Errors: ConfigError, without the text."""
    found = tuple(dict.fromkeys(secrets))
    if len(found) > MOST_SECRETS:
        raise ConfigError(f"{len(found)} secrets: give one, or two while they change")
    for secret in found:
        low, high = SECRET_CHARS
        if not isinstance(secret, str) or not _SECRET.fullmatch(secret) or not low <= len(secret) <= high:
            raise ConfigError(
                f"a secret must have {low} to {high} printable ASCII characters and no blanks; `openssl rand -hex 32` makes one"
            )
    return found


def checked_prefix(prefix: Any) -> str:
    """Return a path that callbacks stand under, without a slash at its end. Errors: ValidationError."""
    text = prefix.rstrip("/") if isinstance(prefix, str) else None
    if text is None or not _PREFIX.fullmatch(text):
        raise ValidationError("write a path such as /api/callbacks", path="prefix")
    return text


def _signature(key: str, callback_id: str, action: str, body: bytes) -> str:
    message = f"{callback_id}\n{action}\n".encode() + body
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def _checked_id(callback_id: Any) -> str:
    text = str(callback_id) if isinstance(callback_id, str | UUID) else ""
    if not is_callback_id(text):
        raise ValidationError("this is not the id of a callback (give token.id)", path="callback_id")
    return text


def _checked_action(action: Any) -> str:
    if action not in ACTIONS:
        raise ValidationError(f"expected one of {', '.join(ACTIONS)}", path="action")
    return str(action)


def _checked_body(body: Any) -> bytes:
    if not isinstance(body, bytes | bytearray | memoryview):
        raise ValidationError(f"expected the bytes to be sent, got {type(body).__name__}", path="body")
    return bytes(body)
