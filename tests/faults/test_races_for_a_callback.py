"""The benchmark of races, short: of all that can end a wait for a callback one wins, and everybody else is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RACES = 6


@pytest.mark.timeout(400)
def test_whatever_meets_at_a_callback_has_one_winner_and_loses_nothing() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWA_POOL_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "races", "--rounds", "60", "--workers", "2", "--json"],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    flaws = {row["case"]: row["value"] for row in rows if row["metric"] == "flaws"}
    assert len(flaws) == RACES and not any(flaws.values()), done.stderr
    won = sum(row["value"] for row in rows if row["metric"] == "won")
    assert won == RACES * 60
