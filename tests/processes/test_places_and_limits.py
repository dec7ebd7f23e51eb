"""Where pools put their sockets, what the system's limits do to them, and what they leave behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from apps import supervised
from cli_rig import run
from pool_rig import PoolProcess, alive, pool, wait_until

from awa_pool import Client, InsertRequest


def completed(client: Client) -> int:
    return sum(row.completed for row in client.queue_stats())


def folders(place: Path) -> list[Path]:
    return list(place.glob("awa-*"))


def shared_objects() -> set[str]:
    """Name what `multiprocessing` may leave in shared memory."""
    return {
        name for name in os.listdir("/dev/shm") if name.startswith(("sem.", "psm_", "wnsm_", "pym-", "mp-"))
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A short folder of this test's own."""
    path = tmp_path / "p"
    return path if len(str(path)) < 60 else Path("/tmp") / f"awa-place-{os.getpid()}"


def test_a_socket_folder_with_too_long_a_path_is_refused_once_with_path_length_and_limit(
    tmp_path: Path, dsn: str
) -> None:
    """B038."""
    (tmp_path / "app.py").write_text(
        "from awa_pool import Client\nclient = Client()\n@client.task(dict, kind='k')\ndef k(job): pass\n"
    )
    far = tmp_path / ("y" * 120)
    done = run("app:client", "--run-dir", str(far), "--drain", cwd=tmp_path, AWA_POOL_DSN=dsn)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(far) in line and "107" in line and str(len(f"{far}/awa-pool-12345678/dispatcher.sock")) in line
    usual = run("app:client", "--drain", "--workers", "1", cwd=tmp_path, AWA_POOL_DSN=dsn, TMPDIR=str(far))
    assert usual.returncode == 0, usual.stderr


def test_pools_that_come_go_and_are_killed_in_one_place_disturb_and_leave_nothing(
    place: Path, tmp_path: Path, dsn: str
) -> None:
    """B036, B040."""
    before = shared_objects()
    with Client(dsn) as client, pool(tmp_path, dsn, workers=1, run_dir=str(place)) as first:
        first.ready(1)
        for round_number in range(1, 3):
            second = PoolProcess(tmp_path, dsn, workers=1, run_dir=str(place))
            try:
                second.ready(1)
                client.insert_many(
                    [InsertRequest(args=supervised.Act("sleep", 0.01), kind="act") for _ in range(50)]
                )
                if round_number % 2:
                    below = second.children()
                    second.signal(signal.SIGKILL)
                    wait_until("it is gone", lambda below=below: not any(alive(pid) for pid in below))  # type: ignore[misc]
                    assert len(folders(place)) == 2
                else:
                    second.signal(signal.SIGTERM)
                    assert second.ended() == 0, second.log
                    assert len(folders(place)) == 1  # what the killed one left went too
            finally:
                second.close()
        assert "replacing" not in first.log and "malformed" not in first.log
        first.signal(signal.SIGTERM)
        assert first.ended() == 0
    assert not folders(place)
    assert shared_objects() <= before


def test_a_pool_starts_with_exactly_the_descriptors_it_asks_for_and_never_with_one_less(
    tmp_path: Path, dsn: str
) -> None:
    """B051."""

    def limited(limit: int) -> tuple[str, ...]:
        return ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh")

    with pool(tmp_path, dsn, workers=16, prefix=limited(64)) as running:
        assert running.ended() == 2
        assert "--workers 16 needs 160 file descriptors, the limit is 64" in running.log
    with (
        Client(dsn) as client,
        pool(
            tmp_path, dsn, workers=16, prefix=limited(160), app="apps.unruly:client", max_jobs_per_worker=20,
            metrics_port=0,
        ) as running,
    ):  # fmt: skip
        running.ready(16)
        ledger = str(tmp_path / "ledger")
        client.insert_many(
            [InsertRequest(args={"path": ledger, "s": 0.0}, kind="mark_async") for _ in range(400)]
            + [InsertRequest(args={"path": ledger, "s": 0.0}, kind="mark") for _ in range(400)]
        )
        wait_until("all are completed", lambda: completed(client) == 800)
        assert all(row.attempt == 1 for row in client.list_jobs(state="completed", limit=1000))
        running.signal(signal.SIGTERM)
        assert running.ended() == 0, running.log
        assert "Too many open files" not in running.log and "SIGABRT" not in running.log
