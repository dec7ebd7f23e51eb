"""Ends a worker together with all that its handlers have started: nothing of a job outlives its worker.

A worker leads a session of its own. Its group is killed in one call; what has left the group or the session is
found through /proc, and signalled by a descriptor, so that a number used again meets nobody else.
"""

from __future__ import annotations

import contextlib
import os
import signal

from .procfs import below, descendants, parent_of

_ROUNDS = 3  # a process may fork while it is looked for


def kill_family(leader: int) -> None:
    """SIGKILL a living worker, its group, and whatever else it has started. One that is still booting has nothing."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(leader) != leader:
            os.kill(leader, signal.SIGKILL)
            return
        held = _hold(descendants(leader))  # first: the dead have no children by which to find them
        os.killpg(leader, signal.SIGKILL)
        _kill_held(held)


def kill_orphans(leader: int) -> None:
    """SIGKILL what is left in the session of a worker that has died, and below it; Linux only."""
    for _ in range(_ROUNDS):
        held = _hold(below(leader))
        if not held:
            return
        _kill_held(held)


def terminate_group(leader: int) -> None:
    """SIGTERM a worker's group. The worker itself lets it pass; programs that its handlers run may end in order."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(leader) == leader:
            os.killpg(leader, signal.SIGTERM)


def _hold(seen: dict[int, int]) -> list[int]:
    """Open descriptors of processes seen with those parents, each certain to be that very process."""
    held: list[int] = []
    for pid, parent in seen.items():
        with contextlib.suppress(
            OSError
        ):  # gone, or no descriptors left: then only the group's kill reaches it
            descriptor = os.pidfd_open(pid)
            if parent_of(pid) == parent:
                held.append(descriptor)
            else:
                os.close(descriptor)
    return held


def _kill_held(held: list[int]) -> None:
    for descriptor in held:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)
