"""A TCP proxy in front of a test server, which can cut, freeze, slow down and refuse what goes through it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from servers import Server

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
_SECONDS = 10.0


class Proxy:
    """Runs on a thread of its own; every method may be called from any.

    `delay_s` holds each piece of data for so long. `connections` counts those made so far.
    """

    def __init__(self, server: Server) -> None:
        self._target = str(Path(server.socket_dir, ".s.PGSQL.5432"))
        self.delay_s = 0.0
        self.connections = 0
        self.cuts = 0
        """Answers that a trap has swallowed, each with its connection."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._trap: tuple[bytes, int] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flowing = self._do(self._event)
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.accept()

    def dsn(self, dsn: str) -> str:
        """Return a DSN of the server, leading through this proxy."""
        words = [word for word in dsn.split() if not word.startswith(("host=", "port="))]
        return " ".join(["host=127.0.0.1", f"port={self.port}", *words])

    def cut(self) -> None:
        """Reset every connection."""
        self._do(self._cut)

    def freeze(self) -> None:
        """Take connections and data, and pass nothing on."""
        self._do(self._flowing.clear)

    def thaw(self) -> None:
        """Pass on again, what has been held back first."""
        self._do(self._flowing.set)

    def refuse(self) -> None:
        """Take no connection any more; those that are there stay."""

        def stop() -> None:
            if self._listener is not None:
                self._listener.close()
                self._listener = None

        self._do(stop)

    def accept(self) -> None:
        """Take connections, on the same port as ever."""
        self._listener = self._run(asyncio.start_server(self._serve, "127.0.0.1", self.port))
        self.port = self._listener.sockets[0].getsockname()[1]

    def swallow_answers(self, pattern: bytes, times: int = 1) -> None:
        """Cut the connection instead of passing on the answer to what holds this pattern, so many times.

        The server has done what it was asked then, and the client does not know.
        """
        self._trap = (pattern, times)

    def close(self) -> None:
        self.refuse()
        self.thaw()
        self.cut()
        self._run(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    # --- on the loop

    def _do(self, call: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return call()

        return self._run(called())

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_SECONDS)

    @staticmethod
    def _event() -> asyncio.Event:
        event = asyncio.Event()
        event.set()
        return event

    def _cut(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _settle(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            await self._flowing.wait()
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:
            _reset(writer)
        else:
            caught = asyncio.Event()
            pumps = [
                asyncio.create_task(self._pump(reader, back, writer, caught, asks=True)),
                asyncio.create_task(self._pump(there, writer, writer, caught, asks=False)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                back.close()
                with contextlib.suppress(OSError):
                    await back.wait_closed()
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        caught: asyncio.Event,
        *,
        asks: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._flowing.wait()
                if asks and self._trap is not None and self._trap[0] in data:
                    pattern, times = self._trap
                    self._trap = (pattern, times - 1) if times > 1 else None
                    caught.set()
                elif not asks and caught.is_set():
                    self.cuts += 1
                    _reset(client)
                    return
                sink.write(data)
                await sink.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0 and sock.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@contextlib.contextmanager
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy for the time of a block."""
    running = Proxy(server)
    try:
        yield running
    finally:
        running.close()
