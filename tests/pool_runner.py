"""A pool in a process of its own: `python -m pool_runner '{"dsn": …, "app": …, "workers": 2}'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from awa_pool.config import load
from awa_pool.errors import ConfigError
from awa_pool.supervisor.main import App, run_pool


def main() -> int:
    try:
        config, _ = load(json.loads(sys.argv[1]), environ={}, start=Path("/"))
        return run_pool(config, App(name=config.app))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
