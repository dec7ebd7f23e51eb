"""Answers to callbacks over HTTP: a mountable ASGI app, and the helpers of both sides. `awa-pool callbacks` serves it.

Importing this costs next to nothing, so that a handler may build addresses and sign; the app needs `awa-pool[callbacks]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .signing import ACTIONS, DEFAULT_PREFIX, SIGNATURE_HEADER, build_callback_url, sign, verify

if TYPE_CHECKING:
    from awa_pool.client import AsyncClient, Client

    from .app import AsgiApp

__all__ = [
    "ACTIONS",
    "DEFAULT_PREFIX",
    "SIGNATURE_HEADER",
    "asgi_app",
    "build_callback_url",
    "sign",
    "verify",
]

MAX_BODY_BYTES = 1024 * 1024
READ_TIMEOUT_S = 10.0


def asgi_app(
    client: Client | AsyncClient,
    *,
    secrets: str | Sequence[str] = (),
    allow_unsigned: bool = False,
    prefix: str = "",
    max_body_bytes: int = MAX_BODY_BYTES,
    read_timeout_s: float = READ_TIMEOUT_S,
    probes: bool = False,
) -> AsgiApp:
    """Return an ASGI app that takes POST `{prefix}/{id}/{action}` and gives the answers to `client` (docs/callback-receiver.md).

    `secrets`: one, or two while they change. The client's app runs here what it registered for such answers. Bodies
    over `max_body_bytes`, or longer on their way than `read_timeout_s`, are refused. `probes` adds GET /healthz, /readyz and
    /metrics. Errors: ConfigError (no secret and not `allow_unsigned`; the extra is missing), ValidationError.
    """
    from .needs import needed

    needed("starlette")
    from .app import Options, make_app
    from .doors import door_to

    options: dict[str, Any] = {
        "secrets": secrets, "allow_unsigned": allow_unsigned, "prefix": prefix,
        "max_body_bytes": max_body_bytes, "read_timeout_s": read_timeout_s, "probes": probes,
    }  # fmt: skip
    return make_app(door_to(client), Options.checked(**options))
