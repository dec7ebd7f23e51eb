"""How pools end: signals at any moment and to anybody, as process 1, cut jobs, rolling restarts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from apps import unruly
from cli_rig import APP, command, environment
from pool_rig import PoolProcess, alive, descendants, pool, wait_until

from awa_pool import Client, InsertRequest

UNRULY = "apps.unruly:client"


@pytest.fixture
def client(dsn: str) -> Client:
    return Client(dsn)


def insert(client: Client, kind: str, *args: object) -> list[int]:
    return client.insert_many([InsertRequest(args=each, kind=kind) for each in args])  # type: ignore[arg-type]


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def have_run(path: Path, jobs: int) -> bool:
    return len(lines(path)) >= jobs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_every_process_lets_running_jobs_end_and_the_pool_drain(
    tmp_path: Path, dsn: str, client: Client, number: signal.Signals
) -> None:
    """B143."""
    begun = tmp_path / "begun"
    ids = insert(client, "mark", *[unruly.Mark(str(begun), 1.5) for _ in range(2)])
    ids += insert(client, "mark_async", *[unruly.Mark(str(tmp_path / "slept"), 1.5) for _ in range(4)])
    with pool(tmp_path, dsn, app=UNRULY) as running:
        wait_until("both sync jobs run", lambda: len(lines(begun)) == 2)
        wait_until("the async ones too", lambda: sum(row.running for row in client.queue_stats()) == 6)
        everybody = [running.pid, *running.children()]
        running.signal(number, group=True)
        for pid in everybody:  # some init systems signal every process of a service
            os.kill(pid, number)
        assert running.ended() == 0, running.log
        assert "Traceback" not in running.log and "replacing" not in running.log
        rows = [client.get_job(job) for job in ids]
        assert {(row.state, row.attempt) for row in rows} == {("completed", 1)}


def hears(pid: int) -> bool:
    """Say whether a process has a handler for SIGTERM, or leaves it to whoever waits for it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(text.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def start_command(tmp_path: Path, dsn: str, *prefix: str) -> subprocess.Popen[bytes]:
    (tmp_path / "sums.py").write_text(APP)
    with (tmp_path / "log").open("wb") as log:
        return subprocess.Popen(
            [*prefix, *command(["sums:client", "--workers", "1"])], cwd=tmp_path, start_new_session=True,
            env=environment(AWA_POOL_DSN=dsn), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("imports", signal.SIGINT),
        ("imports", signal.SIGTERM),
        ("starting", signal.SIGINT),
        ("connected", signal.SIGTERM),
        ("serving", signal.SIGTERM),
    ],
)
def test_a_signal_to_the_group_at_any_moment_of_the_start_ends_it_in_order(
    tmp_path: Path, dsn: str, moment: str, number: signal.Signals
) -> None:
    process = start_command(tmp_path, dsn)
    log = tmp_path / "log"
    reached: Callable[[], bool] = (
        (lambda: hears(process.pid)) if moment == "imports" else (lambda: f" {moment} " in log.read_text())
    )
    try:
        wait_until(f"the pool is at {moment!r}", lambda: reached() or process.poll() is not None)
        below = descendants(process.pid)
        os.killpg(process.pid, number)
        assert process.wait(40.0) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        wait_until("nobody is left", lambda: not any(alive(pid) for pid in below), 10.0)
    finally:
        process.kill()
        process.wait()


def own_processes() -> tuple[str, ...]:
    """Return the command that runs another as process 1 of a fresh PID namespace, or skip."""
    users = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    prefix = (str(shutil.which("unshare")), *users, "--pid", "--fork", "--mount-proc", "--kill-child")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no `unshare` that may make a PID namespace here")
    return prefix


@pytest.mark.parametrize("moment", ["imports", "running"])
def test_as_process_one_it_stops_in_order_while_it_starts_and_while_a_job_runs(
    tmp_path: Path, dsn: str, client: Client, moment: str
) -> None:
    """B144."""
    begun = tmp_path / "begun"
    if moment == "imports":
        process = start_command(tmp_path, dsn, *own_processes())
        try:
            (first,) = wait_until("the pool is there", lambda: descendants(process.pid)[:1])
            wait_until("it hears", lambda: hears(first))
            os.kill(first, signal.SIGTERM)
            assert process.wait(40.0) == 0, (tmp_path / "log").read_text()
        finally:
            process.kill()
            process.wait()
        return
    (job,) = insert(client, "mark", unruly.Mark(str(begun), 1.0))
    running = PoolProcess(tmp_path, dsn, prefix=own_processes(), app=UNRULY, workers=1)
    try:
        wait_until("the job runs", begun.exists)
        os.kill(running.children("supervisor of")[0], signal.SIGTERM)
        assert running.ended() == 0, running.log
    finally:
        running.close()
    assert (client.get_job(job).state, client.get_job(job).attempt) == ("completed", 1)


@pytest.mark.parametrize("dispatcher", ["lives", "dies"])
def test_whatever_is_cut_can_be_claimed_at_once_with_no_attempt_used(
    tmp_path: Path, dsn: str, client: Client, dispatcher: str
) -> None:
    """B147."""
    begun = tmp_path / "begun"
    ids = insert(client, "mark", unruly.Mark(str(begun), 600.0))
    ids += insert(client, "mark_async", *[unruly.Mark(str(tmp_path / "slept"), 600.0) for _ in range(3)])
    ids += insert(client, "mark", *[unruly.Mark(str(begun), 600.0) for _ in range(20)])
    with pool(tmp_path, dsn, app=UNRULY, workers=1, drain_timeout_s=0.3) as running:
        wait_until("the job runs", begun.exists)
        wait_until("the async ones too", lambda: sum(row.running for row in client.queue_stats()) >= 4)
        running.signal(signal.SIGTERM)
        if dispatcher == "dies":
            running.logged("dispatcher.draining")
            os.kill(running.children("dispatcher")[0], signal.SIGKILL)
        assert running.ended(30.0) == 0, running.log
    rows = [client.get_job(job) for job in ids]
    assert {(row.state, row.attempt) for row in rows} == {("available", 0)}
    assert not any(row.errors for row in rows)


def test_a_rolling_restart_under_load_loses_and_repeats_nothing(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    ledger, jobs = tmp_path / "ledger", 700
    insert(client, "mark", *[unruly.Mark(str(ledger), 0.002) for _ in range(jobs)])
    insert(client, "mark_async", *[unruly.Mark(str(ledger), 0.05) for _ in range(200)])
    pools = [PoolProcess(tmp_path, dsn, app=UNRULY, workers=1) for _ in range(2)]
    try:
        for at in range(3):
            old = pools[-2]
            old.ready(1)
            wait_until("the load goes on", partial(have_run, ledger, 150 * (at + 1)))
            pools.append(PoolProcess(tmp_path, dsn, app=UNRULY, workers=1))
            old.signal(signal.SIGTERM)
            assert old.ended() == 0, old.log
        wait_until("everything is completed", lambda: completed(client) == jobs + 200)
    finally:
        for each in pools:
            each.close()
    ran = [job for _, job, _ in lines(ledger)]
    assert len(ran) == len(set(ran)) == jobs + 200
    assert {attempt for _, _, attempt in lines(ledger)} == {"1"}
