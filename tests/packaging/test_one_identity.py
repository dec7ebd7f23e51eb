"""The process packages have one name, wherever the interpreter is started."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_python(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of Python in a folder, which stands first on its path."""
    return subprocess.run(
        [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["dispatcher", "finalizer"])
def test_the_bare_name_is_refused_from_the_root_and_names_the_right_one(name: str) -> None:
    done = run_python(f"import {name}", ROOT)
    assert done.returncode != 0
    assert f"ImportError: import awa_pool.{name}" in done.stderr


def test_importing_the_package_loads_no_database_driver_and_no_sockets() -> None:
    done = run_python(
        "import sys, awa_pool; print([m for m in ('psycopg', 'zmq') if m in sys.modules])", ROOT
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_console_script_leads_to_a_function() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="awa-pool")
    assert callable(script.load())


def test_the_sql_files_are_read_as_resources_of_the_package() -> None:
    assert (resources.files("awa_pool.sql") / "functions" / "claim.sql").is_file()
