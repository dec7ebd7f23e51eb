"""Where the dispatcher process begins."""

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
from awa_pool.store.listener import Listener
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.patience import ANSWER_S
from awa_pool.store.threads import StoreThread
from awa_pool.wire import Dealer, Router

from .core import Dispatcher
from .database import Database
from .events import Settings
from .loop import ROLE, Loop

CONFIGURE_S = 600.0  # the first worker may take that long to tell the app's facts
CLOSE_S = 1.0
EXIT_FATAL, EXIT_ORPHANED = 1, 3
SWITCH_S = 0.0005
"""The database thread reads rows beside the loop: neither keeps the interpreter for Python's usual 5 ms."""
_log = logging.getLogger("awa_pool.dispatcher")


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
    core = Dispatcher(Settings.from_dict(settings))
    incarnation = core.settings.incarnation
    mailbox = Mailbox()
    workers = Router(str(settings["dispatcher_path"]))
    finalizer = Dealer(str(settings["finalizer_path"]), f"{ROLE}-{incarnation}")
    store = StoreThread(lambda: connect(dsn, schema, ROLE, answer_s=ANSWER_S), mailbox, name=ROLE)
    listener = None
    if settings.get("listen", True):
        listener = Listener(str(settings.get("listen_dsn") or dsn), mailbox, schema=schema)
    pipe.send(Ready(ROLE, incarnation, {}))
    gc.freeze()
    database = Database(store, str(settings["runtime_id"]))
    loop = Loop(core, pipe, workers, finalizer, mailbox, database, str(settings["run_dir"]))
    stayed = loop.run()
    if listener is not None:
        listener.close(CLOSE_S)
    store.close(CLOSE_S)
    workers.close()
    finalizer.close()
    wire.terminate()
    return stayed
