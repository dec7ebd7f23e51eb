"""PostgreSQL that is not there yet, that refuses for reasons of its own, that moved; and a full disk on this host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from ledger import Ledger
from pool_rig import pool, wait_until
from proxy import proxy
from psycopg import sql
from servers import Server

from awa_pool.store.connection import connect
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.threads import StoreAnswered, StoreThread

ITS_OWN_REASONS = ("53100", "53200", "57P03", "25006", "58030", "57014", "42501")
"""Disk full, out of memory, starting up, read-only, an I/O error, cancelled, rights taken away."""
_PATIENT = {"log_level": "info", "heartbeat_s": 0.5, "stale_s": 3.0}


def test_a_pool_that_is_there_before_its_database_begins_when_that_comes(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    ledger = Ledger(tmp_path / "ledger", dsn)
    with proxy(pg_server) as between:
        between.refuse()
        ledger.put(200)
        with pool(tmp_path, between.dsn(dsn), **_PATIENT) as running:
            for role in ("dispatcher", "supervisor"):
                wait_until(f"the {role} says so", lambda role=role: said_away(running.log, role))
            tries = between.connections
            between.accept()
            ledger.await_ends()
            ledger.judge()
            assert ledger.attempts() == {1: 200}
            assert tries == 0 and running.log.count("away") <= 8, running.log


def said_away(log: str, role: str) -> bool:
    return any(f" {role}: " in line and "away" in line for line in log.splitlines())


@contextlib.contextmanager
def refusing(conn: psycopg.Connection[tuple[object, ...]], name: str, code: str) -> Iterator[None]:
    """Have that function of the queue fail with a code of the server's own, for the time of a block."""
    row = conn.execute(
        "select pg_get_function_identity_arguments(oid), pg_get_function_result(oid) from pg_proc "
        "where proname = %s and pronamespace = 'awa_pool'::regnamespace",
        (name,),
    ).fetchone()
    assert row is not None
    arguments, result = str(row[0]), str(row[1])
    text = sql.SQL
    before = text("alter function awa_pool.{}({}) rename to {}").format(
        sql.Identifier(name), text(arguments), sql.Identifier(f"{name}_kept")
    )
    fail = text(
        "create function awa_pool.{}({}) returns {} language plpgsql as $$ begin raise sqlstate {}; end $$"
    ).format(sql.Identifier(name), text(arguments), text(result), sql.Literal(code))
    after = text("alter function awa_pool.{}({}) rename to {}").format(
        sql.Identifier(f"{name}_kept"), text(arguments), sql.Identifier(name)
    )
    with conn.transaction():
        conn.execute(before)
        conn.execute(fail)
    try:
        yield
    finally:
        with conn.transaction():
            conn.execute(text("drop function awa_pool.{}({})").format(sql.Identifier(name), text(arguments)))
            conn.execute(after)


def test_results_wait_while_the_server_refuses_them_for_reasons_of_its_own(tmp_path: Path, dsn: str) -> None:
    """B089: disk full, out of memory, read-only and the like use up no attempt and drop no result."""
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, dsn, **_PATIENT) as running, psycopg.connect(dsn, autocommit=True) as conn:
        running.logged("serving default")
        for code in ITS_OWN_REASONS:
            with refusing(conn, "complete", code):
                before = len(ledger.starts())
                ledger.put(40)
                wait_until(f"all ran under {code}", lambda before=before: len(ledger.starts()) == before + 40)
                assert ledger.unended() == 40
            ledger.await_ends()
        ledger.judge()
        assert ledger.attempts() == {1: len(ledger.jobs)}
        assert set(ledger.starts().values()) == {1}
        assert running.log.count("\n") < 50, running.log


def test_a_server_without_room_for_all_connections_is_waited_for(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    """B081: too many connections (53300) is an outage like others."""
    user = f"few_{os.getpid()}"
    pg_server.execute(f"create role {user} login connection limit 2")
    ledger = Ledger(tmp_path / "ledger", dsn)
    try:
        pg_server.execute(f"grant awa to {user}")  # to work as the owner of the schema
        with pool(tmp_path, dsn.replace("user=awa", f"user={user}"), **_PATIENT) as running:
            running.logged("too many connections")
            ledger.put(100)
            pg_server.execute(f"alter role {user} connection limit 10")
            ledger.await_ends()
            ledger.judge()
            assert ledger.attempts() == {1: 100}
            assert running.log.count("too many connections") <= 8, running.log
    finally:
        pg_server.execute(f"drop role {user}")


def test_with_several_hosts_in_the_address_work_goes_on_at_the_one_that_takes_writes(
    dsn: str, pg_server: Server
) -> None:
    """B083: after a failover nobody stays with the old primary."""
    mailbox = Mailbox()
    with proxy(pg_server) as old, proxy(pg_server) as new:
        both = f"host=127.0.0.1,127.0.0.1 port={old.port},{new.port} " + old.dsn(dsn).split(" ", 2)[2]
        thread = StoreThread(lambda: connect(both, role="test", answer_s=5.0), mailbox)
        try:
            wait_until("the first is used", lambda: old.connections == 1)
            old.refuse()
            old.cut()

            def answered() -> bool:
                thread.submit(lambda store: store.promote(1), "asked")
                return any(isinstance(event, StoreAnswered) for event in mailbox.take())

            wait_until("the second answers", answered)
            assert new.connections >= 1
        finally:
            thread.close()
            mailbox.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds half a megabyte."""
    folder = Path("/tmp", f"awa-small-{os.getpid()}")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("a small file system can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_under_the_sockets_is_named_and_the_pool_recovers_when_there_is_room(
    tmp_path: Path, dsn: str, small_disk: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger", dsn)
    filler = fill(small_disk)
    with pool(tmp_path, dsn, run_dir=str(small_disk), **_PATIENT) as refused:
        assert refused.ended() != 0
        assert "no room for a shared page" in refused.log and "--run-dir" in refused.log, refused.log
        assert "Traceback" not in refused.log
    filler.unlink()
    with pool(tmp_path, dsn, run_dir=str(small_disk), **_PATIENT | {"log_level": "debug"}) as running:
        running.ready()
        filler = fill(small_disk)
        (page,) = small_disk.glob("*/w1-*.page")
        with page.open("rb"):  # so that its end makes no room
            ledger.put(200, "spin", 0.002)
            os.kill(running.children("worker 1")[0], signal.SIGKILL)
            running.logged("no room for a shared page")
            ledger.await_ends()  # by the worker that is left
        filler.unlink()
        running.logged("worker 1 is ready", count=2)
        ledger.judge()
