"""The frame of an actor's process: told its settings over the control pipe, it logs, serves, and ends with the reason told."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from .control import Connection, ControlPipe
from .errors import AwaError
from .logs import flush_logs, set_up_logging
from .messages import Configure, Fatal, Ready

CONFIGURE_S = 600.0  # the first worker may take that long to tell the app's facts
CLOSE_S = 1.0
EXIT_FATAL, EXIT_ORPHANED = 1, 3
SWITCH_S = 0.0005
"""Database threads read rows beside the loop: nobody keeps the interpreter for Python's usual 5 ms."""


def serve_actor(
    role: str, connection: Connection, serve: Callable[[ControlPipe, dict[str, Any]], bool]
) -> None:
    """Run `serve(pipe, settings)` until the supervisor says stop or is gone; `connection` is this end of the pipe.

    `serve` returns whether it was told to stop: False ends the process as an orphan. What it raises is logged and told
    to the supervisor as `Fatal`. Returns at once when there are no settings to come.
    """
    pipe = ControlPipe(connection)
    first = pipe.wait(CONFIGURE_S)
    if not isinstance(first, Configure):
        return  # stopped, or left alone, before there was anything to do
    settings = first.settings
    set_up_logging(role, settings["log_level"], settings["log_format"])
    sys.setswitchinterval(SWITCH_S)
    try:
        stayed = serve(pipe, settings)
    except Exception as error:  # top of the process: the supervisor has to know why
        log = logging.getLogger(f"awa_pool.{role}")
        log.error("cannot go on: %s", error, exc_info=None if isinstance(error, AwaError) else error)
        pipe.send(Fatal(role, f"{type(error).__name__}: {error}"))
        pipe.flush(CLOSE_S)
        flush_logs()
        os._exit(EXIT_FATAL)
    if not stayed:
        flush_logs()
        os._exit(EXIT_ORPHANED)
    pipe.flush(CLOSE_S)
    flush_logs()


def say_ready(pipe: ControlPipe, role: str, incarnation: str) -> None:
    """Tell the supervisor that the actor works; what is in memory now stays, and is not looked at again."""
    pipe.send(Ready(role, incarnation, {}))
    gc.freeze()
