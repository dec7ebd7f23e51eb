"""What the endpoint says of endings and of parts that stand still, and what neither it nor the log may say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from apps import unruly
from pool_rig import PoolProcess, pool, wait_until
from servers import Server

from awa_pool import Client
from awa_pool.errors import AwaError

APP = "apps.unruly:client"
MARK = "s3cr3t-m4rk"


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as client:
        yield client


def figures(running: PoolProcess, name: str) -> dict[str, float]:
    """Return a metric's values by their labels as written."""
    found = {}
    for line in running.fetch("/metrics")[1].splitlines():
        if line.startswith(name) and line[len(name)] in " {":
            labels, _, value = line.removeprefix(name).rpartition(" ")
            found[labels] = float(value)
    return found


def outcomes(running: PoolProcess) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in figures(running, "awa_pool_attempts_total").items():
        outcome = labels.split('outcome="')[1].split('"')[0]
        sums[outcome] = sums.get(outcome, 0.0) + value
    return sums


def says(running: PoolProcess, status: int, words: str = "") -> bool:
    code, text = running.fetch("/readyz")
    return code == status and words in text


def confide(client: Client, then: str, secret: str = MARK, **more: object) -> int:
    return client.insert(unruly.Confide(then, secret, **more), kind="confide")  # type: ignore[arg-type]


def test_readiness_names_the_part_that_stands_still_and_liveness_holds(
    tmp_path: Path, pg_server: Server, dsn: str
) -> None:
    """B152: false within six seconds of each, true again when it is mended."""
    name = dsn.rpartition("dbname=")[2]
    with pool(tmp_path, dsn, metrics_port=0) as running:
        running.ready()

        def database(allowed: bool) -> None:
            pg_server.execute(f"alter database {name} allow_connections {allowed}")
            if not allowed:
                pg_server.execute(
                    f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
                )

        def actor(role: str) -> Callable[[], None]:
            return lambda: os.kill(running.children(role)[0], signal.SIGSTOP)

        for stop, mend, words in [
            (actor("dispatcher"), None, "the dispatcher"),
            (actor("finalizer"), None, "the finalizer"),
            (partial(database, False), partial(database, True), "away"),
        ]:
            wait_until("it is ready", lambda: says(running, 200), 30.0)
            stop()
            wait_until(f"{words} is named", partial(says, running, 503, words), 6.0)
            began_s = time.monotonic()
            assert running.fetch("/healthz")[0] == 200
            assert time.monotonic() - began_s < 2.0
            if mend is not None:
                mend()
        wait_until("it is ready again", lambda: says(running, 200), 30.0)


def test_each_way_an_attempt_ends_has_its_own_count_over_all_processes(
    tmp_path: Path, dsn: str, client: Client
) -> None:
    """B154."""
    with pool(tmp_path, dsn, app=APP, metrics_port=0, heartbeat_s=0.3, stale_s=2.0) as running:
        running.ready()

        def ended(jobs: int) -> bool:
            return sum(row.completed for row in client.queue_stats()) == jobs

        for then in ("", "", "", "retry", "raise", "snooze"):
            confide(client, then)
        wait_until("six have ended", lambda: ended(6))
        confide(
            client, "die"
        )  # last: results that are on their way die with the worker, and count as returned
        wait_until("all have ended", lambda: ended(7))
        wait_until("all are counted", lambda: outcomes(running).get("completed") == 7)
        os.kill(running.children("finalizer")[0], signal.SIGKILL)  # what it has counted stays
        running.logged("finalizer is ready", count=2)
        wanted = {"completed": 7.0, "retry": 2.0, "snooze": 1.0, "lost": 1.0}
        wait_until(f"outcomes {wanted}", lambda: outcomes(running) == wanted, 10.0)
        assert figures(running, "awa_pool_lost_attempts_total") == {"": 1.0}
        assert figures(running, "awa_pool_rescued_attempts_total") == {"": 0.0}
        assert figures(running, "awa_pool_process_restarts_total")['{role="worker"}'] == 1.0
        lost = PoolProcess(tmp_path, dsn, app=APP, workers=1, heartbeat_s=0.3, stale_s=2.0, queues=["hangs"])
        try:
            lost.ready(1)
            client.insert(unruly.Confide("hang", ""), kind="confide", queue="hangs")
            wait_until("it runs", lambda: any(row.running for row in client.queue_stats()))
        finally:
            lost.close()
        wait_until(
            "it is rescued and counted",
            lambda: figures(running, "awa_pool_rescued_attempts_total") == {"": 1.0},
        )
        assert outcomes(running) == wanted


def test_args_show_nowhere_but_where_they_are_asked_for(tmp_path: Path, dsn: str, client: Client) -> None:
    """B166."""
    texts: list[str] = []
    for wrong in (f"{MARK}\0", f"{MARK}\ud800", {MARK: 2**70}, object(), MARK * 1_000_000):
        with pytest.raises(AwaError) as refused:
            confide(client, "", wrong)  # type: ignore[arg-type]
        if wrong != {MARK: 2**70}:  # a path names keys
            texts.append(f"{refused.value} {refused.value!r}")
    with pool(tmp_path, dsn, app=APP, metrics_port=0, heartbeat_s=0.3, stale_s=2.0) as running:
        running.ready()
        ids = [confide(client, then) for then in ("raise", "retry", "snooze", "die", "give", "")]
        with psycopg.connect(dsn, autocommit=True) as conn:
            for args in (f'{{"then": "", "secret": ["{MARK}"]}}', f'{{"secret": "{MARK}"}}'):
                row = conn.execute("select awa_pool.enqueue('confide', %s::json)", (args,)).fetchone()
                assert row is not None
                ids.append(row[0])
            row = conn.execute(
                "select awa_pool.enqueue('nobody', %s::json)", (f'{{"x": "{MARK}"}}',)
            ).fetchone()
            assert row is not None
            ids.append(row[0])

        def ended() -> bool:
            return all(client.get_job(job).state in ("completed", "failed") for job in ids)

        wait_until("all have ended", ended)
        hanging = confide(client, "hang")
        wait_until("it hangs", lambda: client.get_job(hanging).state == "running")
        assert MARK not in running.fetch("/metrics")[1] and MARK not in running.fetch("/readyz")[1]
        with pool(tmp_path, dsn, app=APP, heartbeat_s=0.3, stale_s=2.0) as other:
            other.ready()
            running.signal(signal.SIGKILL)
            wait_until("it is rescued and done", lambda: client.get_job(hanging).state == "completed")
            texts += [running.log, other.log]
    for job in [*ids, hanging]:
        texts += [str(error) for error in client.get_job(job).errors or []]
    assert len(texts) > 10
    assert not [text for text in texts if MARK in text]
