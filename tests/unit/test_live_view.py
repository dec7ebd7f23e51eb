"""The live picture, and what processes print above it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from awa_pool.cli.live import picture
from awa_pool.supervisor.snapshot import PoolSnapshot, QueueView, WorkerView


def snapshot(workers: int) -> PoolSnapshot:
    return PoolSnapshot(
        at_s=100.0,
        uptime_s=65.0,
        phase="running",
        database="up",
        app="shop.jobs:client",
        workers=tuple(
            WorkerView(
                number=n, incarnation=f"x{n}", pid=1000 + n, state="busy", kind="render", running=1, running_s=2.5,
                jobs_done=1234, rss_bytes=40 << 20,
            )
            for n in range(1, workers + 1)
        ),
        queues=(
            QueueView(
                queue="mail", available=5000, running=2, waiting=77, scheduled=1, retryable=2, dead=3, oldest_available_s=3.0, paused=True
            ),
        ),
        ended={"completed": 42, "lost": 0},
        jobs_per_s=1234.5,
        in_flight=7,
        restarts={"worker": 2},
        actors={},
    )  # fmt: skip


def drawn(shown: PoolSnapshot, height: int = 40) -> str:
    console = Console(width=120, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(shown, height))
    return capture.get()


def test_each_worker_has_a_line_with_state_kind_jobs_and_memory() -> None:
    text = drawn(snapshot(3))
    lines = [line for line in text.splitlines() if "render" in line]
    assert len(lines) == 3
    assert all(word in lines[0] for word in ("1001", "busy", "render", "2.5s", "1,234", "40 MiB"))
    for wanted in ("shop.jobs:client", "1,2", "jobs/s", "7 in flight", "42 completed", "2 restarts"):
        assert wanted in text
    heads, mail = (line.split() for line in text.splitlines() if "available" in line or "mail" in line)
    assert dict(zip(heads[1:], mail[2:], strict=True)) == {
        "available": "5,000", "running": "2", "waiting": "77", "later": "3", "dead": "3", "oldest": "3.0s",
    }  # fmt: skip
    assert "mail (paused)" in text


def test_more_workers_than_lines_are_counted_instead() -> None:
    text = drawn(snapshot(64), height=24)
    assert len(text.splitlines()) <= 24
    assert "more workers" in text


def test_a_database_that_is_away_is_told() -> None:
    assert "database: connection refused" in drawn(replace(snapshot(1), database="connection refused"))


def test_the_kind_of_a_job_cannot_move_the_cursor() -> None:
    shown = snapshot(1)
    worker = replace(shown.workers[0], kind="a\x1b[2Jb")
    assert "\x1b" not in drawn(replace(shown, workers=(worker,)))


SCRIPT = """
import os, subprocess, sys
from awa_pool.cli.terminal import Terminal
with Terminal() as terminal:
    terminal.console.print("drawn")
    print("own line", flush=True)
    subprocess.run([sys.executable, "-c", "import sys; print('child says hello'); print('and this', file=sys.stderr)"])
    os.write(1, b"x" * 100_000 + b"\\n" + b"without an end")
print("afterwards", os.isatty(1), flush=True)
"""


def test_what_children_write_appears_on_the_terminal_whole(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    told = bytearray()

    def read() -> None:
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux says so when the other end is closed
                return
            if not chunk:
                return
            told.extend(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(30) == 0
    reader.join(30)
    os.close(ours)
    text = told.decode()
    for wanted in ("drawn", "own line", "child says hello", "and this", "without an end", "afterwards True"):
        assert wanted in text
    assert text.count("x") >= 100_000


def test_handlers_that_wait_for_callbacks_are_counted_by_themselves() -> None:
    shown = snapshot(2)
    first, second = shown.workers
    waiting = replace(second, state="waiting", kind="", running=0, waiting=1200)
    text = drawn(replace(shown, workers=(replace(first, running=3, waiting=4), waiting)))
    assert "render +2, 4 waiting" in text
    assert [line for line in text.splitlines() if "1002" in line and "1,200 waiting" in line]
