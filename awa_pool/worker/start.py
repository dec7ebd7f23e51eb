"""Starts worker processes: from a fork server with the app preloaded, or by spawning where that is not safe.

Nothing started here imports the parent's `__main__`. For the supervisor's main thread (on Linux, what it starts is
killed by the kernel when that thread ends).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson
from multiprocess import get_context
from multiprocess.connection import Connection

from awa_pool.control import ControlPipe
from awa_pool.errors import BootFailed, ConfigError

from . import forkserver, main
from .process import stop_signals_held

METHODS = ("forkserver", "spawn")
PRELOAD_DEADLINE_S = 60.0
_GONE_S = 5.0
_ANSWER_S = 20.0
_ENDING_S = 0.2

_log = logging.getLogger(__name__)


class Process(Protocol):
    """What a started process can be asked; `multiprocess.Process` is one."""

    @property
    def pid(self) -> int | None: ...

    @property
    def exitcode(self) -> int | None: ...

    @property
    def sentinel(self) -> int: ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class ForkedWorker:
    """A worker that a fork server has started, with the manners of a `multiprocess.Process`."""

    def __init__(self, status: int, pid: int) -> None:
        self.pid = pid
        self.sentinel = status
        """Descriptor that becomes readable when the worker (or its fork server) has ended."""
        self.peak_bytes = 0
        """Peak resident memory; 0 while it runs, and when its fork server has ended."""
        self._exitcode: int | None = None

    @property
    def exitcode(self) -> int | None:
        """The exit status, minus the number of the signal that ended it, or None while it runs."""
        if self._exitcode is None and _readable(self.sentinel, 0.0):
            data = os.read(self.sentinel, forkserver.EXIT.size)
            # Nothing: the fork server is gone, and the kernel has killed its workers.
            self._exitcode = -signal.SIGKILL
            if data:
                self._exitcode, self.peak_bytes = forkserver.EXIT.unpack(data)
        return self._exitcode

    def is_alive(self) -> bool:
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most `timeout` seconds."""
        if self._exitcode is None:
            _readable(self.sentinel, timeout)
            _ = self.exitcode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptor back; call it once, after the end."""
        os.close(self.sentinel)

    def _signal(self, signum: int) -> None:
        if self.exitcode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)


class WorkerStarter:
    """Starts workers one by one.

    `method` "forkserver" falls back to "spawn", with one warning, when importing the app starts threads, opens
    sockets, ends the server or takes longer than `preload_deadline_s`. An app that cannot be imported is reported by
    each worker (`Fatal`), whatever the method; `preload_error` holds the reason too.
    """

    def __init__(
        self,
        method: str = "forkserver",
        app: str | None = None,
        preload_deadline_s: float = PRELOAD_DEADLINE_S,
    ) -> None:
        """`app` is "module:attribute"; None where there is none to import. Errors: ConfigError for the method."""
        if method not in METHODS:
            raise ConfigError(f"start method {method!r} is none of {', '.join(METHODS)}")
        self.method = method
        self.preload_error: str | None = None
        self._app = app
        self._deadline_s = preload_deadline_s
        self._server: Any = None
        self._requests: socket.socket | None = None

    def start(self, worker_number: int) -> tuple[Process, ControlPipe]:
        """Start a worker; it waits for `Configure` on the pipe.

        Blocks while the fork server preloads (at its first start and after its death), at most the deadline.
        Errors: BootFailed when the system refuses another process.
        """
        if self.method == "forkserver":
            self._ensure_server()
        try:
            if self.method == "forkserver":
                return self._fork(worker_number)
            ours, theirs = _control_pair()
            process = spawn(main.run, (theirs, _death_parent()), f"awa-pool-worker-{worker_number}")
        except OSError as error:
            raise BootFailed(f"worker {worker_number} cannot be started: {error}") from error
        theirs.close()
        return process, ControlPipe(ours)

    def keep_going(self) -> None:
        """Wake a fork server that a signal has stopped: it starts nobody and cannot say who has ended. From any thread."""
        server = self._server
        if server is not None and server.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
                os.kill(server.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the fork server, and with it the workers that it started (Linux; elsewhere their pipes end them)."""
        requests, server = self._requests, self._server
        self._requests = self._server = None
        if requests is not None:
            requests.close()
        if server is not None:
            server.join(_GONE_S)
            if server.is_alive():
                server.kill()
                server.join(_GONE_S)
            server.close()

    def _fork(self, number: int) -> tuple[Process, ControlPipe]:
        assert self._requests is not None
        ours, theirs = _control_pair()
        status_read, status_write = os.pipe()
        try:
            request = forkserver.REQUEST.pack(number)
            socket.send_fds(self._requests, [request], [theirs.fileno(), status_write])
        except OSError:
            os.close(status_read)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(status_write)
        answer = self._answer(status_read)
        if isinstance(answer, int):
            return ForkedWorker(status_read, answer), ControlPipe(ours)
        os.close(status_read)
        ours.close()
        raise BootFailed(f"worker {number} cannot be started: {answer}")

    def _answer(self, status: int) -> int | str:
        """Read the fork server's answer: the pid, or what is wrong."""
        if not _readable(status, _ANSWER_S):
            self._server.kill()
            self.close()
            return f"the fork server did not answer within {_ANSWER_S:g} s"
        data = os.read(status, forkserver.STATUS.size)
        if data:
            pid: int = forkserver.STATUS.unpack(data)[0]
            return pid if pid > 0 else os.strerror(-pid)
        self._server.join(_ENDING_S)
        if self._server.is_alive():
            return "the fork server has reached its limit of open files"
        self.close()
        return "the fork server has ended"

    def _ensure_server(self) -> None:
        if self._server is not None:
            if self._server.is_alive():
                return
            _log.warning("the fork server has ended (status %s): starting another", self._server.exitcode)
            self.close()
        ours, theirs = socket.socketpair()
        connection = Connection(theirs.detach())
        self._server = spawn(
            forkserver.serve, (connection, self._app, _death_parent()), "awa-pool-forkserver"
        )
        connection.close()
        self._requests = ours
        report = self._report(ours)
        self.preload_error = report["error"]
        if report["unfit"] is not None:
            _log.warning("workers are spawned, not forked, which takes longer: %s", report["unfit"])
            if self._server.is_alive():
                self._server.kill()
            self.close()
            self.method = "spawn"

    def _report(self, requests: socket.socket) -> dict[str, str | None]:
        until_s = time.monotonic() + self._deadline_s
        data = b""
        while not data.endswith(b"\n"):
            if not _readable(requests.fileno(), max(0.0, until_s - time.monotonic())):
                return {
                    "error": None,
                    "unfit": f"importing {self._app} took longer than {self._deadline_s:g} s",
                }
            part = requests.recv(65536)
            if not part:
                self._server.join(_GONE_S)
                status = self._server.exitcode
                return {
                    "error": None,
                    "unfit": f"importing {self._app} ended the fork server (status {status})",
                }
            data += part
        report: dict[str, str | None] = orjson.loads(data)
        return report


def spawn(target: Callable[..., object], args: tuple[Any, ...], name: str) -> Any:
    """Start a fresh interpreter that calls a module-level function; returns the `multiprocess` process.

    It does not import the parent's `__main__`, is not daemonic, and holds SIGINT and SIGTERM back until it has
    decided what to do about them.
    """
    process = get_context("spawn").Process(target=target, args=args, name=name)
    with stop_signals_held(), _without_main():
        process.start()
    return process


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hide `__main__` from what describes this process to a spawned child, which would import it."""
    hidden = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = hidden


def _control_pair() -> tuple[Any, Any]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


_lasting = threading.local()


def declare_lasting_thread() -> None:
    """Say that the calling thread outlives what it starts, so that children may be tied to it."""
    _lasting.declared = True


def _death_parent() -> int | None:
    """Return our pid for a child to die with, only on a thread that lasts: another one may end before the process."""
    lasts = threading.current_thread() is threading.main_thread() or getattr(_lasting, "declared", False)
    return os.getpid() if lasts else None


def _readable(descriptor: int, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else int(timeout_s * 1000)))
