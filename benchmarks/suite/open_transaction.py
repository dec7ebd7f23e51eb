"""How soon an idle pool picks up a job while a transaction that has put one in stays open."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from statistics import quantiles

import psycopg

from awa_pool import Client
from benchmarks.apps import Ping
from benchmarks.registry import Benchmark, Plan, Row
from benchmarks.suite.latency import PAUSE_S, WARM_UP, Listener, idle_pool, pickup_ms

OPEN_S = 60
PEER = "without"


def run(plan: Plan) -> Iterator[Row]:
    """Take samples before, beside and after the transaction; half of those without it on either side.

    One pool in turns, not two side by side: the snapshots of the other database would hold the transaction too.
    """
    with (
        tempfile.TemporaryDirectory(prefix="awa-bench-bell-") as folder,
        idle_pool(plan, folder) as (dsn, client, listener),
    ):
        open_s = plan.jobs(OPEN_S)
        for _ in range(WARM_UP):
            pickup_ms(client, listener)
        without = list(_samples(client, listener, open_s / 2))
        with psycopg.connect(dsn) as slow:
            mine = time.monotonic_ns()
            client.insert(Ping(mine), conn=slow)
            plan.note(f"a transaction is open for {open_s} s")
            beside = list(_samples(client, listener, open_s))
            held_ms = (time.monotonic_ns() - mine) / 1e6
            slow.commit()
            own_ms = listener.wait_ms() - held_ms
        without += _samples(client, listener, open_s / 2)
    case = f"one open for {open_s} s"
    for metric, ours_ms, theirs_ms in (
        ("p95_ms", quantiles(beside, n=100)[94], quantiles(without, n=100)[94]),
        ("max_ms", max(beside), max(without)),
    ):
        yield Row(metric, ours_ms, "ms", case, PEER, ours_ms / theirs_ms, theirs_ms)
    yield Row("own_ms", own_ms, "ms", "its own job, from the commit on")


def _samples(client: Client, listener: Listener, seconds: float) -> Iterator[float]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(PAUSE_S)
        yield pickup_ms(client, listener)


BENCHMARK = Benchmark(
    name="open-transaction",
    method=(
        "pickup by an idle pool that listens, beside a transaction that has put a job in and stays open for a minute. One job "
        "at a time, 20 ms apart, from just before the producer's insert call to the first line of the handler, on the host's "
        "monotonic clock; the yardstick is the same pool in the half minutes before and after. own_ms: the transaction's own "
        "job, from the commit to its start"
    ),
    run=run,
    peers=(PEER,),
    default_peers=(PEER,),
    rounds=1,
)
