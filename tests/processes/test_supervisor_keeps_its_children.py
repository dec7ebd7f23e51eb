"""Whole pools without a job: what starts, what is replaced, what ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from pool_rig import PoolProcess, alive, pool, title_of, wait_until


def test_a_pool_starts_and_a_stop_signal_ends_it_with_status_zero(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        below = running.children()
        running.signal(signal.SIGTERM)
        assert running.ended() == 0, running.log
        wait_until("all children are gone", lambda: not any(alive(pid) for pid in below), 10.0)


def test_a_signal_to_the_whole_group_is_acted_on_by_the_parent_alone(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        running.signal(signal.SIGINT, group=True)
        assert running.ended() == 0, running.log
        assert "Traceback" not in running.log and "replacing" not in running.log


@pytest.mark.parametrize("line", ["starting 2 workers", "worker 1 is ready"])
def test_a_signal_to_the_group_during_start_up_ends_it_cleanly(tmp_path: Path, dsn: str, line: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.logged(line)
        below = running.children()
        running.signal(signal.SIGTERM, group=True)
        assert running.ended() == 0, running.log
        assert "Traceback" not in running.log
        wait_until("all children are gone", lambda: not any(alive(pid) for pid in below))


def test_a_killed_worker_is_replaced_and_its_sibling_stays(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        (one,), (two,) = running.children("worker 1"), running.children("worker 2")
        os.kill(one, signal.SIGKILL)
        running.logged("worker 1 is ready", count=2)
        assert "worker 1 killed by signal 9 (SIGKILL)" in running.log
        assert running.children("worker 2") == [two]


def test_actors_that_are_killed_or_frozen_are_replaced(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        pids = {role: running.children(role)[0] for role in ("dispatcher", "finalizer", "maintenance")}
        os.kill(pids["dispatcher"], signal.SIGSTOP)
        os.kill(pids["finalizer"], signal.SIGKILL)
        os.kill(pids["maintenance"], signal.SIGKILL)
        for role, pid in pids.items():
            running.logged(f"{role} is ready", count=2)
            assert not alive(pid)
        assert re.search("dispatcher (has been silent|was stopped by a signal) for 5 s: killed", running.log)


def test_the_fork_server_dies_and_workers_come_back(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        (worker, *_) = running.children("worker 1")
        server = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        assert server != running.pid
        os.kill(server, signal.SIGKILL)
        running.logged("worker 1 is ready", count=2)
        running.logged("worker 2 is ready", count=2)


def test_when_the_supervisor_is_killed_all_children_go_within_seconds(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn) as running:
        running.ready()
        below = running.children()
        assert len(below) >= 5
        running.signal(signal.SIGKILL)
        wait_until("all children are gone", lambda: not any(alive(pid) for pid in below), 10.0)


def test_without_a_database_the_pool_starts_says_so_once_and_a_missing_schema_is_refused(
    tmp_path: Path, empty_dsn: str
) -> None:
    with pool(tmp_path, empty_dsn) as running:
        assert running.ended() == 2
        assert "awa-pool migrate" in running.log
    nowhere = "host=/nonexistent/socket user=awa password=swordfish dbname=x"
    with pool(tmp_path, nowhere, metrics_port=0) as running:
        running.ready()
        running.logged("the database is away")
        assert running.fetch("/readyz")[0] == 503
        assert running.fetch("/healthz")[0] == 200
        running.signal(signal.SIGTERM)
        assert running.ended() in (0, 1)
        assert running.log.count("supervisor: the database is away") == 1
        assert "swordfish" not in running.log


def test_no_address_shows_in_a_title_or_command_line(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn + " password=swordfish") as running:
        running.ready()
        assert all("swordfish" not in title_of(pid) for pid in running.children())


def test_an_app_that_is_not_there_ends_the_pool_with_status_two(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn, app="apps.nothing_here:client") as running:
        assert running.ended() == 2
        assert "apps.nothing_here" in running.log


def test_a_signal_ends_a_pool_whose_app_hangs_while_it_is_imported(tmp_path: Path, dsn: str) -> None:
    with pool(tmp_path, dsn, app="apps.hanging:client") as running:
        running.logged("connected to the database")
        running.signal(signal.SIGTERM)
        assert running.ended(40.0) == 0, running.log


def test_readiness_names_stopped_workers(tmp_path: Path, dsn: str) -> None:
    """B152."""
    with pool(tmp_path, dsn, metrics_port=0) as running:
        running.ready()
        wait_until("it is ready", lambda: running.fetch("/readyz")[0] == 200)
        pids = [pid for number in (1, 2) for pid in running.children(f"worker {number}")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_until("it is not ready", lambda: running.fetch("/readyz")[0] == 503, 6.0)
        assert "0 of 2 workers" in running.fetch("/readyz")[1]
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        wait_until("it is ready again", lambda: running.fetch("/readyz")[0] == 200, 6.0)
        assert 'awa_pool_workers{state="idle"} 2.0' in running.fetch("/metrics")[1]


def test_a_frozen_and_thawed_pool_goes_on_as_if_nothing_had_been(tmp_path: Path, dsn: str) -> None:
    """B050."""
    with pool(tmp_path, dsn) as running:
        running.ready()
        everybody = [running.pid, *running.children()]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        wait_until("six seconds have passed", partial(_passed, 6.0, [None]))
        for pid in reversed(everybody):
            os.kill(pid, signal.SIGCONT)
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
        assert "killed" not in running.log


def _passed(seconds: float, began: list[float | None]) -> bool:
    import time

    began[0] = began[0] or time.monotonic()
    return time.monotonic() - began[0] > seconds


def test_it_works_as_process_one_and_reaps_orphans(tmp_path: Path, dsn: str) -> None:
    """B144."""
    unshare = shutil.which("unshare")
    users, enter = (
        ((), ())
        if os.geteuid() == 0
        else (("--user", "--map-root-user"), ("--user", "--preserve-credentials"))
    )
    prefix = (str(unshare), *users, "--pid", "--fork", "--mount-proc", "--kill-child")
    if unshare is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no `unshare` that may make a PID namespace here")
    running = PoolProcess(tmp_path, dsn, prefix=prefix)
    try:
        running.ready()
        (first,) = running.children("supervisor of")
        orphan = subprocess.run(
            ["nsenter", "-t", str(first), *enter, "-p", "-m", "sh", "-c", "(sleep 0.1; exit 3) & exit 0"],
            check=False,
        )
        assert orphan.returncode == 0
        os.kill(first, signal.SIGTERM)
        assert running.ended() == 0, running.log
    finally:
        running.close()
