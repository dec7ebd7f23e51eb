"""Whether the pool works, part by part, from what the loop saw last. Pure.

Readiness turns false at most `SILENT_S` plus one second after a part has stopped; a part that stays silent is replaced
two seconds later. Liveness turns false only when the supervisor itself stands still or has given up: all else it mends.
"""

from __future__ import annotations

from dataclasses import dataclass

SILENT_S = 3.0
DATABASE_SILENT_S = 5.0
FROZEN_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSeen:
    """What the loop saw at `at_s`; silences are None where nobody is ready."""

    at_s: float
    stopping: bool
    gave_up: str
    dispatcher_silent_s: float | None
    finalizer_silent_s: float | None
    maintenance_silent_s: float | None = None
    workers_wanted: int  # 0: maintenance alone
    workers_ready: int  # ready and not stopped by a signal
    claiming: bool = True  # as the dispatcher says
    accepting: bool = True  # as the finalizer says
    database_up: bool | None
    database_reason: str
    database_silent_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer of the endpoint; `parts` says ok or what is wrong."""

    good: bool
    parts: dict[str, str]


def readiness(seen: PartsSeen | None, now_s: float) -> Verdict:
    """Say whether jobs move through every part of the chain."""
    if seen is None:
        return Verdict(False, {"supervisor": "starting"})
    age_s = now_s - seen.at_s
    parts = _chain(seen) if seen.workers_wanted else _housekeeping(seen)
    if age_s > SILENT_S:
        parts["supervisor"] = f"silent for {age_s:.0f} s"
    if seen.stopping:
        parts["supervisor"] = "stopping"
    good = all(text.startswith("ok") for text in parts.values())
    return Verdict(good, parts)


def _chain(seen: PartsSeen) -> dict[str, str]:
    """Say of each part of a pool whether it does its work."""
    return {
        "claiming": _actor("dispatcher", seen.dispatcher_silent_s, seen.claiming, "cannot claim"),
        "working": _workers(seen),
        "finalising": _actor("finalizer", seen.finalizer_silent_s, seen.accepting, "cannot store results"),
        "database": _database(seen),
    }


def _housekeeping(seen: PartsSeen) -> dict[str, str]:
    """Say the same of a host that runs maintenance alone."""
    return {
        "maintaining": _actor("maintenance", seen.maintenance_silent_s, True, ""),
        "database": _database(seen),
    }


def liveness(seen: PartsSeen | None, now_s: float) -> Verdict:
    """Say whether this process is worth keeping."""
    if seen is None:
        return Verdict(True, {"supervisor": "ok"})
    if seen.gave_up:
        return Verdict(False, {"supervisor": f"gave up: {seen.gave_up}"})
    if now_s - seen.at_s > FROZEN_S:
        return Verdict(False, {"supervisor": f"silent for {now_s - seen.at_s:.0f} s"})
    return Verdict(True, {"supervisor": "ok"})


def _actor(name: str, silent_s: float | None, working: bool, trouble: str) -> str:
    if silent_s is None:
        return f"the {name} is starting"
    if silent_s > SILENT_S:
        return f"the {name} has been silent for {silent_s:.0f} s"
    return "ok" if working else f"the {name} {trouble}"


def _workers(seen: PartsSeen) -> str:
    count = f"{seen.workers_ready} of {seen.workers_wanted} workers"
    if not seen.workers_ready:
        return f"{count} can run jobs"
    return "ok" if seen.workers_ready >= seen.workers_wanted else f"ok with {count}"


def _database(seen: PartsSeen) -> str:
    if seen.database_up is None:
        return "not yet connected"
    if not seen.database_up:
        return f"away: {seen.database_reason}"
    if seen.database_silent_s > DATABASE_SILENT_S:
        return f"has not answered for {seen.database_silent_s:.0f} s"
    return "ok"
