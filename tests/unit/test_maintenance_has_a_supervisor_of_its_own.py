"""A supervisor without workers keeps one child; health speaks of that one."""

from __future__ import annotations

import signal

from supervisor_rig import Rig, finished, started

from awa_pool.supervisor import events as ev
from awa_pool.supervisor.health import PartsSeen, readiness
from awa_pool.supervisor.places import Life


def test_without_workers_only_the_housekeeping_is_started_replaced_and_stopped() -> None:
    rig = Rig(workers=0)
    assert started(rig.commands) == [("maintenance", 0)]
    rig.ready("maintenance")
    out = rig.dies(rig.child("maintenance"), signal=9)
    assert started(out) == [("maintenance", 0)]
    rig.ready("maintenance")
    assert rig.child("maintenance").life is Life.READY
    out = rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    assert [type(c.message).__name__ for c in out if isinstance(c, ev.Tell)] == ["Stop"]
    rig.dies(rig.child("maintenance"), "exited")
    assert finished(rig.commands) == [0]


def seen(silent_s: float | None, *, up: bool = True) -> PartsSeen:
    return PartsSeen(
        at_s=100.0, stopping=False, gave_up="", dispatcher_silent_s=None, finalizer_silent_s=None,
        maintenance_silent_s=silent_s, workers_wanted=0, workers_ready=0, database_up=up, database_reason="restored",
        database_silent_s=0.0,
    )  # fmt: skip


def test_readiness_of_maintenance_alone_has_the_parts_it_has() -> None:
    assert readiness(seen(0.5), 100.0).parts == {"maintaining": "ok", "database": "ok"}
    assert not readiness(seen(None), 100.0).good
    assert readiness(seen(9.0), 100.0).parts["maintaining"] == "the maintenance has been silent for 9 s"
    assert readiness(seen(0.5, up=False), 100.0).parts["database"] == "away: restored"
