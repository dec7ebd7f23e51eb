"""Where the finalizer process begins."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import setproctitle

from awa_pool import wire
from awa_pool.control import Connection, ControlPipe
from awa_pool.errors import AwaError
from awa_pool.logs import set_up_logging
from awa_pool.messages import Configure, Fatal, Ready
from awa_pool.store.connection import connect
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.patience import ANSWER_S
from awa_pool.store.threads import StoreThread
from awa_pool.wire import Router

from .core import Finalizer
from .database import Database
from .events import Settings
from .loop import ROLE, Loop

CONFIGURE_S = 600.0  # the first worker may take that long to tell the app's facts
CLOSE_S = 1.0
EXIT_FATAL, EXIT_ORPHANED = 1, 3
SWITCH_S = 0.0005
"""The database threads read rows beside the loop: nobody keeps the interpreter for Python's usual 5 ms."""
_log = logging.getLogger("awa_pool.finalizer")


def run(connection: Connection) -> None:
    """Serve until the supervisor says stop or is gone; `connection` is this end of the control pipe."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # only the supervisor acts on them, and then says stop
        with suppress(ValueError):
            signal.signal(number, signal.SIG_IGN)
    pipe = ControlPipe(connection)
    first = pipe.wait(CONFIGURE_S)
    if not isinstance(first, Configure):
        return
    settings = first.settings
    set_up_logging(ROLE, settings["log_level"], settings["log_format"])
    setproctitle.setproctitle(f"awa-pool: {ROLE}")
    sys.setswitchinterval(SWITCH_S)
    try:
        stayed = _serve(pipe, settings)
    except Exception as error:  # noqa: BLE001 (top of the process: the supervisor has to know why)
        _log.error("cannot go on: %s", error, exc_info=None if isinstance(error, AwaError) else error)
        pipe.send(Fatal(ROLE, f"{type(error).__name__}: {error}"))
        pipe.flush(CLOSE_S)
        os._exit(EXIT_FATAL)
    if not stayed:
        os._exit(EXIT_ORPHANED)
    pipe.flush(CLOSE_S)


def _serve(pipe: ControlPipe, settings: dict[str, Any]) -> bool:
    dsn, schema = str(settings["dsn"]), str(settings["schema"])
    core = Finalizer(Settings.from_dict(settings))
    mailbox = Mailbox()
    peers = Router(str(settings["finalizer_path"]))
    completing, finishing = (
        StoreThread(lambda: connect(dsn, schema, ROLE, answer_s=ANSWER_S), mailbox, name=name)
        for name in ("completing", "finishing")
    )
    pipe.send(Ready(ROLE, core.settings.incarnation, {}))
    gc.freeze()
    database = Database(completing, finishing, str(settings["runtime_id"]))
    stayed = Loop(core, pipe, peers, mailbox, database).run()
    completing.close(CLOSE_S)
    finishing.close(CLOSE_S)
    peers.close()
    wire.terminate()
    return stayed
