"""The process that workers are forked from, with the app preloaded: one thread, no sockets of others, no work.

It answers once with a report, then forks a worker for each request (a number, with two descriptors: the worker's end
of its control pipe, and the write end of its status pipe, on which pid (or a negative error number) and later exit status and
peak memory go back). It ends when
its parent's end of the socket is closed; the kernel then kills the workers (Linux; elsewhere their control pipes end).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import resource  # noqa: F401 (os.wait4 imports it when first called, which needs a free descriptor)
import select
import signal
import socket
import struct
import sys
import threading
from typing import Any

import orjson
from multiprocess import get_context, popen_fork
from multiprocess.connection import Connection

from awa_pool.errors import ConfigError

from . import guard
from .loading import load_named
from .process import die_with_parent, disregard_stop_signals, dump_on_crash, open_sockets, other_threads

STATUS = struct.Struct("=q")
REQUEST = struct.Struct("=q")
EXIT = struct.Struct("=qq")  # status as `multiprocess` tells it, peak resident memory in bytes
_WORKER_MODULE = "awa_pool.worker.main"
_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # what the unit of ru_maxrss is


def serve(connection: Any, app: str | None, parent_pid: int | None) -> None:
    """Be the fork server of the process at the other end of `connection`."""
    guard.mark_child()
    if parent_pid is not None:
        die_with_parent(parent_pid)
    disregard_stop_signals()
    dump_on_crash()
    requests = socket.socket(fileno=os.dup(connection.fileno()))
    connection.close()
    report = _preload(app)
    requests.sendall(orjson.dumps(report) + b"\n")
    if report["unfit"] is None:
        _Server(requests).run()


def _preload(app: str | None) -> dict[str, str | None]:
    """Import the worker's modules and the app; returns `{error, unfit}`.

    `error`: the app cannot be imported (its workers will meet and report the same). `unfit`: forking from here is not
    safe, and why.
    """
    sockets = open_sockets()
    error: str | None = None
    importlib.import_module(_WORKER_MODULE)
    if app:
        try:
            load_named(app)
        except ConfigError as problem:
            error = str(problem)
    gc.collect()
    gc.freeze()  # collections in workers leave what they share alone
    return {"error": error, "unfit": _unfitness(app, len(open_sockets() - sockets))}


def _unfitness(app: str | None, sockets: int) -> str | None:
    """Say why forking from here is not safe; None when it is."""
    threads = other_threads()
    if threads:
        started = f"importing {app} started {threads} thread{'s' if threads > 1 else ''}"
        if threading.active_count() > 1:
            return started
        return (
            f"{started} of a native library (numeric ones obey OPENBLAS_NUM_THREADS=1 or OMP_NUM_THREADS=1)"
        )
    if sockets:
        return f"importing {app} opened {sockets} socket{'s' if sockets > 1 else ''}"
    return None


class _Popen(popen_fork.Popen):  # type: ignore[misc]
    """Takes in a dead child with what it used: only this moment can tell the peak of one that died suddenly."""

    peak_bytes = 0
    returncode: int | None

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit status, None while it runs."""
        if self.returncode is None:
            try:
                pid, status, usage = os.wait4(self.pid, flag)
            except OSError:
                return None
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self.peak_bytes = usage.ru_maxrss * _MAXRSS_BYTES
        return self.returncode


class _Worker(get_context("fork").Process):  # type: ignore[misc]
    """A worker as its fork server sees it."""

    _Popen = staticmethod(_Popen)

    @property
    def peak_bytes(self) -> int:
        """Peak resident memory; known after the end."""
        return int(self._popen.peak_bytes)


class _Server:
    """Forks on request and reports exits."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._workers: dict[Any, int] = {}
        """Process -> the write end of its status pipe."""
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> None:
        """Serve until the other end is closed."""
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with the descriptor below: it ends the wait
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._requests, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                    self._report_exits()
                elif not self._take_request():
                    # No way out through the interpreter's exit: it would wait for the workers, which the end of
                    # this process is to end.
                    os._exit(0)

    def _take_request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST.size, 2)
        if not data:
            return False
        (number,) = REQUEST.unpack(data)
        if len(descriptors) != 2:  # the limit of open files cut them off: the other side sees its pipes end
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        control, status = descriptors
        process = _Worker(
            target=_be_worker, args=(self, control, status, os.getpid()), name=f"awa-pool-worker-{number}"
        )
        try:
            process.start()
        except OSError as error:
            _write(status, -(error.errno or errno.EAGAIN))
            os.close(status)
            os.close(control)
            return True
        os.close(control)
        self._workers[process] = status
        _write(status, process.pid)
        return True

    def _report_exits(self) -> None:
        for process, status in [*self._workers.items()]:
            code = process.exitcode
            if code is not None:
                del self._workers[process]
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, EXIT.pack(code, process.peak_bytes))
                os.close(status)
                process.close()

    def close_in_child(self, status: int) -> None:
        """Close what belongs to the server alone: an inherited end would hide its end from those who wait for it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._requests.close()
        for descriptor in (self._wake_read, self._wake_write, status, *self._workers.values()):
            os.close(descriptor)
        self._workers.clear()


def _be_worker(server: _Server, control: int, status: int, parent_pid: int) -> None:
    server.close_in_child(status)
    sys.modules[_WORKER_MODULE].run(Connection(control), parent_pid)


def _write(status: int, value: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever wanted to know has gone
        os.write(status, STATUS.pack(value))
