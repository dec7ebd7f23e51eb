"""The pipe between the supervisor and each child: JSON documents, never pickled, and an end-of-file that means
"the other side is gone".

Frames are those of `Connection.send_bytes` (four bytes of length, big-endian, then the document), written without
ever blocking: what the pipe cannot take now waits in memory, only `Stats` are dropped instead.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import deque
from typing import Protocol

import orjson

from .errors import WireError
from .messages import Message, Stats, decode

_LENGTH = struct.Struct("!i")
_DOCUMENT_CAP_BYTES = 64 * 1024 * 1024
_BACKLOG_CAP_BYTES = 16 * 1024 * 1024
_READ_BYTES = 64 * 1024


class Connection(Protocol):
    """One end of a duplex `multiprocess.Pipe()`."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class ControlPipe:
    """One end of the pipe; takes the connection over (and closes the object that was given).

    Use it from one thread. `closed` turns true when the other side is gone, after all that it sent was received.
    """

    def __init__(self, connection: Connection) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(False)
        connection.close()
        self._inbound = bytearray()
        self._outbound: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._ended = False
        self.closed = False

    def fileno(self) -> int:
        """Descriptor that is readable when a message or the end-of-file has come."""
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Send, or keep until the pipe has room. False: dropped, as the other side is gone or Stats found no room.

        Errors: WireError when the other side has not read for so long that the backlog exceeds its bound.
        """
        self.flush()
        if self.closed or self._ended or (self._outbound and isinstance(message, Stats)):
            return False
        document = orjson.dumps([type(message).__name__, message.to_list()])
        if self._backlog_bytes + len(document) > _BACKLOG_CAP_BYTES and self._outbound:
            raise WireError(f"the control pipe was not read for {self._backlog_bytes} bytes")
        self._outbound.append(_LENGTH.pack(len(document)) + document)
        self._backlog_bytes += len(document) + _LENGTH.size
        self.flush()
        return True

    def flush(self, timeout_s: float = 0.0) -> bool:
        """Write what is kept, waiting up to `timeout_s` for room; True when nothing is left."""
        deadline_s = time.monotonic() + timeout_s
        while self._outbound and not self._ended:
            try:
                written = self._socket.send(self._outbound[0])
            except BlockingIOError:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._wait_for(select.POLLOUT, left_s)
                continue
            except OSError:  # the reader is gone; what it sent before may still be read
                self._ended = True
                break
            self._backlog_bytes -= written
            rest = self._outbound[0][written:]
            if rest:
                self._outbound[0] = rest
            else:
                self._outbound.popleft()
        return not self._outbound

    def receive(self) -> Message | None:
        """Return the next message, or None when there is none (or, see `closed`, will be none).

        Errors: WireError or UnknownMessage for a document that is not one of ours.
        """
        self.flush()
        while (document := self._next_document()) is None:
            if self.closed or not self._read():
                return None
        try:
            values = orjson.loads(document)
        except orjson.JSONDecodeError as error:
            raise WireError(f"unreadable control message: {error}") from error
        if not isinstance(values, list) or len(values) != 2 or not isinstance(values[0], str):
            raise WireError("a control message is [name, fields]")
        return decode(values[0], values[1])

    def wait(self, timeout_s: float) -> Message | None:
        """Return the next message, waiting up to `timeout_s` for it; None when the time is over or `closed`."""
        deadline_s = time.monotonic() + timeout_s
        while (message := self.receive()) is None and not self.closed:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return None
            self._wait_for(select.POLLIN | (select.POLLOUT if self._outbound else 0), left_s)
        return message

    def close(self) -> None:
        """Close this end: the other side sees the end-of-file."""
        self.closed = True
        self._socket.close()

    def _wait_for(self, events: int, timeout_s: float) -> None:
        poll = select.poll()  # select() itself fails beyond 1,024 descriptors
        poll.register(self._socket, events)
        poll.poll(max(1, int(timeout_s * 1000)))

    def _next_document(self) -> bytes | None:
        if len(self._inbound) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._inbound)
        if not 0 <= length <= _DOCUMENT_CAP_BYTES:
            raise WireError(f"a control message of {length} bytes")
        end = _LENGTH.size + length
        if len(self._inbound) < end:
            return None
        document = bytes(self._inbound[_LENGTH.size : end])
        del self._inbound[:end]
        return document

    def _read(self) -> bool:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        self._inbound += data
        return True
