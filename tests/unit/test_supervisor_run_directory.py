from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from awa_pool.errors import ConfigError
from awa_pool.supervisor.procfs import check_descriptors
from awa_pool.supervisor.run_dir import DRAFT_PREFIX, PREFIX, SOCKET_LIMIT_BYTES, make_run_dir


@pytest.fixture
def short_root() -> Path:
    return Path(tempfile.mkdtemp(prefix="rd", dir="/tmp"))


def test_two_pools_in_one_place_never_share_a_folder(short_root: Path) -> None:
    """B040."""
    one, two = make_run_dir(str(short_root)), make_run_dir(str(short_root))
    assert one.path != two.path and one.path.exists()
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o700
    assert len(os.fsencode(one.dispatcher_path)) <= SOCKET_LIMIT_BYTES
    one.remove()
    two.remove()
    assert list(short_root.iterdir()) == []


def test_what_a_dead_pool_left_is_removed_and_what_lives_or_is_foreign_is_not(short_root: Path) -> None:
    """B036."""
    living, dead = make_run_dir(str(short_root)), make_run_dir(str(short_root))
    os.close(dead._lock)  # as its process's death would
    foreign = short_root / f"{PREFIX}foreign"
    foreign.mkdir(mode=0o755)
    fresh, unfinished = short_root / f"{DRAFT_PREFIX}fresh", short_root / f"{DRAFT_PREFIX}unfinished"
    for draft in (fresh, unfinished):
        draft.mkdir(mode=0o700)
    os.utime(unfinished, (0, 0))  # its maker was killed long ago
    new = make_run_dir(str(short_root))
    assert not dead.path.exists() and not unfinished.exists()
    assert living.path.exists() and foreign.exists() and fresh.exists()
    living.remove()
    new.remove()


def test_a_path_too_long_for_a_socket_is_refused_with_path_length_and_limit(short_root: Path) -> None:
    """B038."""
    long = str(short_root / ("x" * 100))
    with pytest.raises(ConfigError, match=str(SOCKET_LIMIT_BYTES)) as caught:
        make_run_dir(long)
    assert long in str(caught.value)


def test_a_long_usual_place_is_passed_over_for_a_shorter_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("y" * 120)))
    run_dir = make_run_dir()
    assert "y" * 120 not in str(run_dir.path)
    run_dir.remove()


def test_too_few_descriptors_are_refused_with_need_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """B051."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    with pytest.raises(ConfigError, match=r"--workers 16 needs 160 file descriptors, the limit is 64"):
        check_descriptors(16)
