"""The server's side of a connection, where it bounds what a client may do before there is a request to answer.

uvicorn limits the size of headers, and closes what has been silent after an answer. It waits for ever for headers that
come slowly or not at all, and takes any number of connections. What it refuses itself it refuses as JSON here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import replies
from .replies import Reply

_REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}
_MALFORMED = replies.refusal(
    400, "this is no HTTP/1.1 request, its headers are too long, or its chunks are malformed"
)


class BoundedProtocol(H11Protocol):
    """One connection."""

    read_s = 10.0
    most = 1000
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room for one more."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._end_with(replies.BUSY)
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        """Give the next request its time."""
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read."""
        self._end_with(_MALFORMED)

    def _watch(self) -> None:
        """Start the clock of headers on their way; a request that has its headers is the app's matter."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.read_s, self._end_with, replies.TOO_SLOW)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _body_is_coming(self) -> bool:
        """The body of a request that has no answer yet is on its way."""
        cycle = self.cycle
        return cycle is not None and cycle.more_body and not cycle.response_started

    def _end_with(self, reply: Reply) -> None:
        """Say so if nothing has been said yet that this would break into, and close."""
        self._stop_watching()
        if self.transport.is_closing():
            return
        if self._body_is_coming:
            # This is the answer to its request: the app, which may wait for the rest, is told that nobody hears another.
            self.transport.write(_raw(reply))
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self.conn.our_state is h11.IDLE:
            self.transport.write(_raw(reply))
        self.transport.close()


def bounded(read_s: float, most: int) -> type[BoundedProtocol]:
    """Return a protocol whose connections have that long for headers, and of which there are so many at once."""
    fields: dict[str, Any] = {"read_s": read_s, "most": most}
    return type("Bounded", (BoundedProtocol,), fields)


def _raw(reply: Reply) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **replies.CLOSE}.items()]
    return "\r\n".join([*lines, "", ""]).encode() + reply.body
