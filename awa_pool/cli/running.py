"""Run a pool and show it: a live picture on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import importlib.util
import os
import sys

from awa_pool.config.settings import PoolConfig
from awa_pool.errors import ConfigError
from awa_pool.supervisor.main import run_pool

from .entry import raise_if_stopped
from .live import LiveView
from .terminal import Terminal


def run_and_show(config: PoolConfig) -> int:
    """Run the pool until it ends; returns its exit status. The working directory becomes importable first."""
    app = str(config.app)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # children inherit the path
    _refuse_missing_module(app)
    raise_if_stopped()
    if not wants_live_view(config):
        return run_pool(config, app)
    with Terminal() as terminal, LiveView(terminal.console) as view:
        return run_pool(config, app, observer=view)


def _refuse_missing_module(app: str) -> None:
    """Refuse at once what cannot be there; anything deeper takes an import, which is the workers' to do."""
    top = app.partition(":")[0].partition(".")[0]
    if importlib.util.find_spec(top) is None:
        raise ConfigError(f"app {app!r}: there is no module {top!r} in {os.getcwd()} or on the Python path")


def wants_live_view(config: PoolConfig) -> bool:
    """Say whether a person is looking at a terminal that can redraw lines."""
    return config.log_format == "console" and os.isatty(2) and os.environ.get("TERM", "dumb") != "dumb"
