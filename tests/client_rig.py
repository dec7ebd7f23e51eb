"""Tasks and a pgbouncer for the tests of client and store."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from servers import Server, as_server_user

from awa_pool import AsyncClient, Client
from awa_pool.store.mailbox import Mailbox

DEADLINE_S = 20.0


@dataclass
class SendEmail:
    to: str
    tries: int = 0
    extra: list[Any] = field(default_factory=list)


def handle(job):
    return None


def declare(client: Client | AsyncClient) -> None:
    """Register this module's tasks."""
    client.task(SendEmail, queue="mail", max_attempts=3, priority=1)(handle)
    client.task(kind="plain")(handle)


def end_sessions(dsn: str, application: str) -> int:
    """Terminate the sessions of that application name; returns how many."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        rows = conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
            " and datname = current_database()",
            (application,),
        ).fetchall()
        until = time.monotonic() + DEADLINE_S
        while sessions(conn, application):
            assert time.monotonic() < until
            time.sleep(0.005)
    return len(rows)


def sessions(conn: psycopg.Connection[Any], application: str) -> int:
    """Count the sessions of that application name in this database."""
    row = conn.execute(
        "select count(*) from pg_stat_activity where application_name = %s and datname = current_database()",
        (application,),
    ).fetchone()
    assert row is not None
    return int(row[0])


@contextlib.contextmanager
def pgbouncer(server: Server, database: str) -> Iterator[str]:
    """Run Debian's pgbouncer in transaction mode before one database; yields the DSN."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        why = "no pgbouncer binary (apt-get install pgbouncer)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="awa-pgb-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        port = _free_port()
        (folder / "users").write_text('"awa" ""\n')
        (folder / "ini").write_text(
            f"[databases]\n{database} = host={server.socket_dir} port=5432 user=awa dbname={database}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"auth_file = {folder}/users\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 50\n"
            "server_reset_query_always = 0\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        process = subprocess.Popen(
            [program, folder / "ini"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            **as_server_user(),
        )  # type: ignore[call-overload]
        dsn = f"host=127.0.0.1 port={port} user=awa dbname={database}"
        try:
            _wait_for(dsn, process)
            yield dsn
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=DEADLINE_S)
            if process.poll() is None:
                process.kill()
                process.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(dsn: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + DEADLINE_S
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.02)


def wait_for(box: Mailbox, wanted: Callable[[Any], bool]) -> list[Any]:
    """Collect events until one fulfils `wanted`; returns all of them."""
    events: list[Any] = []
    until = time.monotonic() + DEADLINE_S
    while not any(wanted(event) for event in events):
        left_s = until - time.monotonic()
        assert left_s > 0, events
        select.select([box.fileno()], [], [], left_s)
        events += box.take()
    return events
