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


class TemporaryServer(NamedTuple):
    """A server whose folder `root` is removed with it; `files` in it is a private folder for the caller's own."""

    dsn: str
    root: Path
    data_dir: Path
    files: Path


@contextlib.contextmanager
def temporary_server(prefix: str = "awa-tmp-") -> Iterator[TemporaryServer]:
    """Run a server in a temporary folder, removed at the end.

    Errors: EmbeddedError, as for `server`; also when no temporary folder can be reached by the server's user.
    """
    root = _make_root(prefix)
    try:
        mine = root / "files"
        mine.mkdir(mode=0o700)
        with server(root / "server") as dsn:
            yield TemporaryServer(dsn, root, root / "server", mine)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _make_root(prefix: str) -> Path:
    """Make a folder that the server's user can pass through and nobody can list."""
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
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
