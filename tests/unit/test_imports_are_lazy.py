"""What a worker imports of us stays small: no driver, no wire, no SQL."""

from __future__ import annotations

import subprocess
import sys

import awa_pool

PROBE = """
import sys
import awa_pool
assert "awa_pool.client" not in sys.modules
from awa_pool import AsyncClient, Cancel, Client, RetryAfter, Snooze
client = Client("host=x")
@client.task(kind="k")
def handle(job): ...
heavy = {"psycopg", "psycopg_pool", "zmq", "asyncio", "importlib.resources", "typer", "rich", "pydantic", "msgspec"}
print(sorted(heavy & sys.modules.keys()))
"""


def test_declaring_tasks_loads_no_driver():
    shown = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_every_public_name_exists_and_an_unknown_one_does_not():
    for name in awa_pool.__all__:
        assert getattr(awa_pool, name).__name__ == name
    assert set(awa_pool.__all__) <= set(dir(awa_pool))
    assert not hasattr(awa_pool, "Nonsense")


def test_what_the_type_checker_sees_is_what_the_names_lead_to():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(awa_pool.__file__).read_text())
    seen = {
        alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(awa_pool.__all__) <= seen
