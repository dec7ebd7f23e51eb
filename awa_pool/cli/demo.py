"""The command `demo`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from awa_pool.errors import ConfigError


def demo(
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", metavar="N", help="Worker processes", show_default="one per core"),
    ] = None,
) -> None:
    """Measure Python's standard library on an embedded server of its own; leaves nothing behind."""
    from rich.console import Console

    from awa_pool import embedded
    from awa_pool.demo.show import show, usable_cores

    if workers is not None and not 1 <= workers <= 1024:
        raise ConfigError(f"--workers: {workers} is not possible; write a whole number from 1 to 1024")
    began_s = time.monotonic()
    with embedded.temporary_server("awa-demo-") as server:
        show(workers or usable_cores(), server, time.monotonic() - began_s, Console())
