"""Calls of handlers beside the test that answers them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Run `call` beside; the result waits for what it returned or raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as problem:  # noqa: BLE001
            outcome.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def joined() -> Any:
        thread.join(20.0)
        assert outcome, "it has not come back"
        return outcome[0]

    return joined
