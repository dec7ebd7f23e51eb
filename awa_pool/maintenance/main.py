"""Where the maintenance process begins."""

from __future__ import annotations

import time
from typing import Any

from awa_pool.actor import say_ready, serve_actor
from awa_pool.control import Connection, ControlPipe
from awa_pool.store.connection import connect
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.patience import CHORE_S
from awa_pool.store.threads import StoreThread

from .core import Maintenance, Rules
from .loop import ROLE, Loop


def run(connection: Connection) -> None:
    """Serve until the supervisor says stop or is gone; `connection` is this end of the control pipe."""
    serve_actor(ROLE, connection, _serve)


def _serve(pipe: ControlPipe, settings: dict[str, Any]) -> bool:
    incarnation = str(settings["incarnation"])
    mailbox = Mailbox()
    dsn, schema = str(settings["dsn"]), str(settings["schema"])
    store = StoreThread(lambda: connect(dsn, schema, ROLE, answer_s=CHORE_S), mailbox, name=ROLE)
    core = Maintenance(rules_of(settings), time.monotonic(), settings.get("unbroken"))
    say_ready(pipe, ROLE, incarnation)
    Loop(core, pipe, mailbox, store, incarnation).run()
    return not pipe.closed


def rules_of(settings: dict[str, Any]) -> Rules:
    """Pick out of the settings what maintenance needs."""
    return Rules(
        holder=str(settings["runtime_id"]),
        stale_s=float(settings["stale_s"]),
        retention_s=float(settings["retention_s"]),
        history_bytes=int(settings["history_bytes"]),
        dlq_retention_s=float(settings["dlq_retention_s"]),
    )
