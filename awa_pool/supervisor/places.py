"""One place of the pool: who lives there now, and when the next one may start. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .events import WORKER, ChildExited

FIRST_DELAY_S = 0.25
MOST_DELAY_S = 30.0
SHORT_LIFE_S = 10.0
MOST_FAILURES = 6
_OUTER_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Life(StrEnum):
    """Where a child stands."""

    UNINSTRUCTED = "starting"  # started; its settings are not yet known
    BOOTING = "booting"
    READY = "ready"
    STOPPING = "stopping"


@dataclass(slots=True)
class Child:
    """One incarnation of a role."""

    role: str
    number: int
    incarnation: str
    life: Life
    since_s: float  # start of the present life
    heard_s: float  # last sign of life
    successor: bool = False  # somebody sat in this place before
    retiring: bool = False  # replaced by choice; stops once its successor is ready
    worn: bool = False  # has done, or soon will have, all the jobs it may
    killed_for: str = ""  # why the supervisor killed it
    charged: list[list[Any]] = field(default_factory=list)  # the attempts it was killed for, see `WorkerGone`
    drained: bool = False
    fatal: str = ""
    leave_by_s: float | None = None  # killed when still there
    disowned: bool = False  # its runtime was rescued: what it ran belongs to others
    frozen_since_s: float | None = None  # held by a stop signal
    cut: bool = False  # told to give up, or killed, because the pool ends

    def failed_to_start(self, death: ChildExited, now_s: float) -> bool:
        """A worker that a job killed was a good worker; an actor that ends soon by its own fault was not."""
        if self.life is not Life.READY:
            return True
        young = now_s - self.since_s < SHORT_LIFE_S
        if self.role == WORKER:
            return young and not death.worked and death.signal not in _OUTER_SIGNALS
        return young and death.signal not in _OUTER_SIGNALS

    @property
    def name(self) -> str:
        return f"{self.role} {self.number}" if self.role == WORKER else self.role


@dataclass(slots=True)
class Place:
    """A seat that must be taken while the pool runs."""

    role: str
    number: int
    child: Child | None = None
    starts: int = 0
    failures: int = 0  # in a row; a boot that succeeded ends the row
    start_at_s: float | None = None  # set while empty
    reason: str = ""  # of the newest failure
    older: list[Child] = field(default_factory=list)  # retiring, with a successor in `child`

    def failed(self, now_s: float, reason: str) -> float:
        """Note a failed start; returns the pause before the next."""
        self.failures += 1
        self.reason = reason
        pause_s = min(FIRST_DELAY_S * (1 << min(self.failures - 1, 16)), MOST_DELAY_S)
        self.start_at_s = now_s + pause_s
        return pause_s

    def lost(self, now_s: float) -> None:
        """Note the end of one that had been at work: the next may start at once."""
        self.start_at_s = now_s

    @property
    def hopeless(self) -> bool:
        return self.failures >= MOST_FAILURES
