"""Where the dispatcher process begins."""

from __future__ import annotations

from typing import Any

from awa_pool import wire
from awa_pool.actor import CLOSE_S, say_ready, serve_actor
from awa_pool.control import Connection, ControlPipe
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


def run(connection: Connection) -> None:
    """Serve until the supervisor says stop or is gone; `connection` is this end of the control pipe."""
    serve_actor(ROLE, connection, _serve)


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
    say_ready(pipe, ROLE, incarnation)
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
