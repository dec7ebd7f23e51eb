"""How figures are shown: a table for people, or one JSON object a line."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from .registry import Benchmark, Row
from .server import Server


def machine(server: Server) -> str:
    """Describe where the figures come from."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        "CPU",
    )
    memory = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    return (
        f"{os.cpu_count()} cores ({model}), {memory / 2**20:.1f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, PostgreSQL {server.version()} on the same machine, "
        f"load before the run {os.getloadavg()[0]:.2f}"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def head(benchmark: Benchmark, server: Server) -> str:
    """Say what is measured, how and where."""
    return f"{benchmark.name}: {benchmark.method}\nmachine: {machine(server)}"


def as_json(benchmark: Benchmark, row: Row) -> str:
    """Write a row as one JSON object."""
    shown = {
        "benchmark": benchmark.name,
        "metric": row.metric,
        "value": _rounded(row.value),
        "unit": row.unit,
    }
    if row.case:
        shown["case"] = row.case
    if row.peer:
        shown["peer"] = row.peer
        if row.ratio is not None:
            shown["ratio"] = round(row.ratio, 4)
        if row.peer_value is not None:
            shown["peer_value"] = _rounded(row.peer_value)
    return json.dumps(shown)


def as_table(rows: Iterable[Row]) -> str:
    """Write rows as a table for people."""
    lines = [("metric", "case", "ours", "unit", "yardstick", "theirs", "ratio")]
    for row in rows:
        theirs = "" if row.peer_value is None else _short(row.peer_value)
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        lines.append((row.metric, row.case, _short(row.value), row.unit, row.peer, theirs, ratio))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(w) if i in (2, 5, 6) else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
        .rstrip()
        for line in lines
    )  # fmt: skip


def _rounded(value: float) -> float:
    return round(value, 1) if abs(value) >= 100 else round(value, 4)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
