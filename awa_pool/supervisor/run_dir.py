"""The private folder of one pool: its sockets and its workers' pages, never shared, never reused."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from awa_pool.errors import ConfigError

PREFIX = "awa-pool-"
DRAFT_PREFIX = "awa-draft-"
DRAFT_S = 3600.0  # after this nobody is still making it
LOCK = "lock"
SOCKET_LIMIT_BYTES = 107
_LONGEST_NAME = "dispatcher.sock"


class RunDir:
    """A folder only its owner can enter; its lock file is held as long as the pool lives."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def dispatcher_path(self) -> str:
        """Where the dispatcher's socket is bound."""
        return str(self.path / "dispatcher.sock")

    @property
    def finalizer_path(self) -> str:
        """Where the finalizer's socket is bound."""
        return str(self.path / "finalizer.sock")

    def page_path(self, number: int, incarnation: str) -> str:
        """Where that worker keeps its shared page."""
        return str(self.path / f"w{number}-{incarnation}.page")

    def remove_page(self, number: int, incarnation: str) -> None:
        """Delete the page of a dead worker: thousands may come and go in one run."""
        page = Path(self.page_path(number, incarnation))
        for path in (
            page,
            *self.path.glob(f"{page.name}.*"),
        ):  # a worker killed while making it leaves a draft
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def make_run_dir(root: str | None = None) -> RunDir:
    """Make a fresh folder below `root`, by default the first of the usual places whose path is short enough.

    What dead pools of ours left in the same place is removed. Errors: ConfigError naming path, length and limit.
    """
    roots = [Path(root)] if root is not None else _usual_roots()
    reasons: list[str] = []
    for place in roots:
        sample = len(os.fsencode(place)) + len(f"/{PREFIX}12345678/{_LONGEST_NAME}")
        if sample > SOCKET_LIMIT_BYTES:
            reasons.append(
                f"{place}: a socket path there has {sample} bytes, the limit is {SOCKET_LIMIT_BYTES}; "
                "write a shorter --run-dir"
            )
            continue
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_stale(place)
            return _make(place)
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
    raise ConfigError(f"no folder for sockets: {'; '.join(reasons)}")


def _usual_roots() -> list[Path]:
    named = [os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp", "/var/tmp"]
    return [Path(name) for name in dict.fromkeys(named) if name]


def _make(place: Path) -> RunDir:
    """Make and lock the folder under a name that nobody tidies up, then give it the real one."""
    draft = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=place))  # mode 0700, and a name nobody has
    lock = os.open(draft / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # An flock belongs to the open file: it is gone with its last holder, however that one dies.
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path = place / (PREFIX + draft.name.removeprefix(DRAFT_PREFIX))
    draft.rename(path)
    return RunDir(path, lock)


def remove_stale(place: Path) -> int:
    """Remove folders of our own whose pool is dead; returns how many. Foreign ones are left alone."""
    removed = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(place):
            if not entry.name.startswith((PREFIX, DRAFT_PREFIX)) or not _is_ours(entry):
                continue
            is_draft = entry.name.startswith(DRAFT_PREFIX)
            if _is_old(entry) if is_draft else _is_dead(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed += 1
    return removed


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    private = stat.S_IMODE(facts.st_mode) == 0o700
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and private


def _is_old(entry: os.DirEntry[str]) -> bool:
    """A draft is renamed within milliseconds, unless its maker was killed in between."""
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > DRAFT_S
    except OSError:
        return False


def _is_dead(path: Path) -> bool:
    """A folder without a lock file may just be in the making: it is not touched."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
