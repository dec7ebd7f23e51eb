"""What makes a process a worker process: signals, session, tie to its parent, random state, crash dumps."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Iterator
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_forked = False


def _pass_over(signum: int, frame: FrameType | None) -> None:
    """A stop signal is the supervisor's business; it tells its children by pipe."""


def disregard_stop_signals() -> None:
    """Let stop signals pass without effect in this process, yet not in processes that handlers start.

    A handler that does nothing, not SIG_IGN: programs started with exec would inherit the latter and could not be
    stopped politely. Forked children get the usual behaviour back, so that `Pool.terminate()` works in handlers.
    """
    for signum in STOP_SIGNALS:
        signal.signal(signum, _pass_over)
        signal.siginterrupt(signum, False)  # native code in handlers does not have to expect EINTR
    os.register_at_fork(after_in_child=_after_fork)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def leave_if_forked() -> None:
    """End this process if it is a fork that a handler made and came home in: only the original is the worker, and
    sockets, page and pipe are its own."""
    if _forked:
        os._exit(0)


def _after_fork() -> None:
    global _forked
    _forked = True
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is _pass_over:
            signal.signal(signum, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is _pass_over:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def stop_signals_held() -> Iterator[None]:
    """Hold stop signals back in what is started within, until it calls `disregard_stop_signals` itself.

    So a Ctrl-C at the whole group does not kill a child that is still booting.
    """
    from multiprocess import resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    # The first child brings `multiprocess`'s tracker along, whose start ends with SIGINT and SIGTERM unblocked here.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; Linux only, elsewhere nothing happens.

    A parent that has gone already ends this process here.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def become_worker(parent_pid: int | None) -> None:
    """Turn this process into a worker process: a session of its own, deaf to stop signals, dying with its parent."""
    global _forked
    _forked = False  # the fork server has made this one: it is a worker, not a stray
    if parent_pid is not None:
        die_with_parent(parent_pid)
    with contextlib.suppress(PermissionError):  # it leads a group already
        os.setsid()
    disregard_stop_signals()
    dump_on_crash()


def dump_on_crash() -> None:
    """Print tracebacks of all threads on a fatal signal, and on SIGUSR1 (then go on)."""
    with contextlib.suppress(ValueError, OSError, AttributeError):  # standard error is closed or replaced
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)


def reseed() -> None:
    """Give the global random generators states of this process's own: a fork has copied them."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not show it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def other_threads() -> int:
    """Count the threads of this process beside the calling one, native ones included where the system shows them."""
    try:
        return len(os.listdir("/proc/self/task")) - 1
    except OSError:
        return sys.modules["threading"].active_count() - 1 if "threading" in sys.modules else 0


def open_sockets() -> set[str]:
    """Name the sockets this process has open; empty where the system does not show them."""
    found: set[str] = set()
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if target.startswith("socket:"):
                found.add(target)
    return found
