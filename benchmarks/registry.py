"""What a benchmark is, and where they are found: any module in `suite` that holds a `BENCHMARK`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from . import suite
from .server import Server


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: ours, and where there is a yardstick, the ratio ours over theirs."""

    metric: str
    value: float
    unit: str
    case: str = ""
    peer: str = ""
    ratio: float | None = None
    peer_value: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of a benchmark was asked to do."""

    server: Server
    peers: tuple[str, ...]
    workers: int
    rounds: int
    scale: float
    minutes: float = 5.0
    seed: int = 1
    rate: float = 5000.0

    def jobs(self, number: int) -> int:
        """Return that many jobs, scaled as asked."""
        return max(1, round(number * self.scale))

    def note(self, text: str) -> None:
        """Tell the person who waits what goes on."""
        print(f"  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark: its method in words, its yardsticks, its usual size, and the function that runs it."""

    name: str
    method: str
    run: Callable[[Plan], Iterator[Row]]
    peers: tuple[str, ...] = ()
    default_peers: tuple[str, ...] = ()
    workers: int = 2
    rounds: int = 3


def find() -> dict[str, Benchmark]:
    """Import every module of the suite and return the benchmarks by name."""
    modules = (
        importlib.import_module(f"{suite.__name__}.{m.name}") for m in pkgutil.iter_modules(suite.__path__)
    )
    found: list[Benchmark] = [m.BENCHMARK for m in modules if hasattr(m, "BENCHMARK")]
    return {benchmark.name: benchmark for benchmark in found}


def compare(
    metric: str, unit: str, ours: Sequence[float], theirs: Sequence[float], peer: str, case: str = ""
) -> Row:
    """Make a row of paired rounds: medians of both sides, and the median of the rounds' ratios."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Row(metric, median(ours), unit, case, peer, median(ratios), median(theirs))
