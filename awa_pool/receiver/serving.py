"""The receiver as a process of its own: its socket, its client, its signals."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial

import uvicorn

from awa_pool.client import Client
from awa_pool.errors import ConfigError, StoreUnavailable
from awa_pool.registry import Registry
from awa_pool.store.connection import connect
from awa_pool.store.pool import Pool

from .app import Options, make_app
from .connections import bounded
from .doors import Threads
from .signing import ACTIONS

CONNECTIONS = 8
MOST_PEERS = 1000
SPARE_DESCRIPTORS = 64
STATEMENT_S = 10.0
GRACE_S = 8
"""What is under way when a stop comes has so long; container runtimes kill after ten seconds."""
BACKLOG = 512
_log = logging.getLogger("awa_pool.receiver")
_opening = threading.Lock()


class PatientClient(Client):
    """A client whose every statement has an end, so that no thread is lost to a database that keeps silent."""

    def _opened(self) -> Pool:
        with _opening:
            if self._pool is None:
                make = partial(connect, self._found_dsn(), self.schema, "callbacks", answer_s=STATEMENT_S)
                self._pool = Pool(make, CONNECTIONS)
            pool: Pool = self._pool
        return pool


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens there. Errors: ConfigError naming address and cause."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)  # named, else asyncio does not set TCP_NODELAY
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
    except (OSError, UnicodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "no such host"
        raise ConfigError(
            f"cannot listen on {host} port {port}: {why}; choose another --host or --port"
        ) from None
    return found


def is_loopback(host: str) -> bool:
    """Tell whether only this host can reach that address; a name counts if all its addresses do."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        return bool(found) and all(
            ipaddress.ip_address(str(text).partition("%")[0]).is_loopback for text in found
        )
    except (OSError, UnicodeError, ValueError):
        return False


def serve(
    dsn: str, schema: str, registry: Registry | None, options: Options, listening: socket.socket
) -> int:
    """Answer until a stop signal comes, and then what is under way; returns the exit status.

    Errors: SchemaMismatch; a database that is away is waited for.
    """
    try:
        connect(dsn, schema, "callbacks", answer_s=STATEMENT_S).close()
    except StoreUnavailable as problem:
        _log.warning("the database is away, and every answer refused until it is back: %s", problem)
    client = PatientClient(dsn, schema=schema)
    if registry is not None:
        client.registry = registry
    door = Threads(client, CONNECTIONS)
    server = _Server(_config(make_app(door, options), options.read_timeout_s))
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _log.info("listening on http://%s:%d%s/ID/%s", shown, port, options.prefix, "|".join(ACTIONS))
    asyncio.run(server.serve(sockets=[listening]))
    _leave(client, door)
    return 0


def _config(app: object, read_s: float) -> uvicorn.Config:
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # the app logs for itself, without ids
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MOST_PEERS if descriptors < 0 else max(1, min(MOST_PEERS, descriptors - SPARE_DESCRIPTORS))
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=bounded(read_s, most),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )


class _Server(uvicorn.Server):
    """uvicorn's, which leaves signals to us: they end in order here, with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = [
            n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN
        ]
        for number in numbers:
            loop.add_signal_handler(number, self._stop, number)
        yield

    def _stop(self, number: signal.Signals) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        _log.info("%s: what is under way is answered, nothing new is taken", signal.Signals(number).name)
        self.should_exit = True


def _leave(client: Client, door: Threads) -> None:
    """Close the connections; a thread that the stop has overtaken in a statement is left behind."""
    client.close()
    _log.info("stopped")
    if door.under_way:
        _log.warning("%d answers were cut short: their senders will send them again", door.under_way)
        logging.shutdown()
        os._exit(0)  # the interpreter would wait for them
