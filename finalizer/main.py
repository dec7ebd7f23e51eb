"""Where the finalizer process begins."""

from __future__ import annotations

from typing import Any

from awa_pool import wire
from awa_pool.actor import CLOSE_S, say_ready, serve_actor
from awa_pool.control import Connection, ControlPipe
from awa_pool.store.connection import connect
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.patience import ANSWER_S
from awa_pool.store.threads import StoreThread
from awa_pool.wire import Router

from .core import Finalizer
from .database import Database
from .events import Settings
from .loop import ROLE, Loop


def run(connection: Connection) -> None:
    """Serve until the supervisor says stop or is gone; `connection` is this end of the control pipe."""
    serve_actor(ROLE, connection, _serve)


def _serve(pipe: ControlPipe, settings: dict[str, Any]) -> bool:
    dsn, schema = str(settings["dsn"]), str(settings["schema"])
    core = Finalizer(Settings.from_dict(settings))
    mailbox = Mailbox()
    peers = Router(str(settings["finalizer_path"]))

    def open_thread(name: str) -> StoreThread:
        return StoreThread(lambda: connect(dsn, schema, ROLE, answer_s=ANSWER_S), mailbox, name=name)

    database = Database(
        open_thread("completing"), open_thread("finishing"), str(settings["runtime_id"]), open_thread
    )
    say_ready(pipe, ROLE, core.settings.incarnation)
    stayed = Loop(core, pipe, peers, mailbox, database).run()
    database.close(CLOSE_S)
    peers.close()
    wire.terminate()
    return stayed
