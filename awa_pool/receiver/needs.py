"""The libraries of the extra, and one clear line where they are missing."""

from __future__ import annotations

import importlib.util

from awa_pool.errors import ConfigError

COMMAND = "pip install 'awa-pool[callbacks]'"


def needed(*libraries: str) -> None:
    """Refuse to go on without these libraries. Errors: ConfigError naming the command to run."""
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"answering callbacks over HTTP needs {' and '.join(missing)}: run {COMMAND}")
