"""What strikes when: made from a seed alone, so that the same number gives the same storm."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

ACTORS = ("dispatcher", "finalizer", "maintenance")
SUPERVISOR, WORKER, SERVER = "supervisor", "worker", "server"
SUPERVISOR_EVERY_S = 20
SERVER_EVERY_S = 60
CONTINUE_AFTER_S = 5.0
BOOT_S = 10.0
"""No supervisor is struck so late: its successor has to be up before the time that everything must be settled in begins."""


class Act(StrEnum):
    """What is done to it."""

    KILL = "SIGKILL"
    STOP = "SIGSTOP for good"
    PAUSE = "SIGSTOP, SIGCONT after 5 s"
    RESTART = "restarted"


@dataclass(frozen=True, slots=True)
class Blow:
    """One blow; `number` says which worker."""

    at_s: float
    role: str
    act: Act
    number: int = 0


def storm(seed: int, seconds: float, workers: int) -> list[Blow]:
    """Plan a storm: a blow each second, the supervisor each 20 s, the server each minute; once each in a shorter storm."""
    rng = random.Random(seed)
    blows: list[Blow] = []
    server_at, supervisor_at = min(SERVER_EVERY_S / 2, seconds / 3), min(SUPERVISOR_EVERY_S, seconds // 2)
    for second in range(1, int(seconds)):
        if second == supervisor_at and second <= seconds - BOOT_S:
            supervisor_at += SUPERVISOR_EVERY_S
            act = rng.choice((Act.KILL, Act.KILL, Act.PAUSE))
            blows.append(Blow(second, SUPERVISOR, act))
        else:
            blows.append(_one(rng, second, workers))
        if second >= server_at:
            server_at += SERVER_EVERY_S
            blows.append(Blow(second + 0.5, SERVER, Act.RESTART, rng.randrange(2)))
    return blows


def _one(rng: random.Random, second: int, workers: int) -> Blow:
    role = rng.choice((*ACTORS, WORKER, WORKER))
    number = rng.randint(1, workers) if role == WORKER else 0
    return Blow(second, role, rng.choice((Act.KILL, Act.KILL, Act.STOP, Act.PAUSE)), number)
