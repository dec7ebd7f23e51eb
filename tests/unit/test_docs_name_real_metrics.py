"""docs/operations.md names metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_metric_in_the_operations_guide_is_exported() -> None:
    code = "".join((ROOT / "awa_pool" / name).read_text() for name in ("metrics.py", "supervisor/gauges.py"))
    named = set(re.findall(r"`(awa_pool_[a-z_]+)`", (ROOT / "docs" / "operations.md").read_text()))
    assert named
    for metric in named:
        assert f'"{metric.removesuffix("_total")}"' in code
