"""Bodies as they come in: bounded in size before they are whole, in time, and all together in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from .replies import BUSY, NOT_JSON, TOO_SLOW, Refused, too_large

ALL_BODIES_BYTES = 64 * 1024 * 1024


class Room:
    """The memory that bodies on their way may take together."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes

    @contextlib.contextmanager
    def lent(self) -> Iterator[Shelf]:
        """Lend a shelf that is given back in the end."""
        shelf = Shelf(self)
        try:
            yield shelf
        finally:
            self._left += shelf.taken
            shelf.taken = 0

    def take(self, size: int) -> bool:
        """Take so many bytes, if they are there."""
        if size > self._left:
            return False
        self._left -= size
        return True


class Shelf:
    """What one request holds of it."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.taken = 0

    def put(self, size: int) -> None:
        """Make place for so many bytes more. Errors: Refused, when all others hold too much."""
        if not self._room.take(size):
            raise Refused(BUSY)
        self.taken += size


def check_headers(headers: dict[str, str], limit_bytes: int) -> None:
    """Refuse by its headers alone what need not be read. Names are in lower case. Errors: Refused."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limit_bytes:
        raise Refused(too_large(limit_bytes))
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(NOT_JSON)
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = length not in ("", "0") or "transfer-encoding" in headers
    if has_body and media and media != "application/json" and not media.endswith("+json"):
        raise Refused(NOT_JSON)


async def read_body(chunks: AsyncIterator[bytes], limit_bytes: int, read_s: float, shelf: Shelf) -> bytes:
    """Return a whole body of at most that size, if it comes within that time. Errors: Refused."""
    body = bytearray()
    try:
        async with asyncio.timeout(read_s):
            async for chunk in chunks:
                if len(body) + len(chunk) > limit_bytes:
                    raise Refused(too_large(limit_bytes))
                shelf.put(len(chunk))
                body += chunk
    except TimeoutError:
        raise Refused(TOO_SLOW) from None
    return bytes(body)
