"""What is known about a dead child: how it ended, how large it was, and what its page shows."""

from __future__ import annotations

import signal

from awa_pool.errors import AwaError
from awa_pool.messages import WorkerGone
from awa_pool.page.layout import Phase
from awa_pool.page.reading import PageView, read_page

_MIB = 1 << 20


def describe_exit(exit_code: int | None) -> tuple[str, int | None, int | None]:
    """Return `(text, signal, status)` of a multiprocessing exit code; a forkserver that died knows none."""
    if exit_code is None:
        return "vanished without an exit status", None, None
    if exit_code >= 0:
        return f"exited with status {exit_code}", None, exit_code
    number = -exit_code
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    return f"killed by signal {number} ({name})", number, None


def describe_death(
    exit_code: int | None, *, peak_bytes: int, killed_for: str = "", memory_kills: int = 0
) -> tuple[str, int | None, int | None]:
    """Return `(text, signal, status)` with peak memory, our own reason if we killed it, and a hint at the kernel's.

    `memory_kills` counts what the kernel killed for memory in our control group since the child was last seen alive.
    """
    text, number, status = describe_exit(exit_code)
    notes = [f"peak memory {peak_bytes / _MIB:.0f} MiB"] if peak_bytes else []
    if killed_for:
        notes.insert(0, killed_for)
    elif memory_kills and number == signal.SIGKILL:
        notes.append("the kernel killed it for memory")
    elif number == signal.SIGKILL:
        notes.append("perhaps by the kernel, out of memory")
    return (f"{text}, {', '.join(notes)}" if notes else text), number, status


def read_account(path: str, worker: int, incarnation: str, cause: str) -> tuple[WorkerGone, PageView | None]:
    """Read a dead worker's page into the news for the dispatcher. An unreadable page counts as one never made."""
    try:
        view = read_page(path)
    except (AwaError, OSError, ValueError):
        view = None
    started = [] if view is None else view.started()
    waiting = [] if view is None else view.waiting()
    phases = {running.phase for running in view.running} if view is not None else set()
    phases = phases - {Phase.WAITING} or phases or {Phase.IDLE}  # it died of none that waited
    phase = ",".join(sorted(each.name.lower() for each in phases))
    return WorkerGone(worker, incarnation, cause, started, phase, waiting=waiting), view
