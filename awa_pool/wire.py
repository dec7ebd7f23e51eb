"""Named messages between the processes of one pool, over ZeroMQ; the only module that imports zmq.

A message travels as frames `[type name, JSON list of its fields, payload frames …]`. Sending never blocks: `False`
says that the message cannot be delivered now (peer unknown, gone, or its queue full), and the caller decides what that
means. Receiving never blocks either. What arrives malformed is logged, counted and dropped: a peer cannot end a process.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterable
from typing import Protocol

import orjson
import zmq

from . import faults
from .errors import WireError
from .messages import Message, decode

FRAME_CAP_BYTES = 64 * 1024 * 1024
PATH_LIMIT_BYTES = 107  # sun_path holds 108 bytes with its closing NUL
_QUEUED_MESSAGES = 10_000  # per peer and direction; the windows of the protocol stay far below
_LINGER_MS = 200
_RECONNECT_MS = 10
_RECONNECT_MAX_MS = 500
_POLLIN = int(zmq.POLLIN)  # arithmetic on the enum itself costs a microsecond each time

_log = logging.getLogger(__name__)
_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's own context, made at first use: after the start, never one that crossed a fork, and never
    the library's shared instance, which belongs to handlers."""
    pid = os.getpid()
    if pid not in _contexts:
        _contexts.clear()  # an inherited one may be neither used nor terminated here
        _contexts[pid] = zmq.Context()
    return _contexts[pid]


def terminate() -> None:
    """Close this process's context; bounded by the linger of its sockets."""
    context = _contexts.pop(os.getpid(), None)
    if context is not None:
        context.destroy(linger=_LINGER_MS)


def check_path(path: str) -> str:
    """Return `path` if a local socket can be bound there.

    Errors: WireError naming path, length and limit.
    """
    length = len(os.fsencode(path))
    if length > PATH_LIMIT_BYTES:
        raise WireError(f"socket path {path!r} is {length} bytes long, the limit is {PATH_LIMIT_BYTES}")
    return path


def remove_stale(path: str) -> None:
    """Remove a socket file that an earlier process of this pool left at `path`; other files are refused.

    Errors: WireError when something that is not a socket lies there.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise WireError(f"{path!r} exists and is not a socket")
    os.unlink(path)


class _Wire:
    """What both ends share: options, framing, closing."""

    def __init__(self, path: str, kind: int, identity: str = "") -> None:
        self.path = check_path(path)
        self._courier: faults.Courier | None = None
        if faults.PLAN is not None and faults.PLAN.disturbs_messages:
            name = f"{os.path.basename(path)} {identity}"
            self._courier = faults.Courier(faults.PLAN, name, time.monotonic)
        self.malformed = 0
        """Messages dropped because they could not be read."""
        self._socket = _context().socket(kind)
        for option, value in (
            (zmq.LINGER, _LINGER_MS),
            (zmq.SNDHWM, _QUEUED_MESSAGES),
            (zmq.RCVHWM, _QUEUED_MESSAGES),
            (zmq.MAXMSGSIZE, FRAME_CAP_BYTES),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS),
        ):
            self._socket.setsockopt(option, value)

    @property
    def socket(self) -> zmq.Socket[bytes]:
        """The socket itself, for `Poller` only."""
        return self._socket

    def fileno(self) -> int:
        """Descriptor that becomes readable at an *edge*: after it, receive until None (asyncio lanes use it)."""
        return int(self._socket.getsockopt(zmq.FD))

    def has_mail(self) -> bool:
        """Say whether `receive` would return something, for less than an empty `receive` costs."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _POLLIN)

    def close(self, linger_s: float = _LINGER_MS / 1000) -> None:
        """Close; what is still queued has `linger_s` to leave. A bound path is left for its owner to remove."""
        if not self._socket.closed:
            self._socket.close(linger=int(linger_s * 1000))

    def _send(self, frames: list[bytes]) -> bool:
        for frame in frames:
            if len(frame) > FRAME_CAP_BYTES:
                raise WireError(f"a frame of {len(frame)} bytes exceeds the cap of {FRAME_CAP_BYTES}")
        if self._courier is not None:
            return self._courier.send(frames, self._transmit)
        return self._transmit(frames)

    def _transmit(self, frames: list[bytes]) -> bool:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=True)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def _receive(self) -> list[bytes] | None:
        if self._courier is not None:
            self._courier.release(self._transmit)
        try:
            return self._socket.recv_multipart(zmq.NOBLOCK, copy=True)
        except zmq.Again:
            return None

    def _drop(self, peer: bytes, error: Exception) -> None:
        self.malformed += 1
        _log.warning(
            "dropped a malformed message from %r on %s: %s", peer, os.path.basename(self.path), error
        )


class Router(_Wire):
    """The bound end, to which named peers connect. Errors at binding: WireError."""

    def __init__(self, path: str) -> None:
        remove_stale(check_path(path))
        super().__init__(path, zmq.ROUTER)
        # Mandatory: an unknown peer is an answer (False), not silence. Handover: a peer that reconnects before
        # the loss of its old connection was noticed is let in.
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        try:
            self._socket.bind(f"ipc://{path}")
        except zmq.ZMQError as error:
            self._socket.close(linger=0)
            raise WireError(f"cannot bind {path!r}: {error}") from error

    def send(self, peer: bytes, message: Message, *payload: bytes) -> bool:
        """Queue a message for `peer`. False: that peer is unknown, gone or full.

        Errors: WireError when a frame exceeds the cap.
        """
        return self._send([peer, type(message).__name__.encode(), orjson.dumps(message.to_list()), *payload])

    def receive(self) -> tuple[bytes, Message, list[bytes]] | None:
        """Return the next `(peer, message, payload frames)`, or None when there is none."""
        while (frames := self._receive()) is not None:
            try:
                return frames[0], _decode(frames[1:]), frames[3:]
            except WireError as error:
                self._drop(frames[0], error)
        return None


class Dealer(_Wire):
    """The connecting end; `identity` names it to the router and is never used by another process or start."""

    def __init__(self, path: str, identity: str) -> None:
        super().__init__(path, zmq.DEALER, identity)
        self.identity = identity.encode()
        self._socket.setsockopt(zmq.IDENTITY, self.identity)
        self._socket.connect(f"ipc://{path}")

    def send(self, message: Message, *payload: bytes) -> bool:
        """Queue a message for the router, connected or not. False: the queue is full.

        Errors: WireError when a frame exceeds the cap.
        """
        return self._send([type(message).__name__.encode(), orjson.dumps(message.to_list()), *payload])

    def receive(self) -> tuple[bytes, Message, list[bytes]] | None:
        """Return the next `(b"", message, payload frames)`, or None when there is none."""
        while (frames := self._receive()) is not None:
            try:
                return b"", _decode(frames), frames[2:]
            except WireError as error:
                self._drop(b"", error)
        return None


def _decode(frames: list[bytes]) -> Message:
    if len(frames) < 2:
        raise WireError(f"{len(frames)} frames where at least 2 belong")
    try:
        return decode(frames[0].decode(), orjson.loads(frames[1]))
    except (UnicodeDecodeError, orjson.JSONDecodeError) as error:
        raise WireError(f"unreadable message: {error}") from error


class Readable(Protocol):
    """Anything with a descriptor to read from: a control pipe, a store thread's wake end."""

    def fileno(self) -> int: ...


class Poller:
    """Waits until wires or descriptors can be read. Signals and stop/continue do not end a wait early."""

    def __init__(self, sources: Iterable[_Wire | Readable] = ()) -> None:
        self._poller = zmq.Poller()
        self._owners: dict[object, _Wire | Readable] = {}
        for source in sources:
            self.add(source)

    def add(self, source: _Wire | Readable) -> None:
        """Watch `source` too."""
        key: zmq.Socket[bytes] | int = source.socket if isinstance(source, _Wire) else source.fileno()
        self._poller.register(key, zmq.POLLIN)
        self._owners[key] = source

    def remove(self, source: _Wire | Readable) -> None:
        """Watch `source` no longer; unknown ones are ignored. Call it before closing the source."""
        for key in [key for key, owner in self._owners.items() if owner is source]:
            del self._owners[key]
            self._poller.unregister(key)

    def wait(self, timeout_s: float | None) -> list[_Wire | Readable]:
        """Return the sources that can be read (an end-of-file counts), `[]` when the time is over.

        `None` waits without end; a time below a millisecond is rounded up, so that no loop spins.
        """
        if timeout_s is None:
            return [self._owners[key] for key, _ in self._poller.poll(None)]
        timeout_ms = 0 if timeout_s <= 0 else max(1, int(timeout_s * 1000))
        return [self._owners[key] for key, _ in self._poller.poll(timeout_ms)]


def wait_for_mail(wire: _Wire, timeout_s: float) -> bool:
    """Wait until `wire` has something to receive; False when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while not wire.has_mail():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        wire.socket.poll(max(1, int(left_s * 1000)))
    return True
