from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from awa_pool.maintenance.core import LEASE_S, Ask, Maintenance, Rules, Say


class Promoted(NamedTuple):
    promoted: int
    next_due_s: float | None


class Expired(NamedTuple):
    expired: int
    next_due_s: float | None
    failed: int = 0
    cancelled: int = 0
    jobs: Sequence[int] = ()


class Rescued(NamedTuple):
    runtime_id: str
    attempts: int
    failed: int = 0
    cancelled: int = 0
    jobs: Sequence[int] = ()


class Database:
    """Answers every question at once, on a clock that jumps to what is due."""

    def __init__(self, unbroken: tuple[float, float] | None = None, **rules: Any) -> None:
        self.now_s = 500.0
        self.core = Maintenance(Rules(holder="me", **rules), self.now_s, unbroken)
        self.leads = True
        self.answers: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.asked: list[tuple[float, Ask]] = []
        self.said: list[Say] = []

    def run(self, seconds: float) -> list[Ask]:
        """Let time pass; returns what was asked."""
        end_s, before = self.now_s + seconds, len(self.asked)
        while True:
            pause_s = self.core.next_due_s(self.now_s)
            if self.now_s + pause_s > end_s:
                self.now_s = end_s
                return [ask for _, ask in self.asked[before:]]
            self.now_s += pause_s
            for command in self.core.due(self.now_s):
                assert isinstance(command, Ask)
                self.asked.append((self.now_s, command))
                self.said += self._answer(command)  # type: ignore[arg-type]

    def _answer(self, ask: Ask) -> list[Any]:
        if ask.branch in self.fails:
            return self.core.failed(ask.branch, "out of room", self.now_s, passing=False)
        defaults: dict[str, Any] = {
            "lead": self.leads,
            "promote": Promoted(0, None),
            "expire": Expired(0, None),
            "rescue": [],
            "look": [],
        }
        return self.core.answered(
            ask.branch, self.answers.get(ask.branch, defaults.get(ask.branch)), self.now_s
        )


def names(asks: list[Ask]) -> set[str]:
    return {ask.branch for ask in asks}


def test_only_the_leader_does_anything_but_ask_for_the_leadership() -> None:
    database = Database()
    database.leads = False
    assert names(database.run(60.0)) == {"lead"}
    database.leads = True
    assert names(database.run(60.0)) == set(database.core.branches)


def test_a_follower_asks_often_enough_for_the_stated_takeover() -> None:
    for stale_s, lease_s in ((30.0, LEASE_S), (6.0, 6.0)):
        database = Database(stale_s=stale_s)
        database.leads = False
        database.run(60.0)
        asked = [(at, ask) for at, ask in database.asked if ask.branch == "lead"]
        assert {ask.arguments[2] for _, ask in asked} == {lease_s}
        pauses = [after - before for (before, _), (after, _) in itertools.pairwise(asked)]
        assert (
            max(pauses) <= lease_s / 3 + 0.01
        )  # one that vanished is followed within four thirds of its lease


def connected_s(asks: list[Ask]) -> list[float]:
    return [ask.arguments[2] for ask in asks if ask.branch == "rescue"]


def test_a_rescue_is_told_for_how_long_the_leader_has_been_connected() -> None:
    database = Database(stale_s=30.0)
    asks = database.run(29.0)
    assert {ask.arguments[0] for ask in asks if ask.branch == "rescue"} == {30.0}
    assert connected_s(asks) and max(connected_s(asks)) <= 29.0
    database.run(3.0)
    assert min(connected_s(database.run(20.0))) >= 30.0


@pytest.mark.parametrize("stale_s", [3.0, 30.0])
def test_the_dead_are_looked_for_every_third_of_the_stale_time_and_every_ten_seconds(stale_s: float) -> None:
    database = Database(stale_s=stale_s)
    database.run(300.0)
    looked_s = [at_s for at_s, ask in database.asked if ask.branch == "rescue"]
    assert (
        max(after - before for before, after in itertools.pairwise(looked_s)) <= min(10.0, stale_s / 3) + 0.1
    )


def test_a_successor_counts_the_time_for_which_its_host_was_connected_before_it() -> None:
    heart = Database(stale_s=30.0, unbroken=(440.0, 496.0))
    first, *_ = connected_s(heart.run(5.0))
    assert first >= 60.0
    heart.core.lost()
    assert max(connected_s(heart.run(20.0))) <= 20.0


def test_a_successor_of_a_host_whose_heart_has_stood_still_begins_anew() -> None:
    stood = Database(stale_s=30.0, unbroken=(440.0, 484.0))
    assert max(connected_s(stood.run(20.0))) <= 20.0


def test_a_runtime_that_held_nothing_is_no_warning() -> None:
    core = Database().core
    rows = [Rescued("a", 0), Rescued("b", 2)]
    told = core._rescued(core.branches["rescue"], rows, 0.0)
    assert [(say.level, say.text.split(",")[0]) for say in told] == [
        ("info", "runtime a is gone"), ("warning", "rescued 2 attempts of runtime b"),
    ]  # fmt: skip


def test_an_outage_starts_the_wait_anew() -> None:
    database = Database(stale_s=30.0)
    database.run(60.0)
    database.core.lost()
    assert max(connected_s(database.run(20.0))) <= 20.0


def test_a_branch_that_fails_waits_longer_each_time_and_stops_no_other() -> None:
    database = Database()
    database.fails = {"prune"}
    asks = database.run(300.0)
    assert 4 <= sum(ask.branch == "prune" for ask in asks) <= 10
    assert names(asks) == set(database.core.branches)
    assert len([say for say in database.said if "prune failed" in say.text]) == 1
    database.fails = set()
    database.run(90.0)
    assert [say.text for say in database.said if "works again" in say.text] == ["prune works again"]


def test_promotion_comes_at_the_moment_a_job_is_due() -> None:
    database = Database()
    database.answers["promote"] = Promoted(0, 0.3)
    database.run(10.0)
    moments = [at for at, ask in database.asked if ask.branch == "promote"]
    assert max(after - before for before, after in itertools.pairwise(moments)) < 0.35


def test_a_promotion_that_was_not_through_goes_on_at_once() -> None:
    database = Database()
    database.run(5.0)
    database.answers["promote"] = Promoted(1000, 0.0)
    assert sum(ask.branch == "promote" for ask in database.run(3.0)) > 20


def test_callbacks_time_out_at_the_moment_that_was_told_and_are_counted() -> None:
    database = Database()
    database.answers["expire"] = Expired(0, 0.3)
    database.run(10.0)
    moments = [at for at, ask in database.asked if ask.branch == "expire"]
    assert max(after - before for before, after in itertools.pairwise(moments)) < 0.35
    database.answers["expire"] = Expired(7, None, 2, 0, [3, 4])
    database.run(0.31)
    assert database.core.expired >= 7
    assert any(
        say.text == "7 callbacks timed out: 2 failed for good, 5 to be tried again (jobs 3, 4, …)"
        for say in database.said
    )


def test_an_idle_leader_asks_little() -> None:
    database = Database()
    database.run(120.0)
    assert len(database.run(60.0)) / 60.0 < 2.25


def test_rescues_are_counted_and_told() -> None:
    database = Database()
    database.answers["rescue"] = [Rescued("r1", 1000, 7, 1, [5, 6, 1, 2, 3]), Rescued("r2", 1, 0, 0, [9])]
    database.run(0.1)
    assert database.core.rescued >= 1001
    lines = [say.text for say in database.said]
    assert (
        "rescued 1000 attempts of runtime r1, which is gone: 7 failed for good, 992 to be tried again, "
        "1 cancelled, as another job holds their key (jobs 5, 6, 1, 2, 3, …)"
    ) in lines
    assert "rescued 1 attempts of runtime r2, which is gone: 1 to be tried again (job 9)" in lines


def test_dead_jobs_are_looked_at_with_the_pools_retention_and_their_end_is_told() -> None:
    database = Database(dlq_retention_s=77.0)
    database.answers["dead"] = "dropped 12 dead jobs"
    asked = [ask for ask in database.run(1.0) if ask.branch == "dead"]
    assert {(ask.method, ask.arguments[0]) for ask in asked} == {("prune_dead", 77.0)}
    assert any(say.level == "info" and "dropped 12" in say.text for say in database.said)


def test_a_sealed_slot_wakes_the_branches_that_rested() -> None:
    database = Database()
    database.run(120.0)
    database.answers["rotate"] = "sealed 3, opened 4"
    database.run(11.0)
    database.answers["rotate"] = "young"
    asked = [ask.branch for ask in database.run(3.0)]
    assert {"exhaust", "prune", "move", "trim"} <= set(asked)


def test_a_job_that_postpones_itself_by_moments_does_not_wait_a_second_each_time() -> None:
    """B128."""
    database = Database()
    database.answers["promote"] = Promoted(1, None)
    assert sum(ask.branch == "promote" for ask in database.run(3.0)) > 20


class Slot(NamedTuple):
    slot: int
    state: str
    state_s: float
    held_by: str | None
    told: str | None
    held_s: float | None


def test_a_slot_that_is_held_back_for_long_is_told_once_and_counted_while_it_lasts() -> None:
    database = Database()
    slow = Slot(3, "sealed", 700.0, "open_transaction", "open transaction of pid 7", 9000.0)
    database.answers["look"] = [slow, Slot(4, "sealed", 30.0, "running_job", "job 1 runs", 20.0), Slot(5, "current", 9.0, None, None, None)]  # fmt: skip
    database.run(120.0)
    warned = [say.text for say in database.said if say.level == "warning"]
    assert warned == [
        "slot 3 of the ring, sealed for 700 s, is held back: open transaction of pid 7, since 9000 s"
    ]
    figures = database.core.ring.figures()
    assert figures["states"] == {"free": 21, "current": 1, "sealed": 2, "exhausted": 0}
    assert figures["held_s"] == {"open_transaction": 9000.0, "running_job": 20.0}
    database.leads = False
    database.run(30.0)
    assert database.core.ring.figures() == {}
