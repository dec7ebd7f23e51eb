"""A server for one run, in a folder that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from awa_pool.errors import EmbeddedError

from .places import server_user
from .sharing import server

MEMORY = "/dev/shm"
MEMORY_BYTES = 4 << 30
"""So much has to be free in memory: a container's is often 64 MiB. Copying a database there took 0.04 s, on a disk 0.5."""


class TemporaryServer(NamedTuple):
    """A server whose folder `root` is removed with it; `files` in it is a private folder for the caller's own."""

    dsn: str
    root: Path
    data_dir: Path
    files: Path


@contextlib.contextmanager
def temporary_server(prefix: str = "awa-tmp-", *, in_memory: bool = False) -> Iterator[TemporaryServer]:
    """Run a server in a temporary folder, removed at the end.

    `in_memory`: in one that lies in memory, where there is room and TMPDIR does not name another.
    Errors: EmbeddedError, as for `server`; also when no temporary folder can be reached by the server's user.
    """
    root = _make_root(prefix, in_memory=in_memory)
    try:
        mine = root / "files"
        mine.mkdir(mode=0o700)
        with server(root / "server") as dsn:
            yield TemporaryServer(dsn, root, root / "server", mine)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make_root(prefix: str, *, in_memory: bool) -> Path:
    """Make a folder that the server's user can pass through and nobody can list."""
    memory = (MEMORY,) if in_memory and "TMPDIR" not in os.environ and _has_room(MEMORY) else ()
    for place in dict.fromkeys((*memory, tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if not os.access(place, os.W_OK):
            continue
        root = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        user = server_user(root)
        if user.switch:
            root.chmod(0o711)
        if user.can_enter(root):
            return root
        root.rmdir()
    raise EmbeddedError("no temporary folder that the embedded server's user can reach: set TMPDIR to one")


def _has_room(place: str) -> bool:
    """Say whether so much is free there, and programs (which may have to be copied) can be run from it."""
    try:
        facts = os.statvfs(place)
    except OSError:
        return False
    may_run = not facts.f_flag & getattr(os, "ST_NOEXEC", 0)
    return may_run and facts.f_bavail * facts.f_frsize >= MEMORY_BYTES
