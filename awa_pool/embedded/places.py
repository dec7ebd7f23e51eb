"""Who runs the server, and where its files lie.

PostgreSQL refuses to run as root. As root, the server therefore runs as an unprivileged user that exists already,
from a folder that user can reach; as anybody else, as that user, under their data directory:

    <base>/              root, or the user          0710 (group: the server's) or 0700
      lock               serialises who starts and stops
      holders/           one locked file per user of the server         0700
      running            locked by the server's own processes for as long as one of them lives
      server.log
      data/  socket/     the server's user alone    0700
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awa_pool.errors import EmbeddedError, FolderRefused

ROOT_BASE = Path("/var/lib/awa-pool")
PREFERRED_USERS = ("postgres", "nobody")
# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the closing NUL included.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
SOCKET_FILE = ".s.PGSQL.5432"


@dataclass(frozen=True, slots=True)
class ServerUser:
    """Who the server runs as; `switch` is true when that is somebody else than the caller."""

    name: str
    uid: int
    gid: int
    switch: bool

    def popen_arguments(self) -> dict[str, Any]:
        """Return the `subprocess` arguments that run a program as this user."""
        if not self.switch:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        """Say whether this user can reach and enter `folder`; asked of the kernel, so ACLs count too."""
        done = subprocess.run(
            ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            **self.popen_arguments(),
        )
        return done.returncode == 0


@dataclass(frozen=True, slots=True)
class Places:
    """The files and folders of one server."""

    base: Path

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def lock(self) -> Path:
        return self.base / "lock"

    @property
    def holders(self) -> Path:
        return self.base / "holders"

    @property
    def running(self) -> Path:
        return self.base / "running"

    @property
    def log(self) -> Path:
        return self.base / "server.log"

    @property
    def postmaster_pid(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def socket(self) -> Path:
        """The socket's folder: in `base`, or in /tmp under a name made of it where `base` is too long."""
        inside = self.base / "socket"
        if len(os.fsencode(inside / SOCKET_FILE)) <= SOCKET_PATH_BYTES:
            return inside
        name = hashlib.blake2b(os.fsencode(self.base), digest_size=8).hexdigest()
        return Path("/tmp") / f"awa-pool-{os.geteuid()}-{name}"

    def dsn(self) -> str:
        """Return the DSN of this server's database."""
        folder = str(self.socket).replace("\\", "\\\\").replace("'", "\\'")
        return f"host='{folder}' port=5432 user=awa dbname=postgres"


def base_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder that holds everything of the server: `data_dir`, or this user's usual place."""
    if data_dir is not None:
        return Path(os.path.realpath(Path(data_dir).expanduser()))
    if os.geteuid() == 0:
        return ROOT_BASE / "server"
    home = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(home):  # the XDG rule: a relative path there is to be ignored
        home = os.path.expanduser("~/.local/share")
    return Path(os.path.realpath(home)) / "awa-pool" / "server"


def server_user(base: Path) -> ServerUser:
    """Choose who runs the server in `base`: whoever owns its data already, else the first that is suitable."""
    if os.geteuid() != 0:
        return ServerUser(_name_of(os.geteuid()), os.geteuid(), os.getegid(), switch=False)
    with contextlib.suppress(OSError):
        owner = (base / "data").stat()
        if owner.st_uid != 0:
            return ServerUser(_name_of(owner.st_uid), owner.st_uid, owner.st_gid, switch=True)
    entry = _first_suitable()
    return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid, switch=True)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _first_suitable() -> pwd.struct_passwd:
    for name in PREFERRED_USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return entry
    others = sorted((e for e in pwd.getpwall() if e.pw_uid != 0), key=lambda e: e.pw_uid)
    if not others:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and this system has no other user: "
            "start awa-pool as an ordinary user, or name a server with --dsn"
        )
    return others[0]


def prepare(places: Places, user: ServerUser) -> None:
    """Make the folders of `places` with the right owners; private ones are checked, not trusted.

    Errors: FolderRefused when a folder cannot be made, belongs to somebody else, or holds something else.
    """
    base = places.base
    around = next(folder for folder in base.parents if folder.exists())
    if user.switch and not user.can_enter(around):
        raise FolderRefused(
            f"the embedded server runs as {user.name!r}, who cannot enter {around}: "
            "name a folder that this user can reach with --data-dir"
        )
    try:
        _make_base(base, user)
        _private(places.holders, os.geteuid(), os.getegid())
        _private(places.socket, user.uid, user.gid)
        for path in (places.lock, places.running, places.log):
            path.touch(mode=0o600)
    except OSError as error:
        raise FolderRefused(
            f"cannot make the folder of the embedded server, {base}: {error.strerror}; "
            "name another one with --data-dir"
        ) from None


def _make_base(base: Path, user: ServerUser) -> None:
    # What another start is just making, under another name, does not count: `holders` is the first to get its own.
    fresh = not base.exists() or (
        base.is_dir() and all(entry.name.startswith(".holders-") for entry in base.iterdir())
    )
    if not fresh and not (base / "holders").is_dir():
        raise FolderRefused(
            f"{base} is not an empty folder and holds no embedded server: name another one with --data-dir"
        )
    if not fresh:
        owner = base.stat().st_uid
        if owner != os.geteuid():
            raise FolderRefused(
                f"the embedded server in {base} belongs to {_name_of(owner)!r}: run awa-pool as that user, "
                "or name another folder with --data-dir"
            )
        return
    base.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    base.mkdir(exist_ok=True, mode=0o700)
    if user.switch:
        os.chown(base, os.geteuid(), user.gid)
        base.chmod(0o710)


def _private(folder: Path, uid: int, gid: int) -> None:
    if not os.path.lexists(
        folder
    ):  # made under another name: nobody ever sees one that is not yet its owner's
        draft = tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent)
        if os.geteuid() == 0:
            os.chown(draft, uid, gid)
        try:
            os.rename(draft, folder)
        except OSError:  # somebody else was faster
            os.rmdir(draft)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise FolderRefused(f"{folder} is not a folder of {_name_of(uid)!r}: remove it")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
