"""Handlers that open connections of their own, encrypted, in workers that are often replaced."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from apps import supervised
from pool_rig import pool, wait_until
from servers import Server, as_server_user, new_server, remove_server

from awa_pool import Client, InsertRequest
from awa_pool.store.migrate import migrate

COMPLAINTS = ("SSL", "protocol", "invalid", "unexpected", "could not")
JOBS = 40


@dataclass
class EncryptedServer(Server):
    """A server that listens at a TCP port and takes TLS."""

    port: int = 0

    def dsn(self, database: str = "postgres", user: str = "awa") -> str:
        return f"host=127.0.0.1 port={self.port} user={user} dbname={database} sslmode=require"


@pytest.fixture
def encrypted(pg_server: Server) -> Iterator[EncryptedServer]:
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made by openssl")
    plain = new_server(pg_server.bin_dir, "fsync=off")
    plain.stop()
    data = plain.root / "data"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-keyout", data / "server.key", "-out", data / "server.crt",
        ],
        check=True, capture_output=True, **as_server_user(),
    )  # fmt: skip
    Path(data, "server.key").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = ("ssl=on", "listen_addresses=127.0.0.1", f"port={port}", "fsync=off")
    settings = tuple(word for setting in more for word in ("-c", setting))
    server = EncryptedServer(plain.bin_dir, plain.root, settings=settings, port=port)
    server.start()
    try:
        yield server
    finally:
        remove_server(server)


def test_encrypted_connections_of_handlers_survive_recycling_and_the_server_sees_no_protocol_error(
    tmp_path: Path, encrypted: EncryptedServer
) -> None:
    """B034: each process opens its own connections after it has started, and none is inherited."""
    encrypted.execute("create database own")
    dsn = encrypted.dsn("own")
    migrate(dsn)
    log = encrypted.root / "log"
    before = len(log.read_text())
    with Client(dsn) as client:
        client.insert_many([InsertRequest(args=supervised.Relay(), kind="relay") for _ in range(JOBS)])
        with pool(tmp_path, dsn, max_jobs_per_worker=5, log_level="info") as running:
            wait_until(
                "all jobs and those that they put in are completed",
                lambda: sum(row.completed for row in client.queue_stats()) == 2 * JOBS,
            )
            with psycopg.connect(dsn) as conn:
                rows = conn.execute(
                    "select application_name from pg_stat_activity join pg_stat_ssl using (pid) where not ssl "
                    "and datname = 'own'"
                ).fetchall()
            assert rows == []
            assert "is replaced after" in running.log
            running.signal(signal.SIGTERM)
            assert running.ended() == 0, running.log
    written = log.read_text()[before:].splitlines()
    assert not [line for line in written if any(word in line for word in COMPLAINTS)], written
