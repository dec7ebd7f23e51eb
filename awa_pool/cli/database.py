"""Which database is meant: the flag, the variable, the app's own, DATABASE_URL; embedded only when asked for.

A misspelt variable in production must end with a refusal, not with an empty queue: so the embedded server is never
the silent last resort. Only a person at a terminal gets it unasked, with a line that says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping

from awa_pool.config.settings import PoolConfig
from awa_pool.errors import ConfigError

from .app_facts import app_dsn

NO_DATABASE = "no database given: write --dsn, set AWA_POOL_DSN or DATABASE_URL, give the app's Client one, or use --embedded"


@contextlib.contextmanager
def with_database(config: PoolConfig, sources: Mapping[str, str]) -> Iterator[PoolConfig]:
    """Settle the database: yield the config with its address; an embedded server runs as long as inside.

    `sources` says where each setting was written, for an address that cannot be read.

    Errors: ConfigError when none is given or the address cannot be read; EmbeddedError.
    """
    from awa_pool.store.connection import check_address

    dsn, place = config.dsn, sources["dsn"]
    if config.listen_dsn is not None:
        check_address(config.listen_dsn, sources["listen_dsn"])
    if dsn is None and config.app and not config.embedded:
        dsn, place = app_dsn(config.app), f"the Client of {config.app}"
    if dsn is None and not config.embedded:
        dsn, place = os.environ.get("DATABASE_URL") or None, "DATABASE_URL"
    if dsn is not None:
        check_address(dsn, place)
        yield dataclasses.replace(config, dsn=dsn, embedded=False)
        return
    if not config.embedded:
        if not at_a_terminal():
            raise ConfigError(NO_DATABASE)
        print("awa-pool: no database given; using the embedded server", file=sys.stderr)
    from awa_pool.embedded.migrated import migrated_server

    with migrated_server(config.data_dir, config.schema) as dsn:
        yield dataclasses.replace(config, dsn=dsn, embedded=False)


def at_a_terminal() -> bool:
    """Say whether a person is looking: input and output are both a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()
