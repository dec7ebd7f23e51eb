"""Start and stop one server; the caller holds the folder's lock.

Whether a server runs is told by one thing only: the lock on the file `running`, which the server's processes
inherit. It is held for exactly as long as one of them lives, however they die, so a stale `postmaster.pid` or a
process number that was given out again means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from awa_pool.errors import EmbeddedError

from .binaries import Binaries
from .places import SOCKET_FILE, Places, ServerUser

START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
_PAUSE_S = 0.02
_LOG_LIMIT_BYTES = 16 << 20
_SETTINGS = (
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "port=5432",
    "max_connections=200",
    "logging_collector=off",
    "log_destination=stderr",
    "log_checkpoints=off",
    "timezone=UTC",
    "log_timezone=UTC",
)


def is_running(places: Places) -> bool:
    """Say whether any process of the server lives."""
    lock = _lock_of_a_dead_server(places)
    if lock is None:
        return True
    os.close(lock)
    return False


def _lock_of_a_dead_server(places: Places) -> int | None:
    """Take the lock that a living server holds; None when one lives."""
    handle = os.open(places.running, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its places, its user and its programs."""

    places: Places
    user: ServerUser
    binaries: Binaries

    def ensure_running(self) -> None:
        """Start the server unless it runs and answers.

        Errors: EmbeddedError with the end of the server's log when it does not come up.
        """
        deadline_s = time.monotonic() + START_DEADLINE_S
        while (lock := _lock_of_a_dead_server(self.places)) is None:
            if self._answers():
                return
            # Either it is just starting, or its parent was killed and the rest is about to notice.
            if time.monotonic() > deadline_s:
                raise EmbeddedError(
                    f"processes of an earlier server in {self.places.data} still run and do not answer{self._log_end()}"
                )
            time.sleep(_PAUSE_S)
        try:
            self._refuse_foreign_server()
            self._initialise()
            self._spawn(lock)
        finally:
            os.close(lock)
        self._await_start(deadline_s)

    def stop(self) -> None:
        """Stop the server: sessions are cut, committed work is kept. Nothing happens when none runs."""
        for how, patience_s in (
            (signal.SIGINT, STOP_DEADLINE_S),
            (signal.SIGQUIT, 10.0),
            (signal.SIGKILL, 10.0),
        ):
            if not is_running(self.places):
                return
            pid = self._postmaster()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            deadline_s = time.monotonic() + patience_s
            while time.monotonic() < deadline_s:
                if not is_running(self.places):
                    return
                time.sleep(_PAUSE_S)
        raise EmbeddedError(f"the embedded server in {self.places.data} does not stop{self._log_end()}")

    def _initialise(self) -> None:
        data = self.places.data
        if data.is_dir():
            found = (data / "PG_VERSION").read_text().strip()
            if found != str(self.binaries.major):
                raise EmbeddedError(
                    f"{data} was made by PostgreSQL {found}, the programs here are of {self.binaries.major}: "
                    "name another folder with --data-dir"
                )
            return
        # Built beside its place and renamed when whole: a killed start leaves nothing that looks finished.
        unfinished = self.places.base / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if self.user.switch:
            os.chown(unfinished, self.user.uid, self.user.gid)
        done = subprocess.run(
            [self.binaries.folder / "initdb", "-D", unfinished, "-U", "awa", "-A", "trust", "-E", "UTF8",
             "--locale=C", "--no-instructions"],
            cwd=self.places.socket, stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True,
            env=_environment(), **self.user.popen_arguments(),
        )  # fmt: skip
        if done.returncode != 0:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise EmbeddedError(f"initdb failed in {self.places.base}: {done.stderr.strip()[-1000:]}")
        unfinished.rename(data)

    def _spawn(self, lock: int) -> None:
        # A dead server's pid files would stop the new one while that number names a process of this user, be it
        # another's or the unreaped rest of the old one; that the old server is gone is proved by our lock.
        for stale in (self.places.postmaster_pid, self.places.socket / f"{SOCKET_FILE}.lock"):
            stale.unlink(missing_ok=True)
        if self.places.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.places.log.replace(self.places.log.with_suffix(".log.old"))
        settings = [word for s in _SETTINGS for word in ("-c", s)]
        command = [str(self.binaries.folder / "postgres"), "-D", str(self.places.data),
                   "-k", str(self.places.socket), *settings]  # fmt: skip
        with self.places.log.open("ab") as log:
            # Through a shell that ends at once, so that the server is nobody's child and outlives its starter.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                cwd=self.places.socket, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                start_new_session=True, umask=0o077, pass_fds=(lock,), check=True, **self.user.popen_arguments(),
            )  # fmt: skip

    def _await_start(self, deadline_s: float) -> None:
        while not self._answers():
            if not is_running(self.places):
                raise EmbeddedError(
                    f"the embedded server in {self.places.data} ended at once{self._log_end()}"
                )
            if time.monotonic() > deadline_s:
                raise EmbeddedError(
                    f"the embedded server in {self.places.data} does not answer{self._log_end()}"
                )
            time.sleep(_PAUSE_S)

    def _answers(self) -> bool:
        """Say whether the server calls itself ready and its socket takes connections."""
        try:
            lines = self.places.postmaster_pid.read_text().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) < 8 or lines[7].strip() != "ready":
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5.0)
            try:
                probe.connect(str(self.places.socket / SOCKET_FILE))
            except OSError:
                return False
        return True

    def _postmaster(self) -> int | None:
        """Return the process number in the pid file, if that process is this server's."""
        try:
            pid = int(self.places.postmaster_pid.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None
        return pid if _works_in(pid, self.places.data) else None

    def _refuse_foreign_server(self) -> None:
        """Refuse data that a server runs on which somebody started by hand (it holds no lock of ours)."""
        pid = self._postmaster() if sys.platform == "linux" else None
        if pid is not None:
            raise EmbeddedError(
                f"process {pid} runs PostgreSQL on {self.places.data} and was not started by awa-pool: stop it, "
                "or name another folder with --data-dir"
            )

    def _log_end(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.places.log.read_text(errors="replace").strip().splitlines()[-3:]
            if lines:
                return f"; {self.places.log} ends: {' | '.join(lines)[-600:]}"
        return ""


def _works_in(pid: int, folder: Path) -> bool:
    """Say whether that process has `folder` as its working directory, as every PostgreSQL process has its data."""
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    try:
        return os.path.realpath(f"/proc/{pid}/cwd") == os.path.realpath(folder)
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """Return a clean environment: no PG* variable of the caller's reaches the server."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {"LC_ALL": "C", **{name: os.environ[name] for name in kept if name in os.environ}}
