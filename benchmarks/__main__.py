"""Command line: `python -m benchmarks NAME [--json] [--dsn DSN] [--peer NAME …]`."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from . import server as servers
from .environments import PeerFailed
from .ours import PoolFailed
from .registry import Benchmark, Plan, find
from .report import as_json, as_table, head


def parser(known: dict[str, Benchmark]) -> argparse.ArgumentParser:
    """Describe the command line."""
    listing = "\n".join(f"  {name:16} {b.method.split('. ')[0]}." for name, b in sorted(known.items()))
    form = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure awa-pool beside its yardsticks in the same run, alternating.",
        epilog=f"benchmarks:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    form.add_argument("name", choices=sorted(known), metavar="NAME", help="which benchmark")
    form.add_argument("--json", action="store_true", help="print one JSON object a line")
    form.add_argument("--dsn", help="a server to make databases on; without it a throw-away one is started")
    form.add_argument(
        "--peer", action="append", metavar="PEER", help="a yardstick (repeatable); see each method"
    )
    form.add_argument("--workers", type=int, help="worker processes of our pool")
    form.add_argument("--rounds", type=int, help="how many alternating rounds")
    form.add_argument(
        "--scale", type=float, default=1.0, help="factor on the number of jobs, for a quick look"
    )
    form.add_argument(
        "--minutes", type=float, default=5.0, help="how long chaos, outage, pinned and soak go on"
    )
    form.add_argument("--rate", type=float, default=5000.0, help="jobs per second of pinned")
    form.add_argument("--seed", type=int, default=1, help="which storm chaos makes")
    return form


def stop(number: int, frame: FrameType | None) -> None:
    """End by an exception, so that servers and pools are stopped on the way out."""
    raise SystemExit(128 + number)


def main() -> int:
    """Run one benchmark; 0, or 1 when it could not be carried out, or 2 for a wrong argument."""
    known = find()
    form = parser(known)
    asked = form.parse_args()
    benchmark = known[asked.name]
    peers = tuple(asked.peer) if asked.peer else benchmark.default_peers
    for peer in peers:
        if peer not in benchmark.peers:
            form.error(f"{asked.name} has no peer {peer!r}; it has: {', '.join(benchmark.peers) or 'none'}")
    signal.signal(signal.SIGTERM, stop)
    place = servers.given(asked.dsn) if asked.dsn else servers.throw_away()
    try:
        with place as server:
            plan = Plan(
                server,
                peers,
                asked.workers or benchmark.workers,
                asked.rounds or benchmark.rounds,
                asked.scale,
                asked.minutes,
                asked.seed,
                asked.rate,
            )
            print(head(benchmark, server), file=sys.stderr if asked.json else sys.stdout, flush=True)
            rows = []
            for row in benchmark.run(plan):
                rows.append(row)
                if asked.json:
                    print(as_json(benchmark, row), flush=True)
            if not asked.json:
                print(as_table(rows))
    except (servers.NoServer, PeerFailed, PoolFailed) as error:
        print(f"{asked.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
