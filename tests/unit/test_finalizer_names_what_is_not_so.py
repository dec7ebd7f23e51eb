"""An acknowledgement names the attempts that have not ended as their worker said: hooks are not told of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from awa_pool.events import Tick, Trouble
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import (
    Command,
    Complete,
    Completed,
    Event,
    Finish,
    Finished,
    FinishStaged,
    Heard,
    Send,
    Settings,
    StagedAnswered,
    StagedNo,
)
from awa_pool.messages import AttemptsEnded, ResultsCommitted

PEER = b"w1"


@dataclass
class Closed:
    receipt_id: int
    done: int
    stale: int
    busy: int = 0


@dataclass
class Ended:
    item: int
    status: str
    state: str | None


class World:
    """A finalizer with one worker; the test is the database."""

    def __init__(self) -> None:
        self.core = Finalizer(Settings("f"))
        self.now_s = 100.0
        self.said: list[Command] = []

    def step(self, event: Event) -> None:
        self.now_s += 1.0  # whatever lingers is due
        self.said += self.core.step(event, self.now_s)
        self.said += self.core.step(Tick(), self.now_s + 0.5)

    def send(
        self, completed: int, others: Sequence[list[Any]], staged: Sequence[int] = (), seq: int = 1
    ) -> None:
        done = [["k", completed]] if completed else []
        message = AttemptsEnded("i", seq, 3, 9, 5, done, list(others), False, 1, list(staged))
        self.step(Heard(PEER, message, tuple(b'[{"kind":"x"}]' for _ in staged)))

    def asked(self, kind: type[Any]) -> list[Any]:
        found = [command for command in self.said if isinstance(command, kind)]
        self.said = [command for command in self.said if not isinstance(command, kind)]
        return found

    def acknowledged(self) -> list[ResultsCommitted]:
        return [send.message for send in self.asked(Send) if isinstance(send.message, ResultsCommitted)]


def other(index: int, outcome: str, **more: Any) -> list[Any]:
    return [index, index + 70, 1, "k", outcome, more.get("delay_s"), more.get("error")]


def test_what_came_as_said_is_not_named() -> None:
    world = World()
    world.send(0b1, [other(1, "retry", delay_s=1.0), other(2, "cancel")])
    assert world.asked(Complete) and world.asked(Finish)
    world.step(Completed([Closed(9, 0b1, 0)], 0.01))
    world.step(Finished([Ended(0, "done", "retryable"), Ended(1, "done", "cancelled")], 0.01))
    assert world.acknowledged() == [ResultsCommitted(1, [])]


def test_what_had_ended_before_and_a_duplicate_that_ended_cancelled_are_named() -> None:
    world = World()
    world.send(0b11, [other(2, "retry", delay_s=1.0), other(3, "retry", delay_s=1.0), other(4, "fail")])
    world.step(Completed([Closed(9, 0b01, 0b10)], 0.01))
    rows = [Ended(0, "done", "cancelled"), Ended(1, "stale", None), Ended(2, "done", "failed")]
    world.step(Finished(rows, 0.01))
    assert world.acknowledged() == [ResultsCommitted(1, [[9, 0b1110]])]
    world.send(0b100000, [], seq=2)
    world.step(Completed([Closed(9, 0b100000, 0)], 0.01))
    assert world.acknowledged() == [ResultsCommitted(2, [[9, 0b1110]])]  # until the worker has forgotten it


def test_a_completion_whose_follow_ups_were_refused_is_named_and_a_retry_that_stays_one_is_not() -> None:
    world = World()
    world.send(0, [other(0, "completed"), other(1, "retry", delay_s=1.0)], staged=[0, 1])
    while calls := world.asked(FinishStaged):
        for call in calls:
            no = [StagedNo(Trouble.REFUSED, "not today") for _ in call.ends]
            world.step(StagedAnswered(call.lane, no, 0.01))
    (finish,) = world.asked(Finish)
    assert [item["outcome"] for item in finish.items] == ["retry", "retry"]
    world.step(Finished([Ended(at, "done", "retryable") for at in range(2)], 0.01))
    assert world.acknowledged() == [ResultsCommitted(1, [[9, 0b1]])]
