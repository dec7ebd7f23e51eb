"""The way from the event loop to the client: an `AsyncClient` is awaited, a `Client` called in a few threads of its own.

Specs and hooks are plain functions that may block, so a synchronous client is the better one here; as many threads as its
pool has connections, so that none waits for another's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from awa_pool.client import AsyncClient, Client
from awa_pool.errors import ConfigError

THREADS = 4
ANSWER_S = 20.0


class Door(Protocol):
    """Gives one call to a client, and waits no longer than `ANSWER_S`. Errors: the client's; TimeoutError."""

    async def call(self, method: str, *args: Any, **named: Any) -> Any: ...


def door_to(client: Any) -> Door:
    """Return the way to a client. Errors: ConfigError for what is none."""
    if isinstance(client, AsyncClient):
        return _Awaited(client)
    if isinstance(client, Client):
        return Threads(client)
    raise ConfigError(f"expected an awa_pool.Client or AsyncClient, got {type(client).__name__}")


class _Awaited:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def call(self, method: str, *args: Any, **named: Any) -> Any:
        async with asyncio.timeout(ANSWER_S):
            return await getattr(self._client, method)(*args, **named)


class Threads:
    """A synchronous client and its threads."""

    def __init__(self, client: Client, threads: int = THREADS) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(threads, "awa-callbacks")
        self._under_way: set[Future[Any]] = set()

    @property
    def under_way(self) -> int:
        """How many calls have not ended, whether or not anybody still waits for them."""
        return len(self._under_way)

    async def call(self, method: str, *args: Any, **named: Any) -> Any:
        """Call a method of the client; one that has not begun when the time is over is taken back, another goes on unheard."""
        future = self._threads.submit(getattr(self._client, method), *args, **named)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.wrap_future(future)
