"""How soon an idle pool picks up a job."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

from awa_pool import Client
from benchmarks import environments, ours, peers
from benchmarks.apps import Ping, client_for
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.server import database, parts

SAMPLES, WARM_UP, PAUSE_S = 200, 10, 0.02


class Listener:
    """Receives what handlers report."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = str(Path(folder, name))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(30)

    def wait_ms(self) -> float:
        """Wait for the next report; returns the milliseconds from before the insert to the handler's start."""
        return float(struct.unpack("=q", self._socket.recv(8))[0]) / 1e6


@contextlib.contextmanager
def idle_pool(plan: Plan, folder: str) -> Iterator[tuple[str, Client, Listener]]:
    """Run our pool idle; gives its database's address, a producer, and what hears of pings that start."""
    listener = Listener(folder, "ours")
    with database(plan.server) as dsn:
        ours.migrate(dsn)
        with ours.pool(dsn, plan.workers, bell=listener.path), client_for(dsn) as client:
            yield dsn, client, listener


def pickup_ms(client: Client, listener: Listener) -> float:
    """Insert one job; returns how long it waited for its start."""
    client.insert(Ping(time.monotonic_ns()))
    return listener.wait_ms()


@contextlib.contextmanager
def our_side(plan: Plan, folder: str) -> Iterator[Callable[[], float]]:
    """Run our pool idle; gives a function that inserts one job and returns how long it waited."""
    with idle_pool(plan, folder) as (_, client, listener):
        yield lambda: pickup_ms(client, listener)


@contextlib.contextmanager
def their_side(plan: Plan, peer: str, folder: str) -> Iterator[Callable[[], float]]:
    """Run a worker process and a producer process of the peer; gives the same function."""
    listener = Listener(folder, peer)
    with database(plan.server) as dsn, contextlib.ExitStack() as stack:
        order = {**peers.SETTINGS[peer][0].options, "server": parts(dsn)}
        environments.run(peer, "install", **order)
        worker = peers.start_idle_worker(peer, dsn, listener.path)
        stack.callback(worker.end)
        worker.hear()
        worker.tell(go=True)
        producer = stack.enter_context(environments.program(peer, "produce", **order))
        producer.hear()

        def sample() -> float:
            producer.tell(insert=True)
            producer.hear()
            return listener.wait_ms()

        yield sample


def run(plan: Plan) -> Iterator[Row]:
    """Take samples in turns, one of each side, both idle in between."""
    with tempfile.TemporaryDirectory(prefix="awa-bench-bell-") as folder, contextlib.ExitStack() as stack:
        sides = {"": stack.enter_context(our_side(plan, folder))}
        sides |= {peer: stack.enter_context(their_side(plan, peer, folder)) for peer in plan.peers}
        waits: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(WARM_UP + plan.jobs(SAMPLES)):
            for name, sample in sides.items():
                time.sleep(PAUSE_S)
                wait_ms = sample()
                if number >= WARM_UP:
                    waits[name].append(wait_ms)
    for metric, centile in (("p50_ms", 50), ("p95_ms", 95)):
        ours_ms = quantiles(waits[""], n=100)[centile - 1]
        if not plan.peers:
            yield Row(metric, ours_ms, "ms")
        for peer in plan.peers:
            theirs_ms = quantiles(waits[peer], n=100)[centile - 1]
            yield Row(metric, ours_ms, "ms", "", peer, ours_ms / theirs_ms, theirs_ms)


BENCHMARK = Benchmark(
    name="latency",
    method=(
        "pickup by an idle pool that listens. One job at a time, from just before the producer's insert call to the "
        "first line of the handler, on the host's monotonic clock; ours and the peer's take turns, each with one "
        "producer that keeps its connection, 20 ms apart"
    ),
    run=run,
    peers=("pgqueuer", "awa-pg", "procrastinate"),
    default_peers=("pgqueuer",),
)
