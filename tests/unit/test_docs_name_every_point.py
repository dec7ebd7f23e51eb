"""docs/outages.md lists the points at which AWA_POOL_FAULTS can strike."""

from __future__ import annotations

from pathlib import Path

from awa_pool.faults import POINTS, VARIABLE, read_plan

PAGE = (Path(__file__).parents[2] / "docs" / "outages.md").read_text()


def test_every_point_stands_in_the_table() -> None:
    assert [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")] == list(POINTS)


def test_the_examples_can_be_read() -> None:
    texts = [line.split('"')[1] for line in PAGE.splitlines() if line.startswith(f"{VARIABLE}=")]
    plans = [read_plan(text) for text in texts]
    assert [plan.disturbs_messages for plan in plans] == [True, False]
    assert plans[1].points.keys() == {"dispatcher.claimed", "worker.ran"}
