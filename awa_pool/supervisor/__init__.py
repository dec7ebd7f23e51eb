"""The parent of a pool: starts, watches, replaces and stops all other processes. Runs no user code, holds no job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .main import run_client as run_client
    from .main import run_maintenance as run_maintenance
    from .main import run_pool as run_pool


def __getattr__(name: str) -> Any:
    """Load the entry points at their first use: children import this package too, and boot fast."""
    if name not in ("run_client", "run_maintenance", "run_pool"):
        raise AttributeError(f"module 'awa_pool.supervisor' has no attribute {name!r}")
    from . import main

    return getattr(main, name)
