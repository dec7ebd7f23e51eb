"""How a worker tells a handler that its time is over: once, in that attempt only, whatever the handler is doing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from worker_rig import Rig, body

from awa_pool.worker.start import WorkerStarter


@pytest.fixture(scope="module")
def starter() -> Iterator[WorkerStarter]:
    starter = WorkerStarter("forkserver", "apps.limited:registry")
    yield starter
    starter.close()


@pytest.fixture
def rig(starter: WorkerStarter) -> Iterator[Rig]:
    rig = Rig(starter, "apps.limited:registry")
    yield rig
    rig.close()


def spin(job_id: int, s: float, deadline_s: float | None = None, what: str = "") -> bytes:
    extra = None if deadline_s is None else {"deadline_s": deadline_s}
    return body(job_id, "spin", {"s": s, "what": what}, extra=extra)


def wait(job_id: int, what: str, deadline_s: Any = 0.05, s: float = 60.0) -> bytes:
    return body(job_id, "wait", {"what": what, "s": s}, extra={"deadline_s": deadline_s})


def reason(ending: Any) -> Any:
    return ending if ending == "completed" else (ending[4], ending[6].get("reason"))


LATE = ("retry", "deadline_exceeded")


@pytest.mark.parametrize("what", ["", "ask", "print"])
def test_a_deadline_never_reaches_another_attempt_nor_the_workers_own_books(rig: Rig, what: str) -> None:
    """Attempts that take just about what they may, each before one that may take as long as it likes."""
    worker = rig.start()
    for _ in range(6):
        jobs = []
        for at in range(30):
            jobs += [spin(2 * at, 0.003, 0.003 + at * 0.00002 - 0.0003, what), spin(2 * at + 1, 0.0005)]
        ended = rig.run(worker, jobs)
        assert {reason(ended[at]) for at in range(1, 60, 2)} == {"completed"}
        assert {reason(ended[at]) for at in range(0, 60, 2)} <= {"completed", LATE}
    assert rig.stop(worker) == 0


def test_the_nearest_deadline_counts_and_nonsense_in_a_row_is_none(rig: Rig) -> None:
    worker = rig.start()
    extras: list[tuple[Any, float]] = [
        (None, 3.0),
        ({"queue_deadline_s": 9.0}, 3.0),
        ({"deadline_s": 7.5, "queue_deadline_s": 9.0}, 7.5),
        ({"deadline_s": "soon"}, 3.0),
        ({"deadline_s": -1}, 3.0),
        ({"deadline_s": 1e300}, 365 * 86400.0),
        ({"deadline_s": True}, 3.0),
    ]
    jobs = [body(at, "bounded", {"deadline_s": s}, extra=extra) for at, (extra, s) in enumerate(extras)]
    assert set(rig.run(worker, jobs).values()) == {"completed"}


def test_an_error_that_a_handler_raises_instead_counts_as_the_deadlines_and_says_its_own_text(
    rig: Rig,
) -> None:
    ended = rig.run(rig.start(), [spin(1, 60, 0.05, "wrap"), spin(2, 60, 0.05)])
    assert (ended[0][6]["type"], reason(ended[0])) == ("RuntimeError", LATE)
    assert (ended[1][6]["type"], reason(ended[1])) == ("DeadlineExceeded", LATE)
    assert ended[1][6]["error"] == "the deadline of 0.05 s has passed"
    assert ended[1][6]["traceback"].count("limits.py") == 1  # where it was raised, not how it was called


def test_a_handler_that_takes_the_alarm_for_itself_harms_only_its_own_deadline(rig: Rig) -> None:
    ended = rig.run(rig.start(), [spin(1, 0.0, 0.03, "own alarm"), spin(2, 60, 0.05), spin(3, 0.0)])
    assert [reason(ended[at]) for at in range(3)] == ["completed", LATE, "completed"]


def test_async_handlers_hear_of_it_where_they_wait_and_their_tasks_end_with_them(rig: Rig) -> None:
    worker = rig.start(concurrency=10)
    ways = ["", "group", "timeout", "swallow", "catch"]
    jobs = [wait(at, what) for at, what in enumerate(ways)] + [
        wait(9, "", 60, s=0.2),
        wait(10, "", None, s=0.2),
    ]
    ended = rig.run(worker, jobs, "async")
    assert [reason(ended[at]) for at in range(7)] == [
        LATE,
        LATE,
        LATE,
        LATE,
        "completed",
        "completed",
        "completed",
    ]
    assert {ended[at][6]["type"] for at in range(4)} == {"DeadlineExceeded"}
    assert rig.stop(worker) == 0


def test_the_page_shows_deadlines_for_those_who_enforce_them(rig: Rig) -> None:
    worker = rig.start(kill_grace_s=2.5)
    receipt_id = rig.hand(worker, [spin(1, 60, 30.0)])
    (running,) = rig.until(lambda: worker.page().running, "the start")
    assert running.deadline_s == pytest.approx(running.started_s + 30.0)
    assert (running.grace_s, running.cancel_kill) == (2.5, True)
    async_receipt = rig.hand(worker, [wait(2, "", None)], "async")
    both = rig.until(lambda: len(worker.page().running) == 2 and worker.page().running, "the other")
    assert [each.deadline_s for each in both if each.receipt_id == async_receipt] == [0.0]
    assert [each.cancel_kill for each in both if each.receipt_id == async_receipt] == [False]
    assert receipt_id in {each.receipt_id for each in both}
