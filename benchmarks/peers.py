"""The peers' side of a drain: install, load, start worker processes, say go, see the last completion."""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg

from . import environments
from .bare.pipeline import Pipeline
from .bare.statements import LOAD, SCHEMA
from .environments import PeerFailed, Program
from .ours import noop_jobs
from .server import Server, database, parts
from .sqltext import text

STALL_S = 60.0
NOOP_PAYLOAD = json.dumps({"i": 1, "payload": "a" * 30})


@dataclass(frozen=True)
class Setting:
    """One way to run a peer."""

    peer: str
    processes: int
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.peer} × {self.processes}" + (f" ({shown})" if shown else "")


SETTINGS: dict[str, tuple[Setting, ...]] = {
    "bare": (Setting("bare", 1),),
    "pgqueuer": (Setting("pgqueuer", 1, {"batch": 500}), Setting("pgqueuer", 2, {"batch": 1000})),
    "awa-pg": (
        Setting("awa-pg", 1, {"partitions": 1, "max_workers": 200, "connections": 20}),
        Setting("awa-pg", 2, {"partitions": 4, "max_workers": 400, "connections": 20}),
    ),
    "procrastinate": (
        Setting("procrastinate", 1, {"max_workers": 10}),
        Setting("procrastinate", 2, {"max_workers": 10}),
    ),
}
CPU_SETTINGS: dict[str, Setting] = {
    "pgqueuer": Setting("pgqueuer", 2, {"batch": 10}),
    "awa-pg": Setting("awa-pg", 2, {"partitions": 2, "max_workers": 4, "connections": 10}),
    "procrastinate": Setting("procrastinate", 2, {"max_workers": 2}),
}
DRAIN_JOBS = {"bare": 200_000, "pgqueuer": 25_000, "awa-pg": 10_000, "procrastinate": 1_000}


def drain(server: Server, setting: Setting, jobs: int, workers: int, burn_s: float = 0.0) -> float:
    """Drain that many jobs, empty or using CPU, from a fresh database; returns jobs per second."""
    with database(server) as dsn:
        if setting.peer == "bare":
            return jobs / _drain_bare(dsn, jobs, workers)
        order = {"server": parts(dsn), "jobs": jobs, "kind": "noop", "payload": NOOP_PAYLOAD, "drain": True}
        if burn_s:
            order |= {"kind": "burn", "payload": json.dumps({"cpu_s": burn_s}), "cpu_s": burn_s}
        order |= setting.options
        environments.run(setting.peer, "install", **order)
        environments.run(setting.peer, "load", **order)
        if setting.peer == "awa-pg":
            return jobs / _drain_counted(setting, order, jobs)
        return jobs / _drain_stamped(dsn, setting, order, jobs)


def _drain_bare(dsn: str, jobs: int, workers: int) -> float:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SCHEMA)
        with conn.cursor().copy(LOAD) as copy:
            for kind, args in noop_jobs(jobs):
                copy.write_row(("default", kind, args.decode()))
        pipeline = Pipeline(dsn, workers)
        since = conn.execute("select clock_timestamp()").fetchone()
        pipeline.drain()
        return _took_s(conn, "bare_completed", since, jobs, "bare")


def _took_s(conn: psycopg.Connection, statement: str, since: Any, jobs: int, peer: str) -> float:
    row = conn.execute(text(statement), {"since": since[0]}).fetchone()
    assert row is not None
    if row[0] != jobs:
        raise PeerFailed(f"{peer}: {row[0]} of {jobs} jobs completed")
    return float(row[1])


def _drain_stamped(dsn: str, setting: Setting, order: dict[str, Any], jobs: int) -> float:
    """Time a peer that leaves the time of each completion in its tables."""
    with contextlib.ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        running = [
            stack.enter_context(environments.program(setting.peer, "work", **order))
            for _ in range(setting.processes)
        ]
        for program in running:
            program.hear()
        since = conn.execute("select clock_timestamp()").fetchone()
        for program in running:
            program.tell(go=True)
        for program in running:
            program.hear()
            program.finish()
        return _took_s(conn, f"{setting.peer}_completed", since, jobs, setting.peer)


def _drain_counted(setting: Setting, order: dict[str, Any], jobs: int) -> float:
    """Time a peer whose tables forget at once: to the last handler's run, its last commits not included."""
    with contextlib.ExitStack() as stack:
        counters, running = [], []
        for _ in range(setting.processes):
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="awa-bench-count-"))
            file.write(bytes(8))
            file.flush()
            counters.append(mmap.mmap(file.fileno(), 8))
            running.append(
                stack.enter_context(environments.program(setting.peer, "work", counter=file.name, **order))
            )
        for program in running:
            program.hear()
        started = time.monotonic()
        for program in running:
            program.tell(go=True)
        while sum(struct.unpack("=q", counter[:8])[0] for counter in counters) < jobs:
            if time.monotonic() - started > STALL_S:
                raise PeerFailed(f"{setting.peer}: did not finish {jobs} jobs in {STALL_S:.0f} s")
            time.sleep(0.002)
        return time.monotonic() - started


def start_idle_worker(peer: str, dsn: str, bell: str) -> Program:
    """Start a worker process of the peer that waits for pings."""
    options = {**SETTINGS[peer][0].options, "drain": False, "bell": bell, "server": parts(dsn)}
    return Program(peer, "work", **options)
