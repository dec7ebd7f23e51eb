"""Our side: the real command line as a subprocess, its queue loaded, let go and watched in the database."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import psycopg

from awa_pool.store.migrate import migrate as install

from .apps import BELL_VARIABLE, QUEUE, READY_VARIABLE
from .sqltext import text

ROOT = Path(__file__).parent.parent
NOOP_ARGS = b'{"i":%d,"payload":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}'
START_DEADLINE_S, STOP_DEADLINE_S, STALL_S = 60.0, 60.0, 120.0
WARM_UP_JOBS = 50
WATCHER = "awa-pool benchmark"


class PoolFailed(Exception):
    """Our pool did not start, did not finish its jobs, or ended with an error."""


def migrate(dsn: str) -> None:
    """Install the schema."""
    install(dsn)


def noop_jobs(count: int) -> Iterator[tuple[str, bytes]]:
    """Make the kinds and args of that many empty jobs."""
    return (("noop", NOOP_ARGS % i) for i in range(count))


def burn_jobs(count: int, cpu_s: float) -> Iterator[tuple[str, bytes]]:
    """Make the kinds and args of that many jobs that use CPU."""
    args = orjson.dumps({"cpu_s": cpu_s})
    return (("burn", args) for _ in range(count))


class Database:
    """A connection that loads jobs, lets the queue go, and sees what has completed."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True, application_name=WATCHER)

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()

    def one(self, name: str, **parameters: Any) -> tuple[Any, ...]:
        """Run a statement of ours and return its row."""
        row = self.conn.execute(text(name), parameters or None).fetchone()
        assert row is not None
        return row

    def load(self, jobs: Iterable[tuple[str, bytes]]) -> None:
        """Put jobs into the queue by COPY, in one transaction."""
        with self.conn.cursor().copy(text("load")) as copy:
            for kind, args in jobs:
                copy.write_row((kind, args.decode(), QUEUE))

    def pause(self) -> None:
        """Stop claims."""
        self.conn.execute("select awa_pool.pause_queue(%s, true)", (QUEUE,))

    def resume(self) -> Any:
        """Let claims go on; returns the server's time just before."""
        return self.one("resume", queue=QUEUE)[0]

    def backends(self) -> dict[int, str]:
        """Return the server's processes for this database, each with the name that its client gave it."""
        return dict(self.conn.execute(text("backends")).fetchall())

    def completed(self, since: Any) -> tuple[int, float]:
        """Return how many jobs have completed since then, and after how many seconds the last did."""
        jobs, took_s = self.one("completed", since=since)
        return int(jobs), float(took_s)

    def await_completed(
        self, since: Any, jobs: int, first_look_s: float = 0.0, every_s: float = 0.05
    ) -> float:
        """Wait until that many jobs have completed; returns the seconds from `since` to the last of them.

        Looking costs CPU that would count as the pool's, so the first look comes late.
        Errors: PoolFailed when nothing moves for two minutes.
        """
        time.sleep(first_look_s)
        seen, moved = -1, time.monotonic()
        while True:
            done, took_s = self.completed(since)
            if done >= jobs:
                return took_s
            if done != seen:
                seen, moved = done, time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                raise PoolFailed(f"the pool stands still at {done} of {jobs} jobs")
            time.sleep(every_s)

    def await_waiting(self, handlers: int, most_s: float) -> None:
        """Wait until the database says that so many attempts wait with their handlers. Errors: PoolFailed."""
        deadline = time.monotonic() + most_s
        while (seen := self.one("waiting")[0]) < handlers:
            if time.monotonic() > deadline:
                raise PoolFailed(f"of {handlers} handlers {seen} wait")
            time.sleep(0.02)

    def await_finished(self, kind: str, jobs: int, since: Any = None) -> float:
        """Wait until so many jobs of a kind that have rows of their own have completed; returns the seconds from `since` to the last.

        Errors: PoolFailed when nothing moves for two minutes.
        """
        seen, moved = -1, time.monotonic()
        while True:
            done, took_s = self.one("finished", kind=kind, since=since)
            if done >= jobs:
                return float(took_s)
            if done != seen:
                seen, moved = done, time.monotonic()
            elif time.monotonic() - moved > STALL_S:
                raise PoolFailed(f"of {jobs} jobs of the kind {kind} {done} have completed")
            time.sleep(0.05)


class Pool:
    """`awa-pool benchmarks.apps:client --workers N`, running."""

    def __init__(self, dsn: str, workers: int, *, bell: str = "", flags: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="awa-bench-pool-")
        self._ready, self._log = Path(self._folder.name, "ready"), Path(self._folder.name, "log")
        self._workers = workers
        environment = {
            **os.environ, "AWA_POOL_DSN": dsn, READY_VARIABLE: str(self._ready), BELL_VARIABLE: bell,
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        self.started_at = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [Path(sys.executable).parent / "awa-pool", "benchmarks.apps:client", "--workers", str(workers), *flags],
                env=environment, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> list[int]:
        """Wait until every worker has run its start hooks; returns their process ids.

        Errors: PoolFailed with the end of the pool's log.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            with contextlib.suppress(FileNotFoundError):
                pids = self._ready.read_text().split()
                if len(pids) >= self._workers:
                    return [int(pid) for pid in pids]
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise PoolFailed(f"the pool did not start: {self.log()}")
            time.sleep(0.002)

    def started(self) -> int:
        """Return how many worker processes have been ready so far."""
        with contextlib.suppress(FileNotFoundError):
            return len(self._ready.read_text().split())
        return 0

    def log(self) -> str:
        """Return the end of what the pool has written."""
        return self._log.read_text(errors="replace")[-2000:]

    def lines(self) -> list[str]:
        """Return all that the pool has written."""
        return self._log.read_text(errors="replace").splitlines()

    def stop(self) -> None:
        """End the pool as Ctrl-C would; by force when it does not end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.contextmanager
def pool(
    dsn: str, workers: int, *, bell: str = "", flags: Sequence[str] = ()
) -> Iterator[tuple[Pool, Database]]:
    """Run the pool for a block; some jobs have gone through all its processes by then."""
    running = Pool(dsn, workers, bell=bell, flags=flags)
    database = Database(dsn)
    try:
        running.await_ready()
        since = database.resume()
        database.load(noop_jobs(WARM_UP_JOBS))
        database.await_completed(since, WARM_UP_JOBS)
        yield running, database
    finally:
        database.close()
        running.stop()


def drain(dsn: str, workers: int, jobs: Iterable[tuple[str, bytes]], count: int) -> float:
    """Start a pool, load a paused queue, let it go; returns the seconds to the last completion."""
    with pool(dsn, workers) as (_, database):
        database.pause()
        database.load(jobs)
        return database.await_completed(database.resume(), count)
