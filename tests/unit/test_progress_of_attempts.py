"""What handlers say of their progress: checked when it is said, reported seldom, the last word goes with the attempt's end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from worker_rig import until

from awa_pool import Client, PayloadTooLarge, RetryAfter, ValidationError
from awa_pool.events import Trouble
from awa_pool.finalizer.progress import AGAIN_S, LINGER_S, MOST_HELD, ProgressRoad
from awa_pool.job import Job
from awa_pool.messages import AttemptProgress
from awa_pool.wire import Router
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.reporting import Reporter


@dataclass
class Work:
    number: int


def _run(job: Job[Work]) -> None: ...


def new_job(extra: dict[str, Any] | None = None) -> Job[Work]:
    return Job(Work(1), 7, "work", extra=extra)


def test_the_last_word_counts_and_metadata_is_merged() -> None:
    job = new_job()
    assert job.progress is None
    job.set_progress(0)
    job.set_progress(12.5, "reading")
    notes: dict[str, Any] = {"page": [1]}
    job.update_metadata(notes)
    notes["page"].append(2)
    job.update_metadata({"file": "ä", "none": None})
    assert job.progress == {
        "percent": 12.5,
        "message": "reading",
        "metadata": {"page": [1], "file": "ä", "none": None},
    }
    job.set_progress(100)
    assert (
        job.progress is not None and "message" not in job.progress and job.progress["metadata"]["file"] == "ä"
    )
    job.flush_progress()


def test_an_attempt_finds_what_the_one_before_has_said() -> None:
    job = new_job({"progress": {"percent": 40, "metadata": {"page": 3}}})
    job.update_metadata({"page": 4})
    assert job.progress == {"percent": 40, "metadata": {"page": 4}}
    assert new_job({"progress": "by other software"}).progress is None


WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("set_progress", (-1,), "percent"),
    ("set_progress", (100.5,), "percent"),
    ("set_progress", (float("nan"),), "percent"),
    ("set_progress", (True,), "percent"),
    ("set_progress", ("50",), "percent"),
    ("set_progress", (5, 7), "message"),
    ("set_progress", (5, "x" * 1001), "message"),
    ("set_progress", (5, "nul\0"), "message"),
    ("set_progress", (5, "\ud800"), "message"),
    ("update_metadata", (None,), "metadata"),
    ("update_metadata", (["a"],), "metadata"),
    ("update_metadata", ({"awa:x": 1},), "metadata.awa:x"),
    ("update_metadata", ({"a": {"b": float("inf")}},), "metadata.a.b"),
    ("update_metadata", ({"a": 2**64},), "metadata.a"),
]


@pytest.mark.parametrize(("method", "given", "path"), WRONG)
def test_what_cannot_be_stored_is_refused_by_name_and_changes_nothing(
    method: str, given: tuple[Any, ...], path: str
) -> None:
    job = new_job()
    job.set_progress(1)
    with pytest.raises(ValidationError) as caught:
        getattr(job, method)(*given)
    assert caught.value.path == path
    assert job.progress == {"percent": 1}


def test_progress_has_a_size_and_the_error_says_which() -> None:
    job = new_job()
    for at in range(8):
        job.update_metadata({str(at): "x" * 1000})
    with pytest.raises(PayloadTooLarge, match="8192"):
        job.update_metadata({"more": "x" * 1000})


class World:
    """A worker's endings and reporter, with a finalizer's ear."""

    def __init__(self, folder: str) -> None:
        self.ear = Router(f"{folder}/f")
        self.client = Client("host=nowhere")
        self.client.task(Work)(_run)
        self.reporter = Reporter({"finalizer_path": f"{folder}/f", "worker": 1, "incarnation": "w"})
        self.endings = Endings(self.client.registry, "app", Random(1), reporter=self.reporter)
        self.task = self.client.registry.tasks["work"]
        self.piece = Piece("q", 2, 3, 5, 6, [1], [[7, "work", {"number": 1}, 1, 4, 3, None]], 2)

    def start(self) -> Job[Work]:
        job = self.endings.job(self.piece, self.task, 1, self.piece.bodies[0], lambda: False)  # type: ignore[arg-type]
        assert job is not None
        return job

    def settle(self, job: Job[Work], result: object) -> list[Any] | None:
        self.endings.settle(
            self.piece, 1, job, self.task, self.endings.of_handler(self.task, 1, result, None)
        )
        return self.piece.others[0] if self.piece.others else None

    def heard(self) -> list[Any] | None:
        received = self.ear.receive()
        return None if received is None else received[1].to_list()[0]


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="awa") as folder:
        made = World(folder)
        yield made
        made.reporter.close()
        made.ear.close()


def test_a_word_is_reported_after_a_moment_with_the_newest_said(world: World) -> None:
    job = world.start()
    job.set_progress(10)
    job.set_progress(20, "half")
    assert until(world.heard, "a report") == [[3, 5, 6, 1, 7, 4, {"percent": 20, "message": "half"}]]
    job.set_progress(30)
    job.flush_progress()
    assert until(world.heard, "a report at once")[0][6] == {"percent": 30}


def test_a_retry_takes_the_last_word_along_and_a_completion_does_not(world: World) -> None:
    job = world.start()
    job.set_progress(60)
    item = world.settle(job, RetryAfter(5))
    assert item is not None and item[7] == {"percent": 60}
    assert world.reporter.words == {}
    job.set_progress(70)  # by a thread that was left behind
    assert world.reporter.words == {}
    again = world.start()
    world.piece.others.clear()
    again.set_progress(100)
    assert world.settle(again, None) is None and again.progress is None and world.reporter.words == {}
    silent = world.start()
    item = world.settle(silent, RetryAfter(5))
    assert item is not None and len(item) == 7


def test_the_finalizer_writes_the_newest_of_each_in_one_call_and_tries_again_later() -> None:
    road = ProgressRoad()

    def say(index: int, percent: int) -> list[Any]:
        return [3, 5, 6, index, 7, 1, {"percent": percent}]

    assert (
        road.put(AttemptProgress([say(0, 1), say(1, 1), say(0, 2), [1], [3, 5, 6, 99, 7, 1, {}]]), 10.0) == 2
    )
    assert road.flush(10.0) == [] and road.due_s() == 10.0 + LINGER_S
    (call,) = road.flush(10.1)
    assert [(item["index"], item["progress"]["percent"]) for item in call.items] == [(1, 1), (0, 2)]
    road.put(AttemptProgress([say(1, 3)]), 10.2)
    assert road.flush(11.0) == []  # one is under way
    road.failed(Trouble.AWAY, 11.0)
    assert road.flush(11.5) == []
    (call,) = road.flush(11.0 + AGAIN_S)
    assert sorted((item["index"], item["progress"]["percent"]) for item in call.items) == [(0, 2), (1, 3)]
    road.failed(Trouble.REFUSED, 13.0)
    assert road.flush(20.0) == []
    road.put(AttemptProgress([[3, at, 6, 1, 7, 1, {}] for at in range(MOST_HELD + 9)]), 20.0)
    (call,) = road.flush(30.0)
    assert len(call.items) == 500
    road.kept(500)
    assert road.written == 500
