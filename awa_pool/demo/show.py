"""The demo from start to end: a server, a pool, a job per file and per module, two tables, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from awa_pool.embedded import TemporaryServer
from awa_pool.errors import AwaError, BootFailed
from awa_pool.store.migrate import migrate

from . import tables
from .measure import MeasureFile, client, python_files
from .results import Results, percentile, totals

APP = "awa_pool.demo.measure:client"
PICKUPS = 100  # jobs put in one by one to see how soon an idle pool takes them up
START_DEADLINE_S = 60.0
STALL_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
_LOOK_EVERY_S = 0.05


@dataclass
class Speed:
    """What was measured on the way; seconds, unless named otherwise."""

    workers: int
    cores: int
    server_s: float
    pool_s: float = 0.0
    enqueue_s: float = 0.0
    wall_s: float = 0.0
    jobs: int = 0
    handler_cpu_s: float = 0.0
    pickups_s: list[float] = field(default_factory=list)
    modules_s: float = 0.0  # from the last file's end to the last module's
    repeats: int = 0  # jobs that ran twice: delivery is at least once

    @property
    def jobs_per_s(self) -> float:
        return self.jobs / self.wall_s

    @property
    def cpu_share(self) -> float:
        """The handlers' CPU time as a share of what the used cores could give."""
        return self.handler_cpu_s / (self.wall_s * min(self.workers, self.cores))

    def pickup_ms(self, share: float) -> float:
        return percentile(self.pickups_s, share) * 1000


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def show(workers: int, server: TemporaryServer, server_s: float, out: Console) -> None:
    """Run the demo on a server that took `server_s` to start, and print its tables to `out`.

    Errors: BootFailed with the pool's own words when it does not start or stops working.
    """
    speed = Speed(workers, usable_cores(), server_s)
    migrate(server.dsn)
    client.dsn = server.dsn  # the app's own client, so that jobs get the queue its task names
    results = Results(server.files / "results")
    results.folder.mkdir()
    files = python_files(Path(sysconfig.get_path("stdlib")))
    began_s = time.monotonic()
    with client, _pool(workers, server) as pool:
        watch = _Watch(pool, results, server.files / "pool.log")
        client.insert(MeasureFile(str(files[0]), str(results.folder)))
        watch.until(1, START_DEADLINE_S, "the pool did not start")
        speed.pool_s = time.monotonic() - began_s
        _measure_all(files, watch, speed, out)
        measured = list(results.lines)
        _await_modules(watch, speed)
        looked_up = list(results.modules)
        _measure_pickup(watch, speed)
    speed.repeats = results.repeats
    out.print(tables.findings(totals(measured), looked_up))
    out.print(tables.speed(speed))


def _measure_all(files: list[Path], watch: _Watch, speed: Speed, out: Console) -> None:
    """One job per file, all put in at once."""
    before = len(watch.results.lines)
    began_s = time.monotonic()
    client.insert_many([MeasureFile(str(path), str(watch.results.folder)) for path in files])
    speed.enqueue_s = time.monotonic() - began_s
    what = f"measuring {len(files):,} files of Python {sys.version.split()[0]}"
    if not out.is_terminal:
        out.print(what)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=len(files))
        watch.until(
            before + len(files),
            STALL_DEADLINE_S,
            "the pool does not get on",
            lambda done: progress.update(task, completed=done - before),
        )
    speed.wall_s = time.monotonic() - began_s
    speed.jobs = len(files)
    speed.handler_cpu_s = sum(line["cpu_s"] for line in watch.results.lines[before:])


def _await_modules(watch: _Watch, speed: Speed) -> None:
    """Wait for the second stage: a job for each module that any file imports."""
    began_s = time.monotonic()
    wanted = {name for line in watch.results.lines for name in line["imports"]}
    done = {line["module"] for line in watch.results.modules}
    while missing := wanted - done:
        watch.until_modules(
            len(watch.results.modules) + 1, STALL_DEADLINE_S, f"{len(missing)} modules are missing"
        )
        done = {line["module"] for line in watch.results.modules}
    speed.modules_s = time.monotonic() - began_s


def _measure_pickup(watch: _Watch, speed: Speed) -> None:
    """Single jobs into the idle pool: from before the insert until the handler's first line."""
    smallest = Path(sysconfig.get_path("stdlib"), "__future__.py")
    for _ in range(PICKUPS):
        sent = time.time()
        client.insert(MeasureFile(str(smallest), str(watch.results.folder)))
        watch.until(len(watch.results.lines) + 1, START_DEADLINE_S, "the pool does not get on", pause_s=0.002)
        speed.pickups_s.append(watch.results.lines[-1]["started"] - sent)


class _Watch:
    """Waits for results, and notices when none can come any more."""

    def __init__(self, pool: subprocess.Popen[bytes], results: Results, log: Path) -> None:
        self.results = results
        self._pool = pool
        self._log = log

    def until(
        self,
        count: int,
        patience_s: float,
        complaint: str,
        tell: Callable[[int], object] | None = None,
        pause_s: float = _LOOK_EVERY_S,
    ) -> None:
        """Return when `count` files are done; BootFailed when the pool ends, or none came for `patience_s`."""
        self._until(self.results.lines, count, patience_s, complaint, tell, pause_s)

    def until_modules(self, count: int, patience_s: float, complaint: str) -> None:
        """Return when `count` modules are done, else as `until`."""
        self._until(self.results.modules, count, patience_s, complaint, None, _LOOK_EVERY_S)

    def _until(
        self,
        lines: list[dict[str, Any]],
        count: int,
        patience_s: float,
        complaint: str,
        tell: Callable[[int], object] | None,
        pause_s: float,
    ) -> None:
        last_s = time.monotonic()
        while len(lines) < count:
            if self.results.read():
                last_s = time.monotonic()
                if tell is not None:
                    tell(len(self.results.lines))
            elif self._pool.poll() is not None or time.monotonic() - last_s > patience_s:
                raise BootFailed(f"{complaint}: {self._last_words()}")
            else:
                time.sleep(pause_s)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-5:]) or f"it ended with status {self._pool.returncode} and said nothing"


@contextlib.contextmanager
def _pool(workers: int, server: TemporaryServer) -> Iterator[subprocess.Popen[bytes]]:
    """Run the pool as a user would, in a process of its own; stopped at the end, whatever happens."""
    words = [str(server.root), str(server.data_dir), APP, "--workers", str(workers)]
    with (server.files / "pool.log").open("wb") as log:
        pool = subprocess.Popen(
            [sys.executable, "-m", "awa_pool.cli.demo_pool", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield pool
        pool.send_signal(signal.SIGTERM)
        status = pool.wait(STOP_DEADLINE_S)
        if status != 0:
            told = (server.files / "pool.log").read_text(errors="replace")
            raise AwaError(f"the pool ended with status {status}: {told[-500:]}")
    finally:
        if pool.poll() is None:
            pool.terminate()
            try:
                pool.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                pool.kill()
                pool.wait()
