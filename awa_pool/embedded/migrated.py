"""The embedded server with the schema in it: what `--embedded` and `client.run(embedded=True)` run on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from awa_pool.errors import SchemaMismatch

from .sharing import server


@contextlib.contextmanager
def migrated_server(data_dir: str | None, schema: str) -> Iterator[str]:
    """Run or join the embedded server with the schema installed, and yield its DSN.

    Processes started inside find it in AWA_POOL_DSN, so that a `Client()` in a handler meets the same queue.
    Errors: EmbeddedError.
    """
    with server(data_dir) as dsn:
        _install_schema(dsn, schema)
        before = os.environ.get("AWA_POOL_DSN")
        os.environ["AWA_POOL_DSN"] = dsn
        try:
            yield dsn
        finally:
            if before is None:
                del os.environ["AWA_POOL_DSN"]
            else:
                os.environ["AWA_POOL_DSN"] = before


def _install_schema(dsn: str, schema: str) -> None:
    """Migrate if need be: a second command must not renew functions under a pool that runs."""
    from awa_pool.store.connection import connect
    from awa_pool.store.migrate import migrate

    try:
        connect(dsn, schema, "cli").close()
    except SchemaMismatch:
        migrate(dsn, schema)
