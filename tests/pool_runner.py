"""A pool in a process of its own: `python -m pool_runner '{"dsn": …, "app": …, "workers": 2}'`."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from awa_pool.config.layers import load
from awa_pool.errors import ConfigError
from awa_pool.supervisor.main import App, run_pool


def make_noise(threads: int) -> None:
    """Keep threads busy with logging, so that a fork of this process would inherit a held lock."""
    log = logging.getLogger("noise")
    log.addHandler(logging.StreamHandler(open(os.devnull, "w")))  # noqa: SIM115
    log.propagate = False

    def talk() -> None:
        while True:
            log.warning("noise")
            time.sleep(0.001)

    for _ in range(threads):
        threading.Thread(target=talk, daemon=True).start()


def main() -> int:
    make_noise(int(os.environ.get("NOISY_THREADS", "0")))
    try:
        config, _ = load(json.loads(sys.argv[1]), environ={}, start=Path("/"))
        return run_pool(config, App(name=config.app))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
