"""How long a worker runs jobs before it sends results and reads its mail, on a clock that only handlers move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from awa_pool.job import Job
from awa_pool.page.writing import Page
from awa_pool.registry import Registry
from awa_pool.worker import sync
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.limits import Alarm
from awa_pool.worker.loop import SLICE_S
from awa_pool.worker.output import Tags
from awa_pool.worker.quota import Quota

SHORT_S = sync.SHORT_JOB_S / 2
LONG_S = sync.SHORT_JOB_S * 1.5


@dataclass
class Work:
    takes_s: float


@dataclass
class OtherWork:
    takes_s: float


class Bench:
    """An executor, and a clock that each handler puts forward by what its job is said to take."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int = 0) -> None:
        self.now_s = 1000.0
        self.quota = Quota(most, self.now_s)
        monkeypatch.setattr(sync, "monotonic", lambda: self.now_s)
        registry = Registry()
        registry.add(Work, self.handle, kind="work")
        registry.add(OtherWork, self.handle, kind="other")
        self.page = Page.create(str(folder / "page"), 1, ["work", "other"], 8)
        self.executor = sync.SyncExecutor(
            Endings(registry, "shop:client", Random(1)),
            self.page.sync,
            {"work": 0, "other": 1},
            Tags(),
            lambda job_id, run_lease: False,
            set(),
            lambda kind: None,
            Alarm(),
            self.quota,
        )

    def handle(self, job: Job[Work] | Job[OtherWork]) -> None:
        self.now_s += job.args.takes_s

    def run(self, *jobs: tuple[str, float]) -> int:
        """Run one slice over a piece of (kind, seconds); returns how many of them it ran."""
        bodies = [[100 + at, kind, {"takes_s": s}, 1, 1, 25, None] for at, (kind, s) in enumerate(jobs)]
        count = len(jobs)
        piece = Piece("default", 2, 3, 7, 9, list(range(count)), bodies, (1 << count) - 1)
        self.executor.run(piece, SLICE_S)
        ran = count - piece.todo.bit_count()
        assert sum(mask for mask in piece.done.values()) == (1 << ran) - 1
        return ran


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.page.close()


def test_short_jobs_of_one_kind_share_a_long_slice(bench: Bench) -> None:
    began_s = bench.now_s
    ran = bench.run(*[("work", SHORT_S)] * 40)
    assert ran > SLICE_S / SHORT_S + 2
    assert bench.now_s - began_s == pytest.approx(sync.LONG_SLICE_S, abs=SHORT_S * 1.01)


def test_jobs_of_many_kinds_share_no_more_than_a_plain_slice(bench: Bench) -> None:
    assert bench.run(("work", SHORT_S), ("other", SHORT_S), ("other", SHORT_S)) == 1
    assert bench.run(*[("work", SLICE_S / 4), ("other", SLICE_S / 4)] * 4) == 4


def test_nothing_starts_behind_a_job_that_was_not_short(bench: Bench) -> None:
    assert bench.run(*[("work", LONG_S)] * 3) == 1
    assert bench.run(("work", SHORT_S), ("work", LONG_S), ("work", SHORT_S)) == 2


def test_another_kind_ends_a_long_slice(bench: Bench) -> None:
    assert bench.run(*[("work", SHORT_S)] * 3, *[("other", SHORT_S)] * 3) == 3


def test_no_more_attempts_start_than_the_worker_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, most=5)
    assert bench.run(*[("work", 0.0001)] * 3) == 3
    assert not bench.quota.exhausted
    assert bench.run(*[("work", 0.0001)] * 3) == 2
    assert bench.quota.exhausted and bench.run(("work", 0.0001)) == 0


def test_a_successor_is_asked_for_when_the_rest_will_last_less_than_its_boot() -> None:
    quota = Quota(100, 1000.0)
    assert not quota.nearly_exhausted(1000.0)
    quota.sync_started, quota.async_started = 60, 30
    assert quota.nearly_exhausted(1001.0)  # 10 left at 90 a second
    assert not quota.nearly_exhausted(1090.0)  # at one a second
    assert not Quota(0, 1000.0).nearly_exhausted(1001.0)
