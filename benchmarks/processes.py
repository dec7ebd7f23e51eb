"""What processes cost, read from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 15  # fields after the name: ppid; utime, stime, cutime, cstime


def _fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def tree(root: int) -> list[int]:
    """Return a process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(_fields(int(entry))[_PARENT])
    found = [root]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def cpu_s(*roots: int) -> float:
    """Return the CPU seconds, user and system, of these process trees, children that have ended included."""
    ticks = 0
    for root in roots:
        for pid in tree(root):
            with contextlib.suppress(OSError):
                ticks += sum(int(field) for field in _fields(pid)[_FIRST_TIME:_LAST_TIME])
    return ticks / _TICKS_PER_S


def descriptors(pid: int) -> int:
    """Return how many files this process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(pid: int) -> float:
    """Return the resident memory of this process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def private_mib(pid: int) -> float:
    """Return the memory that this process shares with nobody."""
    kib = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            kib += int(line.split()[1])
    return kib / 1024
