"""How fast jobs are put in: one a call, many a call, by COPY."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import psycopg

from benchmarks import environments, ours, peers
from benchmarks.apps import QUEUE, Noop, client_for
from benchmarks.registry import Benchmark, Plan, Row, compare
from benchmarks.server import NoServer, database, parts
from benchmarks.sqltext import text

SLICE_S = 2.0
MANY, COPY = 5_000, 50_000
PGBENCH_SCALE = 10


def per_s(call: Callable[[], int], seconds: float = SLICE_S) -> float:
    """Repeat the call for a while; returns how many of what it counts were done a second."""
    done, started = 0, time.monotonic()
    while (took_s := time.monotonic() - started) < seconds:
        done += call()
    return done / took_s


def pgbench(plan: Plan, dsn: str, *arguments: str) -> str:
    """Run pgbench and return what it prints."""
    if plan.server.bin_dir is None or not (program := plan.server.bin_dir / "pgbench").exists():
        raise NoServer("pgbench is not installed: apt-get install postgresql, or choose another --peer")
    done = subprocess.run([program, *arguments, dsn], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NoServer(f"pgbench: {done.stderr[-500:]}")
    return done.stdout


def pgbench_per_s(plan: Plan, dsn: str) -> float:
    """Return pgbench's transactions a second: one client, its built-in simple update."""
    found = re.search(r"tps = ([\d.]+)", pgbench(plan, dsn, "-n", "-N", "-c1", f"-T{SLICE_S:.0f}"))
    assert found is not None
    return float(found.group(1))


class Bare:
    """The plainest inserts of the same rows, serialised from the same Python values."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute(text("bare_table"))

    def many(self, args: list[dict[str, Any]]) -> int:
        """Insert by one JSON document."""
        document = orjson.dumps([{"kind": "noop", "args": one, "queue": QUEUE} for one in args])
        self.conn.execute(text("bare_insert"), {"jobs": document.decode()})
        return len(args)

    def copy(self, args: list[dict[str, Any]]) -> int:
        """Insert by COPY."""
        with self.conn.cursor().copy(text("bare_copy")) as copy:
            for one in args:
                copy.write_row(("noop", orjson.dumps(one).decode(), QUEUE))
        return len(args)


def run(plan: Plan) -> Iterator[Row]:
    """Alternate our three roads with their yardsticks."""
    seconds = SLICE_S * plan.scale
    speeds: dict[str, list[float]] = {}

    def note(name: str, speed: float) -> None:
        speeds.setdefault(name, []).append(speed)
        plan.note(f"{name}: {speed:,.0f}/s")

    with database(plan.server) as bench_dsn:
        if "pgbench" in plan.peers:
            pgbench(plan, bench_dsn, "-i", "-q", f"-s{PGBENCH_SCALE}")
        for _ in range(plan.rounds):
            with database(plan.server) as dsn, database(plan.server) as bare_dsn:
                ours.migrate(dsn)
                jobs = [Noop(i, "a" * 30) for i in range(COPY)]
                plain = [{"i": i, "payload": "a" * 30} for i in range(COPY)]
                with client_for(dsn) as client:
                    note("single", per_s(lambda: bool(client.insert(jobs[0])), seconds))  # noqa: B023
                    if "pgbench" in plan.peers:
                        note("pgbench", pgbench_per_s(plan, bench_dsn))
                    bare = Bare(bare_dsn)
                    note("many", per_s(lambda: len(client.insert_many(jobs[:MANY])), seconds))  # noqa: B023
                    note("bare many", per_s(lambda: bare.many(plain[:MANY]), seconds))  # noqa: B023
                    note("copy", per_s(lambda: client.insert_many_copy(jobs) and COPY, seconds))  # noqa: B023
                    note("bare copy", per_s(lambda: bare.copy(plain), seconds))  # noqa: B023
                    bare.conn.close()
            for peer in set(plan.peers) & set(environments.PROGRAMS):
                single, many = peer_speeds(plan, peer, seconds)
                note(f"{peer} single", single)
                note(f"{peer} many", many)
    yield from rows(plan, speeds)


def peer_speeds(plan: Plan, peer: str, seconds: float) -> tuple[float, float]:
    """Return a peer's single inserts and its best bulk road, jobs a second."""
    with database(plan.server) as dsn:
        order = {
            **peers.SETTINGS[peer][0].options, "server": parts(dsn), "kind": "noop",
            "payload": peers.NOOP_PAYLOAD, "seconds": seconds, "jobs": plan.jobs(peers.DRAIN_JOBS[peer]),
        }  # fmt: skip
        environments.run(peer, "install", **order)
        single = environments.run(peer, "singles", **order)["per_s"]
        return float(single), float(environments.run(peer, "load", **order)["per_s"])


def rows(plan: Plan, speeds: dict[str, list[float]]) -> Iterator[Row]:
    """Pair each road with its yardsticks."""
    if "pgbench" in plan.peers:
        yield compare("single_per_s", "jobs/s", speeds["single"], speeds["pgbench"], "pgbench")
    yield compare("many_per_s", "jobs/s", speeds["many"], speeds["bare many"], "bare insert")
    yield compare("copy_per_s", "jobs/s", speeds["copy"], speeds["bare copy"], "bare copy")
    for peer in plan.peers:
        if peer in environments.PROGRAMS:
            yield compare("single_per_s", "jobs/s", speeds["single"], speeds[f"{peer} single"], peer)
            yield compare("many_per_s", "jobs/s", speeds["many"], speeds[f"{peer} many"], peer)


BENCHMARK = Benchmark(
    name="enqueue",
    method=(
        "one connection puts jobs in through Client: insert, insert_many (5,000 a call), insert_many_copy (50,000 a "
        "call), two seconds each a round. Beside: pgbench -N -c1 (scale 10); a bare insert from json_to_recordset and a "
        "bare COPY of the same rows, serialised from the same Python values, into a plain table with a primary key"
    ),
    run=run,
    peers=("pgbench", "pgqueuer", "awa-pg", "procrastinate"),
    default_peers=("pgbench",),
)
