"""Attempts that died with their worker leave the same line in the log as those that failed in it, once their end is committed."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from awa_pool.body import attempts_of
from awa_pool.dispatcher.books import Books
from awa_pool.events import Exit, StoreSaysNo, SupervisorSaid, Tick, Trouble
from awa_pool.failures import LINES, WINDOW_S
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import (
    Command,
    Finish,
    Finished,
    FinishStaged,
    Heard,
    Settings,
    StagedAnswered,
    StagedNo,
    StagedRow,
    Tell,
)
from awa_pool.finalizer.failing import MOST_WINDOWS
from awa_pool.logs import JsonFormatter
from awa_pool.messages import AttemptsEnded, EndAttempts, StopNow
from awa_pool.states import Outcome

KILLED = {"error": "killed by signal 11 (SIGSEGV)\npeak 80 MiB", "type": "WorkerDied"}


@dataclass
class Row:
    item: int
    status: str
    state: str | None


@dataclass
class Host:
    """A finalizer, and a database that answers at once unless `silent`."""

    core: Finalizer = field(default_factory=lambda: Finalizer(Settings("f1")))
    now_s: float = 0.0
    state: str | None = "retryable"
    status: str = "done"
    staged: list[StagedRow | StagedNo] = field(default_factory=list)
    told: list[Tell] = field(default_factory=list)
    ended: bool = False
    trouble: bool = False

    def step(self, event: Any) -> None:
        commands: list[Command] = list(self.core.step(event, self.now_s))
        for command in commands:
            match command:
                case Finish(items) if self.trouble:
                    self.trouble = False
                    self.step(StoreSaysNo("finish", Trouble.REFUSED, "too odd"))
                case Finish(items):
                    rows = [Row(number, self.status, self.state) for number in range(len(items))]
                    self.step(Finished(rows, 0.001))
                case FinishStaged(lane, ends):
                    self.step(StagedAnswered(lane, [self.staged.pop(0) for _ in ends], 0.001))
                case Tell():
                    self.told.append(command)
                case Exit():
                    self.ended = True

    def lost(self, *job_ids: int, kind: str = "charge", outcome: str = "lost", known: Any = (1, 3)) -> None:
        """The dispatcher has attempts ended."""
        items = [
            [3, job_id, -job_id, 0, job_id, 1, outcome, None, KILLED, kind, *known] for job_id in job_ids
        ]
        self.step(Heard(b"dispatcher-1", EndAttempts(1, items)))

    def reports(self, *end: Any, owned: bool = False, staged: bytes = b"") -> None:
        """A worker reports the end of attempt 0 of receipt 7."""
        message = AttemptsEnded(
            "i1", 1, 3, 7, -7, [], [[0, 70, 1, "charge", *end]], staged=[0] if staged else [],
            owned=[0] if owned else [],
        )  # fmt: skip
        self.step(Heard(b"w1", message, [staged] if staged else []))
        for _ in range(5):
            self.now_s += 0.5
            self.step(Tick())

    def lines(self) -> list[tuple[str, str]]:
        told, self.told = self.told, []
        return [(logging.getLevelName(line.level), line.text) for line in told]


def test_a_lost_attempt_is_told_with_its_job_its_error_and_what_comes_next() -> None:
    host = Host()
    host.lost(17)
    host.lost(18, known=())
    host.state = "failed"
    host.lost(19, known=(3, 3))
    host.state = "cancelled"
    host.lost(20, kind="", known=(3, 3))
    error = "WorkerDied: killed by signal 11 (SIGSEGV)"
    assert host.lines() == [
        ("INFO", f"job 17, kind charge, attempt 1 of 3 failed, next try in about 2 s: {error}"),
        ("INFO", f"job 18, kind charge, failed, to be tried again: {error}"),
        ("WARNING", f"job 19, kind charge, attempt 3 of 3 failed for good: {error}"),
        (
            "INFO",
            "job 20, kind ?, attempt 3 of 3 failed, and is cancelled, as another job holds its unique key: "
            + error,
        ),
    ]


def test_what_goes_back_or_had_ended_before_is_no_failure() -> None:
    host = Host(state="available")
    host.lost(17, outcome="return")
    host.status, host.state = "stale", None
    host.lost(18)
    assert host.lines() == []


def test_a_thousand_at_once_are_counted_and_those_for_good_stay_visible() -> None:
    host = Host()
    host.lost(*range(1, 1001))
    host.state = "failed"
    host.lost(2000)
    assert [level for level, _ in host.lines()] == ["INFO"] * LINES + ["WARNING"]
    due_s = host.core.next_tick_s()
    assert due_s == WINDOW_S
    host.now_s = due_s
    host.step(Tick())
    assert host.lines() == [
        ("INFO", f"kind charge: {1000 - LINES} more attempts failed, to be tried again, in 10 s")
    ]
    assert host.core.next_tick_s() is None


def test_kinds_without_end_have_an_end() -> None:
    host = Host()
    for number in range(1, 1001):
        host.lost(number, kind=f"kind{number}")
    assert len(host.lines()) == MOST_WINDOWS + LINES
    host.step(SupervisorSaid(StopNow("test")))
    host.now_s = 5.0
    host.step(Tick())
    assert host.ended
    rest = 1000 - MOST_WINDOWS - LINES
    assert host.lines() == [("INFO", f"other kinds: {rest} more attempts failed, to be tried again, in 5 s")]


def test_a_completion_of_a_handlers_own_that_was_not_committed_is_told() -> None:
    host = Host()
    host.reports("lost", 2.5, {"error": "not committed", "type": "NotCommitted"}, owned=True)
    assert host.lines() == [
        ("INFO", "job 70, kind charge, failed, next try in 2.5 s: NotCommitted: not committed")
    ]


@pytest.mark.parametrize("outcome", ["retry", "snooze", "fail", "cancel"])
def test_what_its_worker_has_told_or_is_no_failure_is_not_told_again(outcome: str) -> None:
    host = Host()
    host.reports(outcome, 1.0, {"error": "no", "type": "E"})
    assert host.lines() == []


def test_an_end_that_could_not_be_stored_as_it_was_is_told_as_the_failure_that_it_became() -> None:
    host = Host(trouble=True)
    host.reports("snooze", 1.0, None)
    assert host.lines() == [
        (
            "INFO",
            "job 70, kind charge, failed, to be tried again: FinishRefused: the outcome could not be stored: too odd",
        )
    ]
    host = Host(staged=[StagedNo(Trouble.REFUSED, "too odd")], state="failed")
    host.reports("completed", None, None, staged=b"[{}]")
    ((level, text),) = host.lines()
    assert level == "WARNING" and "failed for good: FollowUpRefused: a follow-up could not be stored" in text
    host = Host(staged=[StagedRow("refused", None, 0)])
    host.reports("park", None, None, None, "d2e7c7f2-0000-4000-8000-000000000000")
    ((level, text),) = host.lines()
    assert level == "INFO" and "to be tried again: CallbackNotFound" in text


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ('[5, "k", {"a": [1, "],["]}, 2, 1, 25, null]', (2, 25)),
        ('[5, "k", {}, "2", 1, 25, null]', (0, 0)),
        ("[5]", (0, 0)),
    ],
)
def test_the_dispatcher_sends_attempt_and_most_along_where_a_body_tells_them(
    body: str, known: tuple[int, int]
) -> None:
    assert attempts_of(body.encode()) == known

    @dataclass
    class Claimed:
        slot: int = 3
        receipt_id: int = 7
        nonce: int = 9
        queue: str = "default"
        priority: int = 2

        def __post_init__(self) -> None:
            self.job_ids, self.kinds = [5, 6], ["k", "k"]
            self.bodies = [body, '[6, "k", {}, 4, 1, 25, null]']

    books = Books()
    receipt = books.enter(Claimed(), 0.0)  # type: ignore[arg-type]
    assert receipt is not None
    receipt.leases = [1, 1]
    books.end(receipt, 0b01, Outcome.LOST.value, KILLED)
    books.end(receipt, 0b10, Outcome.RETURN.value)
    assert receipt.item(0) == [3, 7, 9, 0, 5, 1, "lost", None, KILLED, "k", *known]
    assert receipt.item(1) == [3, 7, 9, 1, 6, 1, "return", None, None, "k"]


def test_the_line_has_the_fields_of_its_job_in_json() -> None:
    host = Host()
    host.lost(17)
    (line,) = host.told
    record = logging.LogRecord("awa_pool.finalizer", line.level, "f", 1, "%s", (line.text,), None)
    record.__dict__ |= line.tag
    shown = json.loads(JsonFormatter("finalizer").format(record))
    assert (shown["job_id"], shown["kind"], shown["attempt"]) == (17, "charge", 1)
