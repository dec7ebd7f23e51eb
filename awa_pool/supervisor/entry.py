"""Where an actor's process begins: deaf to stop signals, named, and with nothing of the user's imported."""

from __future__ import annotations

import importlib
from typing import Any

from .signals import hear_nothing


def run_actor(role: str, connection: Any) -> None:
    """Run `awa_pool.<role>.main:run` in this fresh process; `connection` is its end of the control pipe."""
    hear_nothing()
    import setproctitle

    setproctitle.setproctitle(f"awa-pool: {role}")
    importlib.import_module(f"awa_pool.{role}.main").run(connection)
