"""One log line per failed attempt, and a count where there are too many."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from io import StringIO
from random import Random

import pytest

from awa_pool.failures import LINES, WINDOW_S
from awa_pool.job import Job
from awa_pool.outcomes import Cancel, RetryAfter, Snooze, resolve_outcome
from awa_pool.registry import Registry
from awa_pool.worker.bodies import Unreadable
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.failing import Failures
from awa_pool.worker.output import Tags, install


@dataclass
class Charge:
    n: int


def charge(job: Job[Charge]) -> None:
    pass


@dataclass
class Shop:
    caplog: pytest.LogCaptureFixture
    now_s: float = 0.0
    tags: Tags = field(default_factory=Tags)

    def __post_init__(self) -> None:
        self.caplog.set_level(logging.DEBUG, "awa_pool.worker")
        registry = Registry()
        registry.add(Charge, charge, max_attempts=3)
        self.task = registry.tasks["charge"]
        self.failures = Failures(self.tags, registry.tasks, lambda: self.now_s)
        self.endings = Endings(registry, "shop:client", Random(1), failures=self.failures)

    def ends(self, what: BaseException, attempt: int = 1, job_id: int = 7) -> None:
        """Let an attempt end by what its handler raises."""
        piece = Piece("default", 2, 0, 1, 1, [0], [], 1)
        body = [job_id, "charge", {"n": 1}, attempt, 1, 3, None]
        job = self.endings.job(piece, self.task, 0, body, lambda: False)
        assert job is not None
        ending = self.endings.of_handler(self.task, attempt, None, what)
        self.endings.settle(piece, 0, job, self.task, ending)

    def told(self) -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in self.caplog.records]
        self.caplog.clear()
        return found


@pytest.fixture(autouse=True)
def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tests before this one have set up."""
    ours = logging.getLogger("awa_pool")
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
        monkeypatch.setattr(ours, name, value)


@pytest.fixture
def shop(caplog: pytest.LogCaptureFixture) -> Shop:
    return Shop(caplog)


def test_a_failed_attempt_is_told_with_what_becomes_of_its_job(shop: Shop) -> None:
    shop.ends(ValueError("card expired\nand more"))
    ((level, text),) = shop.told()
    assert level == "INFO"
    assert text.startswith("job 7, kind charge, attempt 1 of 3 failed, next try in 2.")
    assert text.endswith(" s: ValueError: card expired")
    shop.ends(ValueError("card expired"), attempt=3)
    assert shop.told() == [
        ("WARNING", "job 7, kind charge, attempt 3 of 3 failed for good: ValueError: card expired")
    ]


def test_what_no_handler_could_run_is_told_too(shop: Shop) -> None:
    piece = Piece("default", 2, 0, 1, 1, [0], [], 1)
    assert (
        shop.endings.job(piece, shop.task, 0, [7, "charge", {"n": "x"}, 1, 1, 3, None], lambda: False) is None
    )
    shop.endings.record_unrun(piece, 0, [8, "mail", {}, 2, 1, 3, None], set())
    shop.endings.record_unrun(piece, 0, Unreadable(9, "", 1, "the body is no JSON"), set())
    told = shop.told()
    assert [level for level, _ in told] == ["WARNING"] * 3
    for (_, text), start in zip(
        told,
        (
            "job 7, kind charge, attempt 1 of 3 failed for good: DecodeError: ",
            "job 8, kind mail, attempt 2 of 3 failed for good: UnknownKind: kind 'mail'",
            "job 9, kind ?, failed for good: UnreadableJob: the body is no JSON",
        ),
        strict=True,
    ):
        assert text.startswith(start)


def test_what_a_handler_asked_for_is_no_failure(shop: Shop) -> None:
    for answer in (Snooze(5), Cancel("no stock")):
        shop.ends(answer)
    assert shop.told() == []
    shop.ends(RetryAfter(5))
    assert [level for level, _ in shop.told()] == ["DEBUG"]
    shop.ends(RetryAfter(5), attempt=3)
    assert [level for level, _ in shop.told()] == ["WARNING"]


def test_a_storm_is_counted_and_what_fails_for_good_stays_visible_in_it(shop: Shop) -> None:
    for n in range(1000):
        shop.ends(ValueError(str(n)))
    assert len(shop.told()) == LINES
    shop.ends(ValueError("the last"), attempt=3)
    assert [level for level, _ in shop.told()] == ["WARNING"]
    shop.failures.flush()
    assert shop.told() == []
    shop.now_s = WINDOW_S
    shop.failures.flush()
    assert shop.told() == [
        ("INFO", f"kind charge: {1000 - LINES} more attempts failed, to be tried again, in 10 s")
    ]
    shop.ends(ValueError("again"))
    assert len(shop.told()) == 1


def test_kinds_that_nobody_knows_share_their_lines(shop: Shop) -> None:
    piece = Piece("default", 2, 0, 1, 1, [0], [], 1)
    for n in range(100):
        shop.endings.record_unrun(piece, 0, [n, f"mail{n}", {}, 1, 1, 3, None], set())
    assert len(shop.told()) == LINES
    shop.failures.flush(all=True)
    assert shop.told() == [
        ("WARNING", f"kinds that the app does not know: {100 - LINES} more attempts failed for good, in 0 s")
    ]


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_line_names_its_own_job_whatever_runs_beside(
    form: str, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shown = logging.getLogger(), StringIO()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(sys, "stdout", StringIO())
    tags = install({"log_format": form, "worker": 1})
    tags.main_job = Job(Charge(1), 987654321, "other", 5, 9, "default", 2, 1, None, lambda: False)
    failures = Failures(tags, {"charge"})
    ending = resolve_outcome(None, ValueError("x"), attempt=1, backoff=None, rng=Random(1))
    failures.say(7, "charge", 1, 3, ending)
    if form == "json":
        assert '"job_id":7,"kind":"charge","attempt":1' in shown.getvalue()
    assert "987654321" not in shown.getvalue() and "job 7, kind charge, attempt 1 of 3" in shown.getvalue()
    assert tags.current() is tags.main_job


def test_an_error_without_a_text_is_told_by_its_type_alone(shop: Shop) -> None:
    shop.ends(TimeoutError())
    ((_, text),) = shop.told()
    assert text.endswith(" s: TimeoutError")
