"""The async lane of a real worker process, beside its sync lane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worker_rig import Rig, body

from awa_pool.messages import ActorReplaced, CancelJob, Recalled, Stop, WorkerReady
from awa_pool.worker.start import WorkerStarter


@pytest.fixture(scope="module")
def starter() -> Iterator[WorkerStarter]:
    starter = WorkerStarter("forkserver", "worker_apps:mixed")
    yield starter
    starter.close()


@pytest.fixture
def rig(starter: WorkerStarter) -> Iterator[Rig]:
    rig = Rig(starter, "worker_apps:mixed")
    yield rig
    rig.close()


def rest(job_id: int, s: float, then: str = "") -> bytes:
    return body(job_id, "rest", {"s": s, "then": then})


def test_a_mixed_app_registers_two_lanes_with_their_kinds(rig: Rig) -> None:
    worker = rig.start(concurrency=20)
    lanes = {hello.lane: (hello.capacity, hello.kinds) for hello in rig.heard(WorkerReady, worker)}
    assert lanes == {"sync": (1, ["noop", "awa:outcome"]), "async": (20, ["rest"])}


def test_async_attempts_overlap_up_to_the_concurrency_and_come_as_they_end(rig: Rig) -> None:
    worker = rig.start(concurrency=3)
    receipt_id = rig.hand(
        worker, [rest(1, 60), rest(2, 60), *(rest(n, 0.001) for n in range(3, 20))], "async"
    )
    rig.until(lambda: len(rig.ended(receipt_id)) == 17, "the short ones")
    assert not {0, 1} & set(rig.ended(receipt_id))
    running = worker.page().lanes["async"].running
    assert {(entry.index, entry.kind) for entry in running} == {(0, "rest"), (1, "rest")}
    assert worker.page().started() == [[receipt_id, (1 << 19) - 1, (1 << 19) - 4]]


@pytest.mark.parametrize("then", ["exit", "cancelled"])
def test_exit_and_cancellation_end_the_attempt_and_not_the_lane(rig: Rig, then: str) -> None:
    worker = rig.start(concurrency=4)
    ended = rig.run(worker, [rest(1, 0, then), rest(2, 0.01)], "async")
    assert ended[0][4] == "retry" and ended[1] == "completed"


def test_a_stray_exit_in_the_loop_is_survived(rig: Rig) -> None:
    worker = rig.start(concurrency=4)
    rig.run(worker, [rest(1, 0, "stray")], "async")
    assert rig.run(worker, [rest(2, 0)], "async") == {0: "completed"}


@pytest.mark.parametrize("then", ["stop the loop", "no tasks"])
def test_a_handler_that_stops_the_loop_or_makes_tasks_its_own_way_harms_nobody(rig: Rig, then: str) -> None:
    worker = rig.start(concurrency=4)
    assert set(rig.run(worker, [rest(1, 0, then), rest(2, 0.2)], "async").values()) == {"completed"}
    assert rig.run(worker, [rest(3, 0)], "async") == {0: "completed"}
    assert rig.stop(worker) == 0


def test_attempts_that_others_cancel_before_they_begin_run_all_the_same(rig: Rig) -> None:
    worker = rig.start(concurrency=4)
    # The first cancels every task before the three that were made with it have had their first turn.
    ended = rig.run(worker, [rest(n, 0, "cancel all" if n == 1 else "") for n in range(1, 40)], "async")
    assert set(ended) == set(range(39)), "each ends once, none is forgotten"
    assert rig.run(worker, [rest(50, 0)], "async") == {0: "completed"}


def test_a_cancel_reaches_an_async_handler(rig: Rig) -> None:
    worker = rig.start(concurrency=4)
    receipt_id = rig.hand(worker, [rest(7, 0, "until cancelled")], "async")
    rig.until(lambda: worker.page().running, "the start")
    rig.dispatcher.send(worker.peer("async"), CancelJob(7, 1))
    rig.until(lambda: rig.ended(receipt_id), "the end")
    assert rig.ended(receipt_id)[0][4:] == [
        "cancel",
        None,
        {"error": "the job was cancelled", "type": "JobCancelled"},
    ]


def test_kinds_that_come_to_the_other_lane_run_there(rig: Rig) -> None:
    worker = rig.start(concurrency=4)
    mixed = [body(1, "noop", {"n": 1}), rest(2, 0), body(3, "missing", {}), b"garbage"]
    for lane in ("sync", "async"):
        ended = rig.run(worker, mixed, lane)
        assert (ended[0], ended[1], ended[2][4], ended[3][4]) == ("completed", "completed", "fail", "fail")


def test_a_drain_gives_back_what_an_async_lane_has_not_started(rig: Rig) -> None:
    worker = rig.start(concurrency=2)
    receipt_id = rig.hand(worker, [rest(n, 0.2) for n in range(6)], "async")
    rig.until(lambda: len(worker.page().running) == 2, "two to start")
    worker.pipe.send(Stop(20.0, "test"))
    rig.until(lambda: worker.process.exitcode is not None, "the end")
    rig.pump()
    assert worker.process.exitcode == 0
    assert rig.ended(receipt_id) == {0: "completed", 1: "completed"}
    assert rig.heard(Recalled, worker) == [Recalled(receipt_id, 0b111100)]


def test_async_results_are_sent_again_to_a_restarted_finalizer(rig: Rig) -> None:
    worker = rig.start(concurrency=4)
    rig.acknowledging = False
    receipt_id = rig.hand(worker, [rest(1, 0), rest(2, 0)], "async")
    rig.until(lambda: len(rig.ended(receipt_id)) == 2, "results")
    rig.results.clear()
    rig.restart_finalizer()
    rig.acknowledging = True
    worker.pipe.send(ActorReplaced("finalizer"))
    rig.until(lambda: len(rig.ended(receipt_id)) == 2, "results once more")
    rig.until(lambda: worker.page().started() == [], "the journal to be released")
    assert rig.stop(worker) == 0


def test_many_async_jobs_pass_through(rig: Rig) -> None:
    worker = rig.start(concurrency=50)
    receipts = [rig.hand(worker, [rest(n, 0) for n in range(63)], "async") for _ in range(20)]
    rig.until(lambda: all(len(rig.ended(receipt_id)) == 63 for receipt_id in receipts), "all")
    assert worker.page().jobs_done == 20 * 63
