"""The chaos benchmark, short: everything is killed, stopped, restarted or lost, and every job ends once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.timeout(400)
def test_in_a_storm_nothing_is_lost_ends_twice_or_stays_running() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWA_POOL_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "chaos", "--minutes", "0.42", "--workers", "2", "--json"],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {row["metric"]: row["value"] for row in map(json.loads, done.stdout.splitlines())}
    wanted = ("lost", "doubled", "stuck", "orphans")
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, 0), done.stderr
    assert found["jobs_per_s"] > 0
