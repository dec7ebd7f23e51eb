"""The database is restored from a backup into a new cluster under a pool that merely reconnects."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apps import supervised
from clusters_rig import burn_xids, dump
from pool_rig import PoolProcess, pool, wait_until
from servers import Server, new_server, remove_server

from awa_pool import Client, InsertRequest
from awa_pool.store.migrate import migrate

DATABASE = "shop"


class Address:
    """A folder of sockets that leads to one cluster and then to another, as a name does."""

    def __init__(self, link: Path, server: Server) -> None:
        self._link = link
        self.dsn = f"host={link} port=5432 user=awa dbname={DATABASE}"
        self.lead_to(server)

    def lead_to(self, server: Server) -> None:
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(server.socket_dir)


@pytest.fixture
def clusters(pg_server: Server) -> Iterator[tuple[Server, Server]]:
    made = [new_server(pg_server.bin_dir, "fsync=off") for _ in range(2)]
    yield made[0], made[1]
    for server in made:
        remove_server(server)


def ledger(path: Path) -> Counter[int]:
    """How often the handler of each job has begun."""
    return Counter(int(line.split()[0]) for line in path.read_text().splitlines())


def insert(dsn: str, path: Path, count: int) -> list[int]:
    with Client(dsn) as client:
        act = supervised.Act("spin", 0.002, path=str(path))
        return list(client.insert_many([InsertRequest(args=act, kind="act") for _ in range(count)]))


def counts(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("select state, count(*) from awa_pool.jobs group by 1").fetchall())


def test_no_job_is_lost_and_none_that_was_completed_runs_again(
    tmp_path: Path, clusters: tuple[Server, Server]
) -> None:
    old, new = clusters
    old.execute(f"create database {DATABASE}")
    new.execute(f"create database {DATABASE}")
    address = Address(tmp_path / "db", old)
    burn_xids(address.dsn)
    migrate(address.dsn)
    book = tmp_path / "ledger"
    first = insert(address.dsn, book, 300)
    with pool(tmp_path, address.dsn, metrics_port=0) as running:
        running.ready()
        wait_until("the first jobs are done", lambda: counts(address.dsn).get("completed") == len(first))
        held = insert_slow(address.dsn, tmp_path / "slow")
        wait_until("it runs", lambda: (tmp_path / "slow").exists())
        with Client(address.dsn) as client:
            client.pause_queue("default")
        waiting = insert(address.dsn, book, 100)
        backup = dump(old, address.dsn, tmp_path / "backup")
        old.stop(signal.SIGQUIT)
        subprocess.run(
            [new.bin_dir / "pg_restore", "--exit-on-error", "-d", new.dsn(DATABASE), backup], check=True
        )
        address.lead_to(new)
        running.logged("awa-pool rebase")
        with psycopg.connect(address.dsn, autocommit=True) as conn:  # a producer that does not look
            conn.execute("select awa_pool.resume_queue('default')")
            blind = conn.execute(
                "select awa_pool.enqueue('act', %s)", [f'{{"what": "spin", "path": "{book}"}}']
            ).fetchone()
        assert running.fetch("/readyz")[0] == 503
        assert running.fetch("/healthz")[0] == 200
        assert counts(address.dsn)["available"] == len(waiting) + 1
        (tmp_path / "slow.go").touch()  # its result waits with the finalizer
        command_line("rebase", "--yes", dsn=address.dsn)
        everything = len(first) + len(waiting) + 2
        try:
            wait_until("all jobs are done", lambda: counts(address.dsn) == {"completed": everything})
        except AssertionError as late:
            raise AssertionError(f"{late}: {counts(address.dsn)}\n{running.log}") from None
        wait_until("it is ready again", lambda: running.fetch("/readyz")[0] == 200)
        done = ledger(book)
        assert set(done) == {*first, *waiting, blind[0] if blind else 0}
        assert set(done.values()) == {1}
        assert ledger(tmp_path / "slow") == {held: 1}
        assert "taken for dead" not in running.log
        stop(running)


def insert_slow(dsn: str, path: Path) -> int:
    """A job that runs until somebody makes the file `<path>.go`."""
    with Client(dsn) as client:
        return client.insert(supervised.Act("hold", 120.0, path=str(path)), kind="act")


def command_line(*words: str, dsn: str) -> None:
    subprocess.run([sys.executable, "-m", "awa_pool.cli", *words, "--dsn", dsn], check=True)


def stop(running: PoolProcess) -> None:
    running.signal(signal.SIGTERM)
    assert running.ended() == 0
