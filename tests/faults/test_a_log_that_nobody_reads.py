"""Standard output and error of a pool lead into a pipe that is full, and nobody reads: jobs, limits and stops go on."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_rig import wait_until

from awa_pool import Client, InsertRequest

APP = """
import time
from awa_pool import Client

client = Client()


@client.task(dict, kind="sleep")
def sleep(job):
    time.sleep(job.args["seconds"])


@client.task(dict, kind="print")
def talk(job):
    print("x" * 4000, flush=True)
"""


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe without room: (reading end, writing end)."""
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    for size in (4096, 1):
        try:
            while True:
                os.write(writer, b"." * size)
        except BlockingIOError:
            pass
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    yield reader, writer
    os.close(reader)
    os.close(writer)


@pytest.fixture
def running(tmp_path: Path, dsn: str, full_pipe: tuple[int, int]) -> Iterator[subprocess.Popen[bytes]]:
    """A pool that can write nothing from its first line on."""
    (tmp_path / "noisy.py").write_text(APP)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "awa_pool.cli", "noisy:client", "--dsn", dsn, "--workers", "2", "--log-level", "debug",
            "--kill-grace", "0.5s", "--drain-timeout", "1s", "--heartbeat", "0.5s", "--stale-after", "2s",
        ],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=full_pipe[1], stderr=full_pipe[1], start_new_session=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait(10)


def test_jobs_run_deadlines_kill_and_a_signal_ends_the_pool_though_nobody_reads_its_log(
    dsn: str, running: subprocess.Popen[bytes]
) -> None:
    client = Client(dsn)
    quick = client.insert_many([InsertRequest(args={"seconds": 0}, kind="sleep") for _ in range(200)])
    wait_until("jobs are completed", lambda: all(client.get_job(job).state == "completed" for job in quick))
    stuck = client.insert({"seconds": 600}, kind="sleep", deadline=0.5, max_attempts=1)
    talker = client.insert({}, kind="print", deadline=0.5, max_attempts=1)  # it waits for the reader itself
    wait_until(
        "both are killed", lambda: all(client.get_job(job).state == "failed" for job in (stuck, talker))
    )
    cut = client.insert({"seconds": 600}, kind="sleep")
    wait_until("a job runs", lambda: client.get_job(cut).state == "running")
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0
    assert client.get_job(cut).state == "available"


def test_once_somebody_reads_again_the_log_goes_on(
    dsn: str, running: subprocess.Popen[bytes], full_pipe: tuple[int, int]
) -> None:
    client = Client(dsn)
    job = client.insert({"seconds": 0}, kind="sleep")
    wait_until("the job is completed", lambda: client.get_job(job).state == "completed")
    running.send_signal(signal.SIGTERM)
    seen = b""
    until_s = time.monotonic() + 30
    while b"the pool has ended" not in seen and time.monotonic() < until_s:
        seen += os.read(full_pipe[0], 1 << 16)
    assert b"supervisor: starting 2 workers" in seen and b"the pool has ended" in seen
    assert running.wait(30) == 0
