"""A server for one run, in a folder that is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from awa_pool.errors import EmbeddedError

from .places import server_user
from .sharing import server


@contextlib.contextmanager
def temporary_server(prefix: str = "awa-pool-") -> Iterator[tuple[str, Path]]:
    """Run a server in a temporary folder; yield its DSN and a private folder that is removed with it.

    Errors: EmbeddedError, as for `server`; also when no temporary folder can be reached by the server's user.
    """
    root = _make_root(prefix)
    try:
        mine = root / "files"
        mine.mkdir(mode=0o700)
        with server(root / "server") as dsn:
            yield dsn, mine
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
