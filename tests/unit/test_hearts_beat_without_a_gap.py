"""What a host says of its own connection: since when its heartbeats have been answered without a gap."""

from __future__ import annotations

import select

import pytest

from awa_pool.supervisor.heartbeat import Pulse

DEADLINE_S = 10.0


class Database:
    """Answers every heartbeat."""

    usable = True

    def register_runtime(self, *_: object) -> None:
        pass

    def heartbeat(self, *_: object) -> str:
        return "alive"

    def ended_at_rest(self) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.fixture
def pulse():
    made = Pulse(Database, "00000000-0000-0000-0000-000000000001", heartbeat_s=1.0, info={})  # type: ignore[arg-type]
    yield made
    assert made.say_goodbye(DEADLINE_S)


def beat(pulse: Pulse, now_s: float) -> None:
    """Let it beat and hear the answer at that instant."""
    pulse.tick(now_s, want_depths=False)
    while pulse.unbroken is None or pulse.unbroken[1] != now_s:
        assert select.select([pulse.fileno()], [], [], DEADLINE_S)[0]
        pulse.take(now_s)


def test_a_heart_that_has_stood_still_counts_from_its_next_beat(pulse):
    for now_s in (100.0, 101.0, 104.0):  # three beats may lie between
        beat(pulse, now_s)
    assert pulse.unbroken == (100.0, 104.0)
    beat(pulse, 109.0)
    assert pulse.unbroken == (109.0, 109.0)
