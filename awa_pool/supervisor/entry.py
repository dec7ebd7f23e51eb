"""Where an actor's process begins: deaf to stop signals, named, and with nothing of the user's imported."""

from __future__ import annotations

import importlib
from typing import Any

from awa_pool.worker.process import die_with_parent

from .signals import hear_nothing


def run_actor(role: str, connection: Any, parent_pid: int) -> None:
    """Run `awa_pool.<role>.main:run` in this fresh process; `connection` is its end of the control pipe.

    The kernel ends it with its parent: one that is stopped, or waits for something, cannot see the end of the pipe.
    """
    die_with_parent(parent_pid)
    hear_nothing()
    import setproctitle

    setproctitle.setproctitle(f"awa-pool: {role}")
    importlib.import_module(f"awa_pool.{role}.main").run(connection)
