"""Start everything and watch it: database, receiver, pool, outside world, and three orders, with a new pool between the two waits.

python examples/payment/run.py                     # on a throw-away server (pip install -e '.[embedded,callbacks]')
python examples/payment/run.py --dsn postgresql://…   # on yours, where `awa-pool migrate` has been
python examples/payment/run.py --kill              # the first pool is killed, not stopped
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from awa_pool import Client
from payment.jobs import BuyAsync, BuyParked, BuyWaiting
from payment.outside import Outside

APP = "payment.jobs:client"
DEADLINE_S = 90.0
_children: dict[str, subprocess.Popen[bytes]] = {}
QUICK = ("--heartbeat", "500ms", "--stale-after", "2s")  # so that a killed pool is missed soon


def main() -> int:
    """Run the example; returns 0 when all orders have come through."""
    parser = argparse.ArgumentParser(description="Pay, then ship, in three forms.")
    parser.add_argument("--dsn", help="your database; without it a throw-away server is used")
    parser.add_argument(
        "--kill", action="store_true", help="kill the first pool with SIGKILL instead of stopping it"
    )
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        dsn = given.dsn or stack.enter_context(_throw_away())
        return _show(dsn, kill=given.kill, stack=stack)


def _show(dsn: str, *, kill: bool, stack: contextlib.ExitStack) -> int:
    secret = secrets.token_hex(32)
    client = stack.enter_context(Client(dsn))
    outside = stack.enter_context(Outside(secret))
    outside.carrier_is_open.clear()
    port = _free_port()
    more = {
        "AWA_POOL_CALLBACK_SECRET": secret,
        "PAYMENT_RECEIVER": f"http://127.0.0.1:{port}",
        "PAYMENT_OUTSIDE": outside.url,
    }
    _say(f"the receiver listens on port {port}, the outside world on {outside.url}")
    stack.enter_context(_running(dsn, more, "callbacks", "--app", APP, "--port", str(port)))
    run = secrets.token_hex(3)
    forms = (BuyWaiting, BuyAsync, BuyParked)
    jobs = [client.insert(form(f"{run}-{form.__name__}", 4200), queue="payment") for form in forms]
    _say(f"three orders are in the queue, jobs {', '.join(map(str, jobs))}")
    with _running(dsn, more, APP, "--workers", "2", *QUICK) as pool:
        _wait(lambda: len(outside.parcels) == len(jobs))
        _wait(lambda: all(_state(client, job) == "waiting_external" for job in jobs))
        _say(
            "all are paid and wait for the carrier, who is closed; the pool is "
            + ("killed" if kill else "stopped")
        )
        if kill:
            os.killpg(pool.pid, signal.SIGKILL)
        else:
            pool.terminate()
        pool.wait(DEADLINE_S)
    for job in jobs:
        _say(f"job {job} meanwhile: {_state(client, job)}")
    _say("another pool starts, and the carrier opens")
    with _running(dsn, more, APP, "--workers", "2", *QUICK):
        outside.carrier_is_open.set()
        _wait(lambda: all(_state(client, job) == "completed" for job in jobs))
        _wait(lambda: _told(client, run) == ["completed"] * len(jobs))
    for form, job in zip(forms, jobs, strict=True):
        row = client.get_job(job)
        assert row is not None
        order = f"{run}-{form.__name__}"
        asked = tuple(outside.asked.get((what, order), 0) for what in ("charges", "parcels"))
        _say(
            f"{form.__name__}: attempt {row.attempt}, asked to pay {asked[0]} times and to ship {asked[1]} times; "
            f"done once each: {outside.charges[order]}, {outside.parcels[order]}"
        )
    return 0


@contextlib.contextmanager
def _throw_away() -> Iterator[str]:
    from awa_pool import embedded

    _say("a throw-away server starts")
    with embedded.temporary_server("awa-payment-") as server:
        with Client(server.dsn) as client:
            client.migrate()
        yield server.dsn


@contextlib.contextmanager
def _running(dsn: str, more: dict[str, str], *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of awa-pool for the time of a block, and stop it in order."""
    environ = {
        **os.environ,
        **more,
        "AWA_POOL_DSN": dsn,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path]),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "awa_pool.cli", *words, "--log-level", "warning"],
        env=environ, cwd=EXAMPLES, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    _children[words[0]] = process
    try:
        yield process
    finally:
        del _children[words[0]]
        process.terminate()
        process.wait(DEADLINE_S)


def _state(client: Client, job_id: int) -> str:
    row = client.get_job(job_id)
    return "" if row is None else str(row.state)


def _told(client: Client, run: str) -> list[str]:
    """Return the states of the jobs that tell the customers of this run."""
    rows = client.list_jobs(kind="tell", queue="payment", limit=1000)
    return [str(row.state) for row in rows if row.args["order"].startswith(run)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(check: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not check():
        for name, child in _children.items():
            if (status := child.poll()) is not None:
                raise SystemExit(
                    f"awa-pool {name} has ended with status {status}; its last line above says why"
                )
        if time.monotonic() > until_s:
            raise SystemExit(f"not within {DEADLINE_S:g} s; the lines above may say why")
        time.sleep(0.1)


def _say(text: str) -> None:
    print(f"--- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
