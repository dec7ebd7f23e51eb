"""Processes that use the embedded server, as root and as somebody else, for the tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from closed_homes import import_path

DEADLINE_S = 60.0
_HOLDER = """
import sys
from awa_pool import embedded
from awa_pool.errors import EmbeddedError
try:
    with embedded.server(sys.argv[1] or None, binaries=sys.argv[2] or None) as dsn:
        print(dsn, flush=True)
        sys.stdin.readline()
except EmbeddedError as error:
    print("error:", error, flush=True)
    sys.exit(3)
"""


def until(what: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition, or fail at the deadline."""
    end_s = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < end_s, "the deadline passed"
        time.sleep(0.01)


def python_for(uid: int) -> str | None:
    """Return an interpreter (3.11 or newer) that this user can run."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"],
                check=False, capture_output=True, cwd="/", **({"user": uid} if os.geteuid() == 0 else {}),
            )  # fmt: skip
            if done.returncode == 0:
                return path
    return None


@dataclass
class Somebody:
    """A user of the machine with a home of their own."""

    uid: int
    gid: int
    home: Path
    python: str
    holders: list[Holder] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(import_path(self.uid)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def arguments(self) -> dict[str, object]:
        switch: dict[str, object] = {}
        if self.uid != os.geteuid():
            switch = {"user": self.uid, "group": self.gid, "extra_groups": []}
        return {"env": self.environment(), "cwd": "/", "text": True, **switch}

    def holder(self, data_dir: Path | str = "", binaries: Path | str = "", **environment: str) -> Holder:
        arguments = self.arguments()
        arguments["env"] = self.environment() | environment
        holder = Holder(subprocess.Popen(
            [self.python, "-c", _HOLDER, str(data_dir), str(binaries)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, **arguments,  # type: ignore[call-overload]
        ))  # fmt: skip
        self.holders.append(holder)
        return holder


@dataclass
class Holder:
    """A process that has entered `embedded.server` and stays until told to leave."""

    process: subprocess.Popen[str]

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.leave()


@contextlib.contextmanager
def somebody(name: str) -> Iterator[Somebody | None]:
    """A user by name with a fresh home under /tmp; None when this machine or this test run has no such user."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = None
    python = python_for(entry.pw_uid) if entry and os.geteuid() in (0, entry.pw_uid) else None
    if entry is None or python is None:
        yield None
        return
    home = Path(tempfile.mkdtemp(prefix="awa-home-", dir="/tmp"))
    os.chown(home, entry.pw_uid, entry.pw_gid)
    if entry.pw_uid == 0:
        home.chmod(0o755)  # root's server runs as somebody else, who has to pass here
    found = Somebody(entry.pw_uid, entry.pw_gid, home, python)
    try:
        yield found
    finally:
        for holder in found.holders:
            holder.leave()
        shutil.rmtree(home, ignore_errors=True)
