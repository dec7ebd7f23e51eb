"""Tables of commands on a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from awa_pool.cli import dlq, render, status
from awa_pool.cli.job_view import jobs_table
from awa_pool.dead_letters import DeadJob
from awa_pool.job import JobRow
from awa_pool.store.inspecting import QueueStats, RuntimeRow

NOW = datetime(2026, 1, 31, 12, 30, 5, tzinfo=UTC)
RUNTIME = "8c5f1f6e-4c55-4a7e-9c58-0a3c3a6f6a11"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that draws on a terminal of that width."""

    def draw(width: int, make: Any) -> str:
        terminal = Console(width=width, force_terminal=False)
        monkeypatch.setattr(render, "console", lambda file=None: terminal)
        with terminal.capture() as capture:
            for part in make():
                terminal.print(part)
        return capture.get()

    return draw


def stats(queue: str, **counts: int) -> QueueStats:
    zero = dict.fromkeys(QueueStats._fields[1:10], 0)
    return QueueStats(
        queue, **{**zero, **counts}, oldest_available_s=3.0, paused=False, counts_are_capped=False
    )


def dead_job(number: int) -> DeadJob:
    error = "RuntimeError: the renderer gave up on page 17 after it had waited for the fonts"
    return DeadJob(
        number,
        "render",
        "reports",
        2,
        3,
        3,
        NOW,
        NOW,
        "max_attempts_exhausted",
        error,
        '{"page": 17}',
        12,
        [],
    )


def test_a_narrow_terminal_leaves_states_without_jobs_out_and_breaks_no_name(printed: Any) -> None:
    rows = [stats("reports", available=1234, dead=2), stats("mail", running=7)]
    narrow, wide = (printed(width, lambda: [status.queue_table(rows)]) for width in (60, 120))
    head, reports, mail = narrow.splitlines()
    assert head.split() == ["queue", "available", "running", *head.split()[3:]]
    assert {"dead", "oldest"} <= set(head.split()) and "retryable" not in head and "…" not in narrow
    assert reports.split()[:3] == ["reports", "1,234", "0"] and mail.split()[0] == "mail"
    assert len(wide.splitlines()[0].split()) == 11


def test_a_narrow_terminal_leaves_the_runtimes_number_out_whole(printed: Any) -> None:
    row = RuntimeRow(
        runtime_id=UUID(RUNTIME), host="render-17.shop.example", pid=4711, state="alive", started_at=NOW, heartbeat_at=NOW,
        heartbeat_age_s=1.0, info={"workers": 32},
    )  # fmt: skip
    narrow = printed(80, lambda: status._pools([row]))
    assert RUNTIME[:4] not in narrow and "render-17.shop.example" in narrow and len(narrow.splitlines()) == 2
    assert RUNTIME in printed(160, lambda: status._pools([row]))


@pytest.mark.parametrize("width", [80, 100, 160])
def test_errors_are_broken_between_words_and_nothing_else_is_broken(printed: Any, width: int) -> None:
    jobs = [JobRow(**job_fields())]
    for text in (
        printed(width, lambda: [dlq._table([dead_job(1)])]),
        printed(width, lambda: jobs_table(jobs)),
    ):
        words = text.split()
        for word in ("render", "reports", "RuntimeError:", "renderer", "fonts"):
            assert word in words, text


def test_in_a_pipe_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    render.console().print(dlq._table([dead_job(1), dead_job(2)]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all("waited for the fonts" in line for line in lines[1:])


def job_fields() -> dict[str, Any]:
    """The fields of a failed job."""
    error = {"attempt": 3, "error": "the renderer gave up on the fonts", "type": "RuntimeError"}
    known = {
        "id": 1, "kind": "render", "queue": "reports", "state": "failed", "priority": 2, "attempt": 3, "max_attempts": 3,
        "args": {}, "errors": [error], "metadata": {}, "tags": [], "run_at": NOW, "created_at": NOW, "dead": True,
        "run_lease": 3, "snoozes": 0,
    }  # fmt: skip
    return {name: known.get(name) for name in JobRow._fields}
