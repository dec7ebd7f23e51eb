"""What is inside the wheel and the sdist; built offline by the build backend itself."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("dispatcher", "finalizer", "sql")
BUILD_DEADLINE_S = 60


def build(source: Path, target: str, into: Path) -> Path:
    """Build one distribution of a source tree and return its path."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into],
        cwd=source, check=False, capture_output=True, text=True, timeout=BUILD_DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (built,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def expected_files() -> set[str]:
    """Return every module, SQL file and marker of the package, as the wheel should name them."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in (ROOT / "awa_pool", *(ROOT / "awa_pool" / name for name in LINKED))
        for pattern in ("**/*.py", "**/*.sql", "py.typed")
        for path in folder.glob(pattern)
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the tree."""
    return zipfile.ZipFile(build(ROOT, "wheel", tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from the tree and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    archive = build(ROOT, "sdist", folder)
    subprocess.run(["tar", "-xzf", archive], cwd=folder, check=True)
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


def test_the_wheel_holds_every_module_and_every_sql_file(wheel: zipfile.ZipFile) -> None:
    assert expected_files() <= set(wheel.namelist())


@pytest.mark.parametrize(
    "name",
    [
        "awa_pool/py.typed",
        "awa_pool/dispatcher/core.py",
        "awa_pool/finalizer/__init__.py",
        "awa_pool/sql/__init__.py",
        "awa_pool/sql/functions/claim.sql",
        "awa_pool/sql/functions/slot/close_bits.sql",
        "awa_pool/sql/migrations/0001_tables.sql",
        "awa_pool/sql/queries/claim.sql",
    ],
)
def test_the_wheel_holds_what_the_links_point_to(wheel: zipfile.ZipFile, name: str) -> None:
    assert name in wheel.namelist()


def test_the_wheel_installs_one_package_and_nothing_beside_it(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"awa_pool"}


def test_the_wheel_declares_the_console_script(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(name).decode())
    assert dict(scripts["console_scripts"]) == {"awa-pool": "awa_pool.cli:main"}


def test_pytest_finds_the_fixtures_of_an_installed_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    work = tmp_path / "work"
    work.mkdir()
    (work / "pytest.ini").write_text("[pytest]\n")
    (work / "test_it.py").write_text(
        "import awa_pool.testing\n"
        "from awa_pool.testing import HandlerJob\n"
        "def test_it(pytestconfig):\n"
        f"    assert awa_pool.testing.__file__.startswith({str(tmp_path)!r})\n"
        "    assert pytestconfig.getoption('--awa-dsn') is None\n"
        "    assert HandlerJob({'n': 1}, kind='k').run(lambda job: None).is_completed\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fixtures", "-v", "."], cwd=work,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, check=False, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert "awa_client" in done.stdout, done.stdout + done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "."], cwd=work,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, check=False, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_users_own_modules_do_not_come_between(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    (tmp_path / "work").mkdir()
    for name in LINKED:
        (tmp_path / "work" / f"{name}.py").write_text("mine = True\n")
    source = "; ".join(
        f"import {n}, awa_pool.{n}; assert {n}.mine and {n} is not awa_pool.{n}" for n in LINKED
    )
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path / "work", env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_sdist_builds_the_same_wheel(wheel: zipfile.ZipFile, sdist: Path, tmp_path: Path) -> None:
    rebuilt = zipfile.ZipFile(build(sdist, "wheel", tmp_path))
    assert set(rebuilt.namelist()) == set(wheel.namelist())


def test_the_sdist_carries_no_environment_of_a_peer(sdist: Path) -> None:
    assert not (sdist / "benchmarks" / ".peers").exists()
    assert (sdist / "benchmarks" / "__main__.py").exists()


@pytest.mark.parametrize("name", LINKED)
def test_the_links_in_the_package_are_relative(name: str) -> None:
    link = ROOT / "awa_pool" / name
    assert link.is_symlink(), f"{link} is a copy: this checkout does not support links"
    assert os.readlink(link) == f"../{name}"


@pytest.mark.parametrize("name", LINKED)
def test_git_keeps_the_links_as_links(name: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    ask = ["git", "-c", "safe.directory=*", "ls-files", "-s", f"awa_pool/{name}"]  # whoever owns the clone
    listed = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=True)
    assert listed.stdout.startswith("120000 "), listed.stdout
