"""The way from the event loop to the client: an `AsyncClient` is awaited, a `Client` called in a few threads of its own.

Specs and hooks are plain functions that may block, so a synchronous client is the better one here; as many threads as its
pool has connections, so that none waits for another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from awa_pool.client import AsyncClient, Client
from awa_pool.errors import ConfigError

from .replies import UNDER_WAY, Refused

THREADS = 4
ANSWER_S = 20.0


class Door(Protocol):
    """Gives calls to a client, and waits no longer than `ANSWER_S`. Errors: the client's; TimeoutError."""

    async def answer(self, method: str, callback_id: str, **named: Any) -> Any:
        """Give an answer. Errors: also Refused, while another to the same callback is under way."""

    async def ask(self, method: str, *args: Any) -> Any:
        """Ask the database something."""


def door_to(client: Any) -> Door:
    """Return the way to a client. Errors: ConfigError for what is none."""
    if isinstance(client, AsyncClient):
        return _Awaited(client)
    if isinstance(client, Client):
        return Threads(client)
    raise ConfigError(f"expected an awa_pool.Client or AsyncClient, got {type(client).__name__}")


class _Answering:
    """The callbacks that are being answered, each by one: where somebody's open transaction holds one, its sender may repeat
    itself as often as it likes, and takes one thread or connection."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def begin(self, callback_id: str) -> Callable[[], None]:
        """Return what is to be called at the end. Errors: Refused."""
        key = callback_id.lower()
        if key in self._ids:
            raise Refused(UNDER_WAY)
        self._ids.add(key)
        return partial(self._ids.discard, key)


class _Awaited:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._answering = _Answering()

    async def answer(self, method: str, callback_id: str, **named: Any) -> Any:
        over = self._answering.begin(callback_id)
        try:
            return await self.ask(method, callback_id, **named)
        finally:
            over()

    async def ask(self, method: str, *args: Any, **named: Any) -> Any:
        async with asyncio.timeout(ANSWER_S):
            return await getattr(self._client, method)(*args, **named)


class Threads:
    """A synchronous client and its threads."""

    def __init__(self, client: Client, threads: int = THREADS) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(threads, "awa-callbacks")
        self._under_way: set[Future[Any]] = set()
        self._answering = _Answering()

    @property
    def under_way(self) -> int:
        """How many calls have not ended, whether or not anybody still waits for them."""
        return len(self._under_way)

    async def answer(self, method: str, callback_id: str, **named: Any) -> Any:
        """Give an answer; it is under way until its call has ended, also when nobody waits for that any more."""
        over = self._answering.begin(callback_id)
        try:
            future = self._submitted(method, callback_id, **named)
        except BaseException:
            over()
            raise
        future.add_done_callback(lambda _: over())
        return await _heard(future)

    async def ask(self, method: str, *args: Any) -> Any:
        return await _heard(self._submitted(method, *args))

    def _submitted(self, method: str, *args: Any, **named: Any) -> Future[Any]:
        future = self._threads.submit(_called, partial(getattr(self._client, method), *args, **named))
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future


async def _heard(future: Future[Any]) -> Any:
    """Wait for a call; one that has not begun when the time is over is taken back, another goes on unheard."""
    async with asyncio.timeout(ANSWER_S):
        return await asyncio.wrap_future(future)


def _called(call: Callable[[], Any]) -> Any:
    """Call the client; what would end the event loop, or look like its own cancelling, comes as an error like any other."""
    try:
        return call()
    except Exception:
        raise
    except BaseException as problem:
        raise RuntimeError(f"user code raised {type(problem).__name__}") from problem
