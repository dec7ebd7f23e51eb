"""The code in docs/getting-started.md and in examples/ is an app as it stands."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from awa_pool import Job
from awa_pool.worker.loading import load_named

ROOT = Path(__file__).parents[2]


def test_the_first_handler_of_the_guide_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "getting-started.md").read_text(), re.DOTALL)[
        0
    ]
    (tmp_path / "shop_of_the_guide.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("shop_of_the_guide")
    task = module.client.registry.tasks["render_invoice"]
    assert (task.queue, task.max_attempts) == ("reports", 5)
    assert task.handler(Job(module.RenderInvoice(7, 2), 1, "render_invoice")) is None
    assert "page 2: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "queues"),
    [
        ("shop.jobs:client", ["reports", "mail", "payments"]),
        ("measure:client", ["measure"]),
        ("payment.jobs:client", ["payment"]),
    ],
)
def test_the_examples_are_apps(spec: str, queues: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    before = set(sys.modules)
    try:
        assert load_named(spec).registry.queues() == queues
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] in ("shop", "measure", "payment"):
                del sys.modules[name]
