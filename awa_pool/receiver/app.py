"""The ASGI app: from a request to an answer given, and from every error to a status that says what to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from awa_pool.errors import AwaError, ConfigError, FollowUpFailed, ValidationError
from awa_pool.tokens import is_callback_id
from awa_pool.visible import visible

from . import replies
from .bodies import understood
from .doors import Door
from .figures import Figures
from .reading import ALL_BODIES_BYTES, Room, check_headers, read_body
from .replies import Refused, Reply
from .signing import ACTIONS, SIGNATURE_HEADER, checked_prefix, checked_secrets, verify

AsgiApp = Starlette
BODY_BYTES = (1024, 16 * 1024 * 1024)
READ_S = (0.1, 600.0)
_SHOWN_CHARS = 8
_log = logging.getLogger("awa_pool.receiver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a receiver is set up; `checked` makes one."""

    secrets: tuple[str, ...]
    prefix: str
    max_body_bytes: int
    read_timeout_s: float
    probes: bool

    @classmethod
    def checked(
        cls,
        *,
        secrets: str | Sequence[str],
        allow_unsigned: bool,
        prefix: str,
        max_body_bytes: int,
        read_timeout_s: float,
        probes: bool,
    ) -> Options:
        """Return the options, checked. Errors: ConfigError, ValidationError."""
        keys = checked_secrets([secrets] if isinstance(secrets, str) else tuple(secrets))
        if not keys and not allow_unsigned:
            raise ConfigError(
                "no secret: give secrets=, or allow_unsigned=True where nobody else can reach the app"
            )
        if keys and allow_unsigned:
            raise ConfigError("a secret was given, and allow_unsigned too: leave one of them out")
        return cls(
            secrets=keys,
            prefix=checked_prefix(prefix),
            max_body_bytes=int(_within(max_body_bytes, BODY_BYTES, "max_body_bytes")),
            read_timeout_s=_within(read_timeout_s, READ_S, "read_timeout_s"),
            probes=probes,
        )


def make_app(door: Door, options: Options) -> AsgiApp:
    """Return the app that gives answers through this door."""
    receiver = Receiver(door, options)
    routes = [Route(f"{options.prefix}/{{callback_id}}/{{action}}", receiver.answer, methods=["POST"])]
    if options.probes:
        routes += [
            Route("/healthz", receiver.healthz),
            Route("/readyz", receiver.readyz),
            Route("/metrics", receiver.metrics),
        ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: receiver.misdirected})
    app.router.redirect_slashes = False
    return app


class Receiver:
    """The endpoints of one app."""

    def __init__(self, door: Door, options: Options) -> None:
        self._door = door
        self._options = options
        self._room = Room(max(ALL_BODIES_BYTES, options.max_body_bytes))
        self._figures = Figures()

    async def answer(self, request: Request) -> Response:
        """POST {prefix}/{id}/{action}."""
        callback_id, action = request.path_params["callback_id"], request.path_params["action"]
        began_s = time.monotonic()
        try:
            reply = await self._taken(request, callback_id, action)
        except ClientDisconnect:
            _log.debug("%s %s: the sender has gone", action[:20], shown_id(callback_id))
            return Response(status_code=400)  # nobody reads it
        except Exception as problem:  # noqa: BLE001 (every error becomes a status)
            reply = replies.reply_to(problem)
            _log_failure(problem, reply.status, action)
        self._count(reply, action)
        _log.info(
            "POST %s %s %d in %.0f ms from %s",
            visible(action[:20]), shown_id(callback_id), reply.status, (time.monotonic() - began_s) * 1e3,
            request.client.host if request.client else "a socket",
        )  # fmt: skip
        return _response(reply)

    async def _taken(self, request: Request, callback_id: str, action: str) -> Reply:
        """Return what is said of an answer that was taken. Errors: whatever `reply_to` knows."""
        options, headers = self._options, request.headers
        if action not in ACTIONS:
            raise Refused(replies.NO_ACTION)
        if not is_callback_id(callback_id):
            raise Refused(replies.NO_CALLBACK)
        signature = headers.get(SIGNATURE_HEADER)
        if options.secrets and not signature:
            raise Refused(replies.UNSIGNED)
        check_headers(dict(headers), options.max_body_bytes)
        with self._room.lent() as shelf:
            body = await read_body(request.stream(), options.max_body_bytes, options.read_timeout_s, shelf)
            if options.secrets and not verify(options.secrets, callback_id, action, body, signature or ""):
                raise Refused(replies.FORGED)
            method, named = understood(action, body)
            try:
                answer = await self._door.answer(method, callback_id, **named)
            except TimeoutError:
                raise Refused(replies.LATE) from None
        return replies.taken(answer)

    async def healthz(self, request: Request) -> Response:
        """GET /healthz: this process answers."""
        return _response(Reply(200, {"ok": True}))

    async def readyz(self, request: Request) -> Response:
        """GET /readyz: the database answers too."""
        try:
            await self._door.ask("get_job", 1)
        except (AwaError, TimeoutError) as problem:
            _log.debug("not ready: %s", problem)
            return _response(Reply(503, {"ok": False, "database": "away"}))
        return _response(Reply(200, {"ok": True, "database": "there"}))

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        body, kind = self._figures.render()
        return Response(body, headers={"Content-Type": kind})

    async def misdirected(self, request: Request, problem: Exception) -> Response:
        """Answer what no route takes: another path, or another method."""
        assert isinstance(problem, HTTPException)
        reply = replies.NO_ACTION
        if problem.status_code == 405:
            allowed = (problem.headers or {}).get("Allow", "POST")
            reply = replies.refusal(
                405, f"{request.method[:20]} is not for this address: {allowed} is", Allow=allowed
            )
        self._count(reply, "")
        _log.info("%s elsewhere %d", visible(request.method[:20]), reply.status)
        return _response(reply)

    def _count(self, reply: Reply, action: str) -> None:
        if reply.status == 200:
            self._figures.took(action)
        else:
            self._figures.refused(reply.status)


def shown_id(callback_id: str) -> str:
    """Return so much of an id as may stand in a log: ids are secrets."""
    return visible(callback_id[:_SHOWN_CHARS]) + "…"


def _response(reply: Reply) -> Response:
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store", **reply.headers}
    return Response(reply.body, reply.status, headers)


def _log_failure(problem: Exception, status: int, action: str) -> None:
    """Log what its sender is not told: the causes of 5xx. None of these texts holds an id."""
    if status < 500:
        return
    if isinstance(problem, FollowUpFailed):
        _log.error("%s: %s", action, visible(str(problem)))
    elif isinstance(problem, Refused):
        _log.warning("%s: %s", action, problem)
    elif isinstance(problem, AwaError):
        _log.warning("%s: %s: %s", action, type(problem).__name__, visible(str(problem)))
    else:
        _log.error("%s failed", action, exc_info=problem)


def _within(value: Any, bounds: tuple[float, float], path: str) -> float:
    if type(value) not in (int, float) or not bounds[0] <= value <= bounds[1]:
        raise ValidationError(f"write a number from {bounds[0]:g} to {bounds[1]:.0f}", path=path)
    return float(value)
