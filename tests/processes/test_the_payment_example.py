"""examples/payment, end to end over HTTP with signatures: three forms of one job, and another pool between its two waits."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from cli_rig import environment

from awa_pool import Cancel, Client
from awa_pool.testing import HandlerJob

EXAMPLES = Path(__file__).parents[2] / "examples"
FORMS = ("BuyWaiting", "BuyAsync", "BuyParked")


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_three_forms_of_a_job_come_through_a_change_of_pools_between_their_waits(
    dsn: str, killed: bool
) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "payment" / "run.py", "--dsn", dsn, *(["--kill"] if killed else [])],
        capture_output=True, text=True, timeout=110, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    # Given back by the stop, or still the dead pool's; a parked one waits for nobody.
    for job_id, state in enumerate(
        ("waiting_external",) * 3 if killed else ("available", "available", "waiting_external"), 1
    ):
        assert f"job {job_id} meanwhile: {state}" in said
    # The two that wait in their handlers have run from the top, the parked one went on.
    for form, attempt, times in zip(FORMS, (2, 2, 1) if killed else (1, 1, 1), (2, 2, 1), strict=True):
        assert f"{form}: attempt {attempt}, asked to pay {times} times and to ship {times} times" in said, (
            said
        )
    with Client(dsn) as client, psycopg.connect(dsn) as conn:
        for job_id, errors in zip((1, 2, 3), (1, 1, 0) if killed else (0, 0, 0), strict=True):
            row = client.get_job(job_id)
            assert row is not None and row.state == "completed" and len(row.errors) == errors, row
        told = conn.execute("select args->>'order', state from awa_pool.jobs where kind = 'tell'").fetchall()
        assert sorted(order.partition("-")[2] for order, _ in told) == sorted(FORMS)
        assert {state for _, state in told} == {"completed"}


def test_a_declined_card_cancels_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    try:
        jobs = importlib.import_module("payment.jobs")
        resumed = (1, {"charge": "", "why": "over the limit of this card"})
        job = HandlerJob(jobs.BuyParked("o", 5), resumed=resumed)
        answer = jobs.buy_parked(job)
        assert isinstance(answer, Cancel) and "over the limit of this card" in repr(answer)
    finally:
        for name in ("payment", "payment.jobs"):
            sys.modules.pop(name, None)
