"""The command `demo`."""

from __future__ import annotations

import time
from typing import Annotated

from .options import number


def demo(
    workers: Annotated[
        int | None,
        number("--workers", "N", 1, 1024, "Worker processes (default: one per core)", "-w"),
    ] = None,
) -> None:
    """Measure Python's standard library on an embedded server of its own; leaves nothing behind."""
    from rich.console import Console

    from awa_pool import embedded
    from awa_pool.demo.show import show, usable_cores

    began_s = time.monotonic()
    with embedded.temporary_server("awa-demo-") as server:
        show(workers or usable_cores(), server, time.monotonic() - began_s, Console())
