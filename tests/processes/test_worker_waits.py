"""Handlers of a real worker process wait for callbacks, before a dispatcher and a finalizer of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_rig import Rig, Worker, body

from awa_pool.messages import (
    REPLACED,
    ActorReplaced,
    AskHolding,
    CancelJob,
    ForgetCallback,
    Holding,
    Stop,
    WorkerReady,
)
from awa_pool.page.layout import Phase
from awa_pool.worker.start import WorkerStarter

KINDS = pytest.mark.parametrize("kind", ["ask", "ask_async"])


@pytest.fixture(scope="module")
def starter() -> Iterator[WorkerStarter]:
    starter = WorkerStarter("forkserver", "waiting_apps:registry")
    yield starter
    starter.close()


@pytest.fixture
def rig(starter: WorkerStarter) -> Iterator[Rig]:
    rig = Rig(starter, "waiting_apps:registry")
    yield rig
    rig.close()


@pytest.fixture
def loud_rig(capfd: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """A rig whose workers write to where the test reads."""
    starter = WorkerStarter("forkserver", "waiting_apps:registry")
    rig = Rig(starter, "waiting_apps:registry")
    yield rig
    rig.close()
    starter.close()


def ask(job_id: int, kind: str, path: Path | None = None, extra: object = None, **more: object) -> bytes:
    return body(job_id, kind, {"path": str(path or ""), **more}, extra=extra)


def hand(rig: Rig, worker: Worker, bodies: list[bytes]) -> int:
    return rig.hand(worker, bodies, "async")


def wait_begins(rig: Rig, job_id: int, times: int = 1) -> None:
    def waits() -> bool:
        return len({m.callback_id for _, m in rig.asked if m in [rig.waits().get(job_id)]}) > 0

    rig.until(waits, f"job {job_id} to wait")


def test_plain_kinds_that_wait_belong_to_the_async_lane(rig: Rig) -> None:
    worker = rig.start(concurrency=2)
    lanes = {hello.lane: hello.kinds for hello in rig.heard(WorkerReady, worker)}
    assert lanes == {"sync": ["ask_bare", "awa:outcome"], "async": ["ask", "ask_async"]}


@KINDS
def test_a_handler_waits_again_and_again_and_others_run_in_its_slot(
    rig: Rig, tmp_path: Path, kind: str
) -> None:
    worker = rig.start(concurrency=1, max_waiting=5)
    first = hand(rig, worker, [ask(1, kind, tmp_path / "one", times=2)])
    wait_begins(rig, 1)
    rig.until(lambda: rig.given_away(worker) == {first: 1}, "the dispatcher to hear of it")
    (entry,) = worker.page().running
    assert (entry.job_id, entry.phase) == (1, Phase.WAITING)
    assert set(rig.run(worker, [ask(n, kind, times=0) for n in range(2, 6)], "async").values()) == {
        "completed"
    }
    earlier = rig.waits()[1]
    rig.answer(1, {"n": [1, None]})
    rig.until(lambda: rig.waits()[1].callback_id != earlier.callback_id, "the second wait")
    rig.answer(1, 2.5)
    rig.until(lambda: rig.ended(first), "the end")
    assert rig.ended(first) == {0: "completed"}
    assert (tmp_path / "one").read_text() == "{'n': [1, None]}\n2.5\n"
    rig.until(lambda: rig.given_away(worker) == {}, "the dispatcher to hear that it went on")
    assert worker.page().running == []


@KINDS
def test_resumed_handlers_go_on_above_the_concurrency_and_nothing_starts_until_there_is_room(
    rig: Rig, tmp_path: Path, kind: str
) -> None:
    worker = rig.start(concurrency=2, max_waiting=10)
    waiting = hand(rig, worker, [ask(n, kind, tmp_path / "all", times=2) for n in range(1, 7)])
    rig.until(lambda: len(rig.waits()) == 6, "six to wait in a lane of two")
    rig.registering = False
    for job_id in range(1, 7):
        rig.answer(job_id, job_id)
    rig.until(lambda: rig.given_away(worker) == {}, "all to go on")
    later = hand(rig, worker, [ask(9, kind, times=0)])
    assert len(worker.page().running) == 6 and {each.phase for each in worker.page().running} == {
        Phase.HANDLER
    }
    rig.pump()
    assert rig.ended(later) == {}, "six hold slots"
    worker.pipe.send(ActorReplaced("finalizer"))  # the requests are said again, and now answered
    rig.registering = True
    rig.until(lambda: len({m.callback_id for m in rig.waits().values()}) == 6 and rig.ended(later), "room")
    assert rig.ended(waiting) == {}


def test_a_worker_says_once_that_no_more_can_give_their_slots_away(
    loud_rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    rig = loud_rig
    worker = rig.start(concurrency=3, max_waiting=2)
    receipt = hand(rig, worker, [ask(n, ("ask", "ask_async")[n % 2]) for n in range(1, 6)])
    rig.until(lambda: len(rig.waits()) == 5, "five to wait")
    rig.until(lambda: sum(mask.bit_count() for mask in rig.given_away(worker).values()) == 2, "two slots")
    later = hand(rig, worker, [ask(9, "ask", times=0)])
    rig.answer(5)
    rig.until(lambda: rig.ended(later), "a slot")
    for job_id in range(1, 5):
        rig.answer(job_id)
    rig.until(lambda: len(rig.ended(receipt)) == 5, "the end")
    rig.until(lambda: rig.given_away(worker) == {}, "all to have gone on")
    assert rig.stop(worker) == 0
    err = capfd.readouterr().err
    assert err.count("--max-waiting") == 1 and "2 handlers of worker 0 wait" in err


@KINDS
def test_a_cancel_and_a_deadline_end_a_wait(rig: Rig, tmp_path: Path, kind: str) -> None:
    worker = rig.start(concurrency=2, max_waiting=5)
    late = {"deadline_s": 0.3}
    receipt = hand(rig, worker, [ask(1, kind, tmp_path / "1"), ask(2, kind, tmp_path / "2", extra=late)])
    rig.until(lambda: len(rig.waits()) == 2, "both to wait")
    rig.dispatcher.send(worker.peer("async"), CancelJob(1, 1))
    rig.until(lambda: len(rig.ended(receipt)) == 2, "their ends")
    ended = rig.ended(receipt)
    assert ended[0][4:] == ["cancel", None, {"error": "the job was cancelled", "type": "JobCancelled"}]
    assert (ended[1][4], ended[1][6]["type"]) == ("retry", "DeadlineExceeded")
    assert ended[1][6]["error"] == "the deadline of 0.3 s has passed"
    assert ended[1][6]["reason"] == "deadline_exceeded"
    rig.until(lambda: len([1 for _, m in rig.asked if isinstance(m, ForgetCallback)]) == 2, "farewells")


def test_a_deadline_reaches_a_thread_that_computes_and_nothing_else(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start(concurrency=4, max_waiting=5)
    late = {"deadline_s": 0.2}
    spinning = hand(rig, worker, [ask(n, "ask", tmp_path / str(n), late, then="spin") for n in (1, 2)])
    waiting = hand(rig, worker, [ask(3, "ask", tmp_path / "3")])
    rig.until(lambda: len(rig.ended(spinning)) == 2, "the deadline")
    for item in rig.ended(spinning).values():
        assert (item[4], item[6]["type"]) == ("retry", "DeadlineExceeded")
        assert item[6]["error"].startswith("the deadline of 0.2 s has passed")
        assert "in spin" in item[6]["traceback"] and "threads.py" not in item[6]["traceback"]
    rig.answer(3, "still there")
    rig.until(lambda: rig.ended(waiting), "the other")
    assert rig.ended(waiting) == {0: "completed"}


@KINDS
def test_a_pool_that_stops_ends_waits_at_once_and_gives_their_jobs_back(
    rig: Rig, tmp_path: Path, kind: str
) -> None:
    worker = rig.start(concurrency=2, max_waiting=5)
    receipt = hand(rig, worker, [ask(n, kind, tmp_path / str(n)) for n in (1, 2, 3)])
    rig.until(lambda: len(rig.waits()) == 3, "three to wait")
    assert rig.stop(worker) == 0
    assert [item[4] for item in rig.ended(receipt).values()] == ["return"] * 3
    assert (tmp_path / "2").read_text() == "ShuttingDown\n"


def test_a_wait_in_a_task_group_is_given_back_by_a_stop_too(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start(concurrency=2, max_waiting=5)
    receipt = hand(rig, worker, [ask(1, "ask_async", tmp_path / "1", then="group")])
    wait_begins(rig, 1)
    assert rig.stop(worker) == 0
    assert [item[4] for item in rig.ended(receipt).values()] == ["return"]


@KINDS
def test_a_worker_that_makes_room_keeps_its_waits_until_the_pool_stops(
    rig: Rig, tmp_path: Path, kind: str
) -> None:
    worker = rig.start(concurrency=2, max_waiting=5)
    receipt = hand(rig, worker, [ask(1, kind, tmp_path / "1", times=2), ask(2, kind, tmp_path / "2")])
    rig.until(lambda: len(rig.waits()) == 2, "both to wait")
    worker.pipe.send(Stop(1e9, REPLACED))
    rig.until(lambda: rig.heard(WorkerReady, worker)[-1].capacity == 0, "it to take nothing more")
    earlier = rig.waits()[1]
    rig.answer(1, "on")
    rig.until(lambda: rig.waits()[1] != earlier, "another wait of it")
    rig.answer(1, "and on")
    rig.until(lambda: rig.ended(receipt), "the end of one")
    assert (tmp_path / "1").read_text() == "on\nand on\n" and worker.process.exitcode is None
    assert rig.stop(worker) == 0
    assert rig.ended(receipt)[0] == "completed" and rig.ended(receipt)[1][4] == "return"


@KINDS
def test_a_new_finalizer_hears_of_waits_at_once_and_a_new_dispatcher_too(rig: Rig, kind: str) -> None:
    worker = rig.start(concurrency=1, max_waiting=5)
    receipt = hand(rig, worker, [ask(1, kind)])
    wait_begins(rig, 1)
    rig.until(lambda: rig.given_away(worker) == {receipt: 1}, "news")
    rig.asked.clear()
    rig.restart_finalizer()
    worker.pipe.send(ActorReplaced("finalizer"))
    wait_begins(rig, 1)
    rig.to_dispatcher.clear()
    worker.pipe.send(ActorReplaced("dispatcher"))
    rig.until(lambda: rig.given_away(worker) == {receipt: 1}, "news again")
    rig.dispatcher.send(worker.peer("async"), AskHolding(7))
    rig.until(lambda: Holding(7, [[receipt, 1]], [[receipt, 1]]) in rig.heard(Holding, worker), "the audit")
    rig.answer(1)
    rig.until(lambda: rig.ended(receipt) == {0: "completed"}, "the end")


def test_what_a_thread_prints_and_logs_carries_its_job(
    loud_rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    rig = loud_rig
    worker = rig.start(concurrency=2, log_format="console")
    rig.run(worker, [ask(31, "ask", times=0, then="say"), ask(32, "ask", times=0, then="pool")], "async")
    assert rig.run(worker, [ask(33, "ask", times=0, then="exit")], "async")[0][4] == "retry"
    assert rig.stop(worker) == 0
    out, err = capfd.readouterr()
    assert "[ask 31 attempt 1] printed line" in out
    assert "logged line of awa-pool job 31" in err


def test_what_a_handler_sets_in_its_context_is_not_seen_by_those_that_start_in_its_slot(
    rig: Rig, tmp_path: Path
) -> None:
    worker = rig.start(concurrency=1, max_waiting=5)
    receipt = hand(rig, worker, [ask(n, "ask_async", tmp_path / "seen", then="context") for n in (1, 2, 3)])
    rig.until(lambda: len(rig.waits()) == 3, "three to wait")
    assert (tmp_path / "seen").read_text() == "unset\n" * 3
    for job_id in (1, 2, 3):
        rig.answer(job_id)
    rig.until(lambda: len(rig.ended(receipt)) == 3, "the end")


def test_waits_at_the_wrong_place_are_refused(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start(concurrency=4, max_waiting=5)
    bare = rig.run(worker, [ask(1, "ask_bare")])[0]
    assert (bare[4], bare[6]["type"]) == ("retry", "TransitionRefused")
    assert "waits=True" in bare[6]["error"]
    elsewhere, twice, left = tmp_path / "elsewhere", tmp_path / "twice", tmp_path / "left"
    rig.run(worker, [ask(2, "ask", elsewhere, times=0, then="from another thread")], "async")
    assert elsewhere.read_text().startswith("TransitionRefused: a plain handler waits on its own thread")
    receipt = hand(rig, worker, [ask(3, "ask_async", twice, times=0, then="twice at once")])
    wait_begins(rig, 3)
    rig.answer(3, "first")
    rig.until(lambda: rig.ended(receipt), "the end")
    assert twice.read_text() == "['first', 'the attempt waits for a callback already: one wait at a time']\n"
    rig.run(worker, [ask(4, "ask_async", left, then="leave")], "async")
    rig.until(lambda: left.exists(), "the task that was left behind")
    assert left.read_text().startswith("TaskLeaseLost: the handler has returned")
    assert worker.page().running == [] and rig.given_away(worker) == {}


def test_a_wait_that_its_handler_leaves_behind_is_nothing_to_complain_of(
    loud_rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    worker = loud_rig.start(concurrency=4, max_waiting=5)
    late = {"deadline_s": 0.3}
    receipt = hand(
        loud_rig,
        worker,
        [
            ask(1, "ask_async", then="abandon"),
            ask(2, "ask_async", then="abandon and raise"),
            ask(3, "ask_async", then="abandon at the deadline", extra=late),
        ],
    )
    loud_rig.until(lambda: len(loud_rig.ended(receipt)) == 3, "the end")
    ended = loud_rig.ended(receipt)
    assert [ended[0], ended[1][6]["type"], ended[2][6]["type"]] == [
        "completed", "ValueError", "DeadlineExceeded",
    ]  # fmt: skip
    assert loud_rig.stop(worker) == 0
    assert "never retrieved" not in capfd.readouterr().err


@KINDS
def test_waits_go_on_in_the_lane_of_plain_handlers_where_they_are_handed_there(
    rig: Rig, tmp_path: Path, kind: str
) -> None:
    worker = rig.start(concurrency=1)
    receipt = rig.hand(worker, [ask(1, kind, tmp_path / "1")], "sync")
    wait_begins(rig, 1)
    rig.answer(1, "here")
    rig.until(lambda: rig.ended(receipt), "the end")
    assert rig.ended(receipt) == {0: "completed"} and (tmp_path / "1").read_text() == "here\n"


def test_a_handler_for_which_no_thread_can_be_started_goes_back_with_a_warning(
    capfd: pytest.CaptureFixture[str],
) -> None:
    starter = WorkerStarter("forkserver", "waiting_apps:threadless")
    rig = Rig(starter, "waiting_apps:threadless")
    try:
        worker = rig.start(concurrency=4)
        ended = rig.run(worker, [ask(n, "ask", times=0) for n in range(1, 6)], "async")
        assert [ended[n] if n > 2 else ended[n][4] for n in range(5)] == ["return"] * 3 + ["completed"] * 2
        assert rig.stop(worker) == 0
    finally:
        rig.close()
        starter.close()
    assert (
        capfd.readouterr().err.count("no thread can be started for its handler (can't start new thread") == 1
    )
