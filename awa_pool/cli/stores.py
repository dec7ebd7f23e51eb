"""The store of the database that the command line, variables, pyproject.toml or the app name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from awa_pool.config.layers import load
from awa_pool.store.connection import connect
from awa_pool.store.store import Store

from .database import with_database


@contextlib.contextmanager
def store_of(**given: object) -> Iterator[Store]:
    """Connect to the database that the flags, variables, pyproject.toml or the app name."""
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    with with_database(config, sources) as settled:
        store = connect(str(settled.dsn), settled.schema, "cli")
        try:
            yield store
        finally:
            store.close()
