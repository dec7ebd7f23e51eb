"""What processes cost, read from /proc."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
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


def cpu_by_role(root: int, backends: Mapping[int, str]) -> dict[str, float]:
    """Return the CPU seconds of a pool's processes by what they are, and of the server's `backends` (pid -> what for)."""
    found: dict[str, float] = {}
    for pid in tree(root):
        with contextlib.suppress(OSError):
            title = (
                Path(f"/proc/{pid}/cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
                .strip()
            )
            role = (
                title.removeprefix("awa-pool: ").split(" ")[0]
                if title.startswith("awa-pool: ")
                else "supervisor"
            )
            found[role] = found.get(role, 0.0) + _scheduled_s(pid)
    for pid, purpose in backends.items():
        with contextlib.suppress(OSError):
            role = f"postgres of {purpose}"
            found[role] = found.get(role, 0.0) + _scheduled_s(pid)
    return found


def _scheduled_s(pid: int) -> float:
    spent_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            spent_ns += int(Path(task, "schedstat").read_text().split()[0])
    return spent_ns / 1e9


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


def free_port() -> int:
    """Return a TCP port of loopback that nobody has."""
    with socket.socket() as sample:
        sample.bind(("127.0.0.1", 0))
        return int(sample.getsockname()[1])
