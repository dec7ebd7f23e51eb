"""Attempts that wait, in the books, the seats and the page of their lane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from awa_pool.dispatcher.pages import look_at_running
from awa_pool.messages import AskHolding as Audit
from awa_pool.messages import (
    AttemptsWait,
    Holding,
)
from awa_pool.page.layout import Phase
from awa_pool.page.reading import PageReader
from awa_pool.page.writing import Page
from awa_pool.worker.core import LaneCore
from awa_pool.worker.events import Arrived, Flush, Piece, SayWaits, ToDispatcher, ToFinalizer
from awa_pool.worker.seats import Seats


def test_the_dispatcher_hears_of_what_has_changed_and_the_audit_of_all() -> None:
    core = LaneCore(1, "i", "async", 2, ["waits"])
    one, two = (Piece("default", 2, 3, receipt, 9, [0, 1], [], 0) for receipt in (5, 6))

    def say() -> list[Any]:
        return [
            command.message for command in core.step(SayWaits(), 1.0) if isinstance(command, ToDispatcher)
        ]

    core.waits(one, 1)
    core.waits(one, 2)
    core.waits(two, 1)
    assert say() == [AttemptsWait([[5, 3], [6, 1]], True)] and say() == []
    core.goes_on(one, 1)
    core.goes_on(two, 1)
    core.waits(two, 1)
    core.waits(two, 2)
    assert say() == [AttemptsWait([[5, 1]], False), AttemptsWait([[6, 2]], True)]
    (held,) = core.step(Arrived(Audit(4)), 1.0)
    assert held == ToDispatcher(Holding(4, [], [[5, 2], [6, 3]]))
    core.greet()
    assert say() == [AttemptsWait([[5, 2], [6, 3]], True)]


def test_results_are_not_held_back_for_those_of_handlers_that_wait() -> None:
    core = LaneCore(1, "i", "async", 2, ["waits"])
    waiting, other = (Piece("default", 2, 3, receipt, 9, [0], [], 0) for receipt in (5, 6))
    core.active += [waiting, other]
    waiting.running = other.running = 1
    core.waits(waiting, 1)
    other.running, other.done = 0, {"waits": 1}
    (ended,) = (c.message for c in core.step(Flush(other), 1.0) if isinstance(c, ToFinalizer))
    assert not ended.more


class Sitting:
    """A lane of two slots with its page, and attempts of one receipt that take seats in it."""

    def __init__(
        self, path: Path, worker: int = 1, post: Callable[[Any], object] = lambda call: call()
    ) -> None:
        self.page = Page.create(str(path), 4, ["waits"])
        self.core = LaneCore(worker, "i1", "async", 2, ["waits"])
        self.seats = Seats(self.core, self.page.async_, worker, 2, 2, post)
        self.piece = Piece("default", 2, 3, 5, 9, list(range(8)), [], 0)
        self.piece.row = self.page.async_.open_piece(3, 5, 9)

    def sit(self, index: int, *, own: bool = True) -> Any:
        """Take a seat; `own`: it is the handler itself that begins to wait."""
        assert self.seats.room
        seat = self.seats.take(self.piece, index, [index, "waits", {}, 1, 1, 25, None], 0, 1.0, None)
        seat.reins = SimpleNamespace(in_handler=lambda: own)  # type: ignore[assignment]
        return seat


def test_seats_are_given_away_up_to_a_bound_and_the_page_shows_who_waits(tmp_path: Any) -> None:
    sitting = Sitting(tmp_path / "page")
    seats, sit = sitting.seats, sitting.sit
    reader = PageReader(str(tmp_path / "page"))

    def shown() -> dict[int, Phase]:
        return {each.index: each.phase for each in reader.running("async")}

    taken = [sit(0), sit(1)]
    assert not seats.room
    for seat in taken:
        seat.begins_to_wait()
    taken += [sit(2), sit(3)]
    taken[2].begins_to_wait()  # it keeps its slot: two have given theirs away
    assert not seats.room
    assert shown() == {0: Phase.WAITING, 1: Phase.WAITING, 2: Phase.WAITING, 3: Phase.HANDLER}
    assert reader.waiting() == 3
    assert [each.index for each in reader.running("async", waiting=False)] == [3]
    taken[0].goes_on()
    assert not seats.room and shown()[0] is Phase.HANDLER
    seats.leave(taken[3])
    assert not seats.room, "three hold a slot of two"
    seats.leave(taken[2])
    taken[2].goes_on()  # of a task that was left behind
    seats.leave(taken[1])  # while it waits
    seats.leave(taken[0])
    assert seats.room and shown() == {}
    assert sitting.core.step(Arrived(Audit(1)), 1.0) == [ToDispatcher(Holding(1, [], []))]
    again = [sit(4), sit(5)]
    assert not seats.room and len(again) == 2


def test_a_dispatcher_that_looks_for_what_runs_passes_by_what_waits(tmp_path: Path) -> None:
    sitting = Sitting(tmp_path / "w3-i1.page", worker=3)
    taken = [sitting.sit(0), sitting.sit(1)]
    taken[0].begins_to_wait()
    (run,) = look_at_running(str(tmp_path)).rows
    assert (run.worker, run.incarnation, run.lane, run.receipt_id, run.index) == (3, "i1", "async", 5, 1)
    taken[0].goes_on()
    assert [run.index for run in look_at_running(str(tmp_path)).rows] == [0, 1]


def test_the_page_shows_at_once_who_waits_and_who_goes_on_whenever_the_lane_hears_of_it(
    tmp_path: Any,
) -> None:
    posted: list[Any] = []
    sitting = Sitting(tmp_path / "page", post=posted.append)
    seats, sit = sitting.seats, sitting.sit
    reader = PageReader(str(tmp_path / "page"))

    def phase() -> Phase:
        (shown,) = reader.running("async")
        return shown.phase

    def hear() -> None:
        posted.pop(0)()

    seat = sit(0)
    seat.begins_to_wait()
    assert phase() is Phase.WAITING and seats.room
    seat.goes_on()
    assert phase() is Phase.HANDLER
    hear()
    assert phase() is Phase.HANDLER, "it has gone on since"
    seat.begins_to_wait()
    hear()
    assert phase() is Phase.WAITING, "it waits again since"
    seat.goes_on()
    hear()
    hear()
    assert phase() is Phase.HANDLER and posted == []
    seat.begins_to_wait()
    hear()
    seats.leave(seat)
    other = sit(1)
    assert other.place == seat.place
    seat.goes_on()
    seat.begins_to_wait()
    assert phase() is Phase.HANDLER, "the place is another's"
    seats.leave(other)
    sit(2, own=False).begins_to_wait()
    assert phase() is Phase.ASIDE and reader.waiting() == 1 and reader.running("async", waiting=False) == []
