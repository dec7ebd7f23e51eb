"""The demo's two tables."""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from .results import Totals


def findings(found: Totals, modules: list[dict[str, Any]]) -> Table:
    """Say what the files contain, and which modules they import."""
    made = _table(f"The standard library of Python {sys.version.split()[0]}")
    for name in ("files", "lines", "functions", "classes"):
        made.add_row(name, f"{getattr(found, name):,}")
    made.add_row("branches", f"{found.complexity:,}", "cyclomatic complexity, summed over functions")
    if found.unreadable:
        made.add_row("not parsable", f"{found.unreadable:,}", "broken on purpose, or of another Python")
    made.add_section()
    runs = Counter(line["module"] for line in modules)
    origins = Counter(line["origin"] for line in modules)
    again = sum(times - 1 for times in runs.values())
    made.add_row("imports", f"{found.imports:,}", "staged by the files' jobs, unique by the module's name")
    once = "each was looked up once" if not again else f"{again:,} were looked up again"
    made.add_row(
        "modules",
        f"{len(runs):,}",
        f"{once}: {', '.join(f'{n:,} {name}' for name, n in origins.most_common())}",
    )
    made.add_section()
    for number, (path, complexity) in enumerate(found.most_complex):
        made.add_row("" if number else "most complex", f"{complexity:,}", Text(_short(path)))
    made.add_section()
    for number, (name, count) in enumerate(found.most_imported):
        made.add_row("" if number else "most imported", f"{count:,}", Text(name))
    return made


def speed(measured: Any) -> Table:
    """Say how fast it went."""
    cores = min(measured.workers, measured.cores)
    made = _table(f"Speed with {measured.workers} worker{'s' if measured.workers > 1 else ''}")
    made.add_row(
        "jobs/s", f"{measured.jobs_per_s:,.0f}", f"{measured.jobs:,} jobs in {measured.wall_s:.2f} s"
    )
    made.add_row(
        "CPU use", f"{measured.cpu_share:.0%}", f"of {cores} core{'s' if cores > 1 else ''}, inside handlers"
    )
    made.add_row(
        "pickup p50", f"{measured.pickup_ms(0.50):.1f} ms", "from insert to handler, one job at a time"
    )
    made.add_row("pickup p95", f"{measured.pickup_ms(0.95):.1f} ms")
    if measured.repeats:
        made.add_row("ran twice", f"{measured.repeats:,}", "delivery is at least once")
    made.add_row("enqueue", f"{measured.enqueue_s * 1000:.0f} ms", "all jobs, one transaction")
    made.add_row("modules", f"{measured.modules_s:.2f} s", "from the last file to the last module")
    made.add_row("start", f"{measured.server_s + measured.pool_s:.1f} s",
                 f"PostgreSQL {measured.server_s:.1f} s, pool to its first result {measured.pool_s:.1f} s")  # fmt: skip
    return made


def _table(title: str) -> Table:
    made = Table(
        title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False
    )
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(style="dim")
    return made


def _short(path: str) -> str:
    root = Path(sysconfig.get_path("stdlib"))
    return str(Path(path).relative_to(root)) if Path(path).is_relative_to(root) else path
