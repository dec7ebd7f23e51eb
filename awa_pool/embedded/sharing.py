"""Count who uses a server: one locked file per user of it, so that a killed one does not count."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from awa_pool.errors import EmbeddedError

from . import binaries as programs
from .control import Server, is_running
from .places import Places, base_folder, prepare, server_user

LOOK_EVERY_S = 1.0
_log = logging.getLogger("awa_pool.embedded")


@contextlib.contextmanager
def server(
    data_dir: str | os.PathLike[str] | None = None, *, binaries: str | os.PathLike[str] | None = None
) -> Iterator[str]:
    """Run, or join, the embedded server of `data_dir` and yield its DSN; the last to leave stops it.

    Without `data_dir`: /var/lib/awa-pool/server for root, else the user's data directory. `binaries` is a folder
    with `initdb` and `postgres`; without it the wheel's are used. While inside, a server that was killed is
    started again within about a second.
    Errors: EmbeddedError, naming what to install or which folder to change.
    """
    places = Places(base_folder(data_dir))
    user = server_user(places.base)
    programs.require(binaries)
    prepare(places, user)
    found = programs.find(binaries, user, None if data_dir is None else places.base / "binaries")
    shared = Server(places, user, found)
    with _locked(places):
        holder = _hold(places)
        try:
            shared.ensure_running()
        except BaseException:
            _leave(shared, holder)
            raise
    leaving = threading.Event()
    keeper = threading.Thread(
        target=_keep_running, args=(shared, leaving), name="embedded-keeper", daemon=True
    )
    keeper.start()
    try:
        yield places.dsn()
    finally:
        leaving.set()
        keeper.join()
        with _locked(places):
            _leave(shared, holder)


@contextlib.contextmanager
def _locked(places: Places) -> Iterator[None]:
    handle = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _hold(places: Places) -> int:
    path = places.holders / f"{os.getpid()}-{os.urandom(4).hex()}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _leave(shared: Server, holder: int) -> None:
    os.close(holder)
    if not _any_holder(shared.places):
        shared.stop()
        if shared.places.socket.parent != shared.places.base:
            shutil.rmtree(shared.places.socket, ignore_errors=True)


def _any_holder(places: Places) -> bool:
    """Say whether somebody else uses the server; files of the dead are removed on the way."""
    held = [_is_held(path) for path in places.holders.iterdir()]
    return any(held)


def _is_held(path: Path) -> bool:
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    path.unlink(missing_ok=True)
    return False


def _keep_running(shared: Server, leaving: threading.Event) -> None:
    while not leaving.wait(LOOK_EVERY_S):
        try:
            if is_running(shared.places):
                continue
            with _locked(shared.places):
                if not leaving.is_set() and not is_running(shared.places):
                    _log.warning("the embedded server was gone and is started again")
                    shared.ensure_running()
        except (EmbeddedError, OSError) as error:
            _log.error("the embedded server cannot be started again: %s", error)
