"""What the kernel knows about processes and limits. Where /proc is missing (macOS) answers are None or zero."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from awa_pool.errors import ConfigError

_KIB = 1024
_OWN_DESCRIPTORS = 64  # interpreter, logging, selectors, database, endpoint and its clients
_PER_WORKER = 6  # control pipe, sentinel, forkserver's pair, page, room for a successor


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of one process, its own share only where the kernel tells it."""

    rss_bytes: int
    peak_bytes: int


def read_memory(pid: int) -> Memory | None:
    """Return present and peak resident memory, or None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * _KIB
    return Memory(found.get("VmRSS", 0), found.get("VmHWM", 0))


def read_state(pid: int) -> str:
    """Return the kernel's one-letter state (`T` stopped, `Z` zombie, …), "" when unknown."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def reap_strangers(ours: set[int]) -> int:
    """As process 1: collect dead orphans that the kernel handed to us; returns how many.

    Children of our own keep their exit status for whoever watches them.
    """
    if os.getpid() != 1:
        return 0
    reaped = 0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in ours:
                continue
            fields = _stat(int(name))
            if fields and fields[0] == "Z" and fields[1] == "1":
                with contextlib.suppress(ChildProcessError):
                    reaped += os.waitpid(int(name), os.WNOHANG)[0] != 0
    return reaped


def oom_kills() -> int:
    """Return how often the kernel killed for memory in this control group; 0 when it does not say."""
    for path in _memory_events():
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def _memory_events(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """Return the files that may count kills for memory: of our own group, as containers see it, and of version 1."""
    groups: list[str] = []
    with contextlib.suppress(OSError):
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
        groups = [line.removeprefix("0::").lstrip("/") for line in lines if line.startswith("0::")]
    found = [root / group / "memory.events" for group in groups]
    return [*found, root / "memory.events", root / "memory" / "memory.oom_control"]


def check_descriptors(workers: int) -> None:
    """Refuse a pool that would run out of file descriptors.

    The soft limit is raised up to the hard one first. Errors: ConfigError with need and limit.
    """
    need = _OWN_DESCRIPTORS + _PER_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if need <= soft or soft == resource.RLIM_INFINITY:
        return
    if hard == resource.RLIM_INFINITY or need <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
        return
    raise ConfigError(
        f"--workers {workers} needs {need} file descriptors, the limit is {hard} (ulimit -n); "
        f"raise it or use fewer workers"
    )


def processor_seconds(pid: int) -> float:
    """Return the processor time a process has used, 0.0 when unknown."""
    fields = _stat(pid)
    if len(fields) < 13:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 when unknown."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def descendants(leader: int) -> dict[int, int]:
    """Return the processes below a living one, each with its parent; quicker than `below`, which looks at all there are."""
    if not os.path.exists("/proc/thread-self/children"):  # the kernel was built without
        return below(leader)
    found: dict[int, int] = {}
    todo = [leader]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):  # gone meanwhile
            for thread in os.listdir(f"/proc/{parent}/task"):
                text = Path(f"/proc/{parent}/task/{thread}/children").read_text(encoding="ascii")
                found |= dict.fromkeys(map(int, text.split()), parent)
                todo += map(int, text.split())
    return found


def below(leader: int) -> dict[int, int]:
    """Return the living processes that `leader` has started, those of its session included, each with its parent."""
    parents: dict[int, int] = {}
    session: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat(int(name))) and fields[0] not in "ZX":
                parents[int(name)] = int(fields[1])
                if fields[3] == str(leader):
                    session.add(int(name))
    family = session | {leader}
    found: set[int] | None = None
    while found is None or found:
        found = {pid for pid, parent in parents.items() if parent in family and pid not in family}
        family |= found
    return {pid: parents[pid] for pid in family - {leader}}


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command name, from the state on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
