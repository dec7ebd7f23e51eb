"""Real worker processes between a dispatcher and a finalizer that do as the test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_rig import Rig, body, do, path_in, until

from awa_pool.messages import (
    ActorReplaced,
    AskHolding,
    CancelJob,
    Drained,
    Fatal,
    Holding,
    Recalled,
    ResultsCommitted,
    Stats,
    Stop,
    StopNow,
    WorkerReady,
)
from awa_pool.worker.start import WorkerStarter


@pytest.fixture(scope="module")
def starter() -> Iterator[WorkerStarter]:
    starter = WorkerStarter("forkserver", "worker_apps:registry")
    yield starter
    starter.close()


@pytest.fixture
def rig(starter: WorkerStarter) -> Iterator[Rig]:
    rig = Rig(starter, "worker_apps:registry")
    yield rig
    rig.close()


def noops(count: int, first: int = 1) -> list[bytes]:
    return [body(first + n, "noop", {"n": n}) for n in range(count)]


def test_a_chunk_comes_back_completed_and_the_worker_drains_with_status_0(rig: Rig) -> None:
    worker = rig.start()
    assert set(rig.run(worker, noops(63)).values()) == {"completed"}
    assert rig.stop(worker) == 0
    assert worker.said(Drained) is not None
    assert worker.page().jobs_done == 63
    assert worker.page().started() == []


@pytest.mark.parametrize(
    ("what", "outcome", "delay_s", "text"),
    [
        ("raise", "retry", None, "boom"),
        ("terminal", "fail", None, "never again"),
        ("spiteful error", "retry", None, "SystemExit"),
        ("exit 0", "retry", None, "0"),
        ("exit text", "retry", None, "some text"),
        ("interrupt", "retry", None, "KeyboardInterrupt"),
        ("coroutine", "retry", None, "async def"),
        ("recursion", "retry", None, "recursion"),
        ("retry", "retry", 7.0, ""),
        ("snooze", "snooze", 8.0, ""),
        ("cancel", "cancel", None, "no need"),
    ],
)
def test_whatever_a_handler_does_is_one_recorded_outcome_and_its_siblings_complete(
    rig: Rig, what: str, outcome: str, delay_s: float | None, text: str
) -> None:
    worker = rig.start()
    ended = rig.run(worker, [*noops(3), do(9, what), *noops(3, 10)])
    index, job_id, run_lease, kind, found, delay, error = ended.pop(3)
    assert (index, job_id, run_lease, kind, found) == (3, 9, 1, "do", outcome)
    assert delay_s is None or delay == delay_s
    assert text in (str(error) if error else "")
    assert set(ended.values()) == {"completed"}
    assert worker.process.exitcode is None


@pytest.mark.parametrize("what", ["lambda", "open file", "generator", "spiteful"])
def test_a_return_value_that_nobody_keeps_completes_the_job(rig: Rig, what: str) -> None:
    worker = rig.start()
    assert set(rig.run(worker, [do(1, what), do(2, what), *noops(2, 3)]).values()) == {"completed"}


@pytest.mark.parametrize(
    "what",
    ["own pool", "own socket", "own executor", "stray fork", "thread", "grandchild", "interrupted", "say"],
)
def test_handlers_may_use_processes_sockets_threads_and_signals(rig: Rig, tmp_path: Path, what: str) -> None:
    worker = rig.start()
    ended = rig.run(worker, [do(1, what, path_in(tmp_path, "out")), *noops(2, 2)])
    assert set(ended.values()) == {"completed"}
    assert set(rig.run(worker, noops(5)).values()) == {"completed"}
    assert rig.stop(worker) == 0


def test_programs_that_a_handler_starts_have_the_usual_signals(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start()
    rig.run(worker, [do(1, "child signals", path_in(tmp_path, "out"))])
    assert (
        (tmp_path / "out").read_text().split("\n")[0].startswith("0 <built-in function default_int_handler>")
    )


def test_workers_draw_different_random_numbers(rig: Rig, tmp_path: Path) -> None:
    workers = [rig.start() for _ in range(4)]
    for worker in workers:
        rig.run(worker, [do(1, "draws", path_in(tmp_path, f"draw{worker.number}"))])
    draws = [path.read_text().split() for path in tmp_path.glob("draw*")]
    assert len({draw[0] for draw in draws}) == len({draw[1] for draw in draws}) == 4


def test_unreadable_unknown_and_unfitting_jobs_fail_alone(rig: Rig) -> None:
    worker = rig.start()
    bad = [
        b'[1,"noop",{"n":"\\ud800"},1,7,25,null]',
        b"not json",
        b'{"a":1}',
        b'[4,"noop",' + b"[" * 5000 + b"]" * 5000 + b",1,8,25,null]",
        body(5, "missing", {}),
        body(6, "noop", {"n": "five"}),
        body(7, "noop", {"n": 1}, extra={"tags": 5}),
        body(1 << 63, "noop", {"n": 1}),
    ]
    ended = rig.run(worker, [*bad, *noops(2, 9)])
    assert [ended[i] for i in (8, 9)] == ["completed", "completed"]
    assert all(ended[i][4] == "fail" for i in range(8))
    assert ended[0][1:4] == [1, 7, "noop"]
    assert ended[3][1:4] == [4, 8, "noop"]
    assert "'missing'" in ended[4][6]["error"] and "worker_apps:registry" in ended[4][6]["error"]
    assert "n" in ended[5][6]["error"]


@pytest.mark.parametrize(
    ("what", "status"), [("os._exit", 3), ("SIGKILL", -signal.SIGKILL), ("segfault", -signal.SIGSEGV)]
)
def test_the_page_of_a_crashed_worker_says_exactly_what_ran(rig: Rig, what: str, status: int) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(worker, [*noops(3), do(9, what), *noops(5, 10)])
    rig.until(lambda: worker.process.exitcode is not None, "the crash")
    assert worker.process.exitcode == status
    assert worker.page().started() == [[receipt_id, 0b1111, 0b111]]
    (running,) = worker.page().running
    assert (running.receipt_id, running.nonce, running.index) == (receipt_id, -receipt_id, 3)
    assert (running.job_id, running.run_lease, running.kind) == (9, 1, "do")


def test_the_page_of_a_crashed_worker_tells_what_ended_otherwise_from_what_it_died_of(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(
        worker, [*noops(2), do(7, "terminal"), do(8, "snooze"), do(9, "SIGKILL"), *noops(5, 10)]
    )
    rig.until(lambda: worker.process.exitcode is not None, "the crash")
    # Not among the started ones: their results are on the way, or they run again without an attempt used.
    assert worker.page().started() == [[receipt_id, 0b10011, 0b11]]


def test_results_are_sent_again_to_a_restarted_finalizer_and_forgotten_when_committed(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(worker, noops(5))
    rig.until(lambda: len(rig.ended(receipt_id)) == 5, "results")
    rig.results.clear()
    rig.restart_finalizer()
    worker.pipe.send(ActorReplaced("finalizer"))
    rig.until(lambda: len(rig.ended(receipt_id)) == 5, "results once more")
    peer, message = rig.results[-1]
    assert rig.ended(receipt_id) and worker.page().started() == [[receipt_id, 0b11111, 0b11111]]
    for _ in range(3):  # the same acknowledgement may come any number of times
        rig.finalizer.send(peer, ResultsCommitted(message.seq))
    rig.until(lambda: worker.page().started() == [], "the journal to be released")
    assert set(rig.run(worker, noops(2)).values()) == {"completed"}


def test_results_are_sent_again_by_time_alone(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(worker, noops(2))
    rig.until(lambda: len(rig.results) >= 3, "results to come three times")
    assert len({message.seq for _, message in rig.results}) == 1
    assert {message.receipt_id for _, message in rig.results} == {receipt_id}


def test_a_worker_whose_results_nobody_commits_stops_starting(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    for _ in range(70):
        rig.hand(worker, noops(63))
    rig.until(lambda: worker.page().jobs_done >= 4096, "the bound")
    rig.until(lambda: (stats := worker.said(Stats)) and stats.figures["jobs"] >= 4096, "stats")
    assert worker.page().jobs_done < 70 * 63
    rig.acknowledging = True
    rig.until(lambda: worker.page().jobs_done == 70 * 63, "the rest", 40)


def test_unstarted_attempts_are_recalled_and_running_ones_are_not(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start()
    gate = path_in(tmp_path, "gate")
    receipt_id = rig.hand(worker, [*noops(1), do(5, "wait for file, reading mail", gate), *noops(3, 10)])
    other = rig.hand(worker, noops(4))
    until(lambda: os.path.exists(gate + ".started"), "the handler")
    rig.recall(worker, receipt_id, 0b01111)
    rig.recall(worker, other, 0b1111)
    rig.until(lambda: len(rig.heard(Recalled, worker)) == 2, "the answers")  # else they race with the file
    open(gate, "w").close()
    assert rig.heard(Recalled, worker) == [Recalled(receipt_id, 0b01100), Recalled(other, 0b1111)]
    rig.until(lambda: len(rig.ended(receipt_id)) == 3, "the rest")
    assert set(rig.ended(receipt_id)) == {0, 1, 4}
    rig.hand(worker, noops(4), receipt=other)
    rig.until(lambda: len(rig.ended(other)) == 4, "recalled attempts handed out again")


def test_a_handover_that_comes_twice_runs_once(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start()
    gate = path_in(tmp_path, "gate")
    receipt_id = rig.hand(worker, [do(5, "wait for file", gate), *noops(3)])
    rig.hand(worker, [do(5, "wait for file", gate), *noops(3)], receipt=receipt_id)
    until(lambda: os.path.exists(gate + ".started"), "the handler")
    rig.dispatcher.send(worker.peer(), AskHolding(4))
    open(gate, "w").close()
    rig.until(lambda: rig.ran(worker, receipt_id) == 0b1111, "all")
    rig.until(lambda: worker.said(Stats), "stats")
    assert worker.page().jobs_done == 4
    (holding,) = rig.until(lambda: rig.heard(Holding, worker), "the audit's answer")
    assert holding.audit == 4


def test_a_cancel_reaches_a_running_handler_and_spares_an_unstarted_one_the_run(
    rig: Rig, tmp_path: Path
) -> None:
    worker = rig.start()
    path = path_in(tmp_path, "started")
    receipt_id = rig.hand(worker, [do(5, "until cancelled", path), *noops(2, 6)])
    until(lambda: os.path.exists(path), "the handler")
    rig.dispatcher.send(worker.peer(), CancelJob(6, 1))
    rig.dispatcher.send(worker.peer(), CancelJob(5, 1))
    rig.until(lambda: len(rig.ended(receipt_id)) == 3, "the end")
    ended = rig.ended(receipt_id)
    assert (ended[0], ended[1][4], ended[2]) == ("completed", "cancel", "completed")


def test_a_drain_finishes_what_runs_and_gives_back_the_rest(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start()
    gate = path_in(tmp_path, "gate")
    receipt_id = rig.hand(worker, [do(5, "wait for file", gate), *noops(3)])
    until(lambda: os.path.exists(gate + ".started"), "the handler")
    worker.pipe.send(Stop(20.0, "test"))
    open(gate, "w").close()
    rig.until(lambda: worker.process.exitcode is not None, "the end")
    rig.pump()
    assert worker.process.exitcode == 0
    assert rig.ended(receipt_id) == {0: "completed"}
    assert rig.heard(Recalled, worker) == [Recalled(receipt_id, 0b1110)]


def test_a_drain_ends_when_its_time_is_over_though_nobody_commits(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(worker, noops(3))
    rig.until(lambda: len(rig.ended(receipt_id)) == 3, "results")
    assert rig.stop(worker, drain_s=0.3) == 0
    assert worker.page().started() == [[receipt_id, 0b111, 0b111]]


def test_stop_now_and_a_closed_pipe_end_a_worker_at_once(rig: Rig) -> None:
    worker, left_alone = rig.start(), rig.start()
    worker.pipe.send(StopNow("test"))
    left_alone.pipe.close()
    until(lambda: worker.process.exitcode is not None, "the first")
    until(lambda: left_alone.process.exitcode is not None, "the second")
    assert (worker.process.exitcode, left_alone.process.exitcode) == (0, 3)


def test_signals_to_the_whole_group_do_not_disturb_a_worker(rig: Rig, tmp_path: Path) -> None:
    worker = rig.start()
    pid = worker.process.pid
    assert pid is not None and os.getpgid(pid) == pid
    gate = path_in(tmp_path, "gate")
    receipt_id = rig.hand(worker, [do(5, "wait for file", gate), *noops(3)])
    until(lambda: os.path.exists(gate + ".started"), "the handler")
    for signum in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGWINCH,
        signal.SIGSTOP,
        signal.SIGCONT,
        signal.SIGUSR1,
    ):
        os.killpg(pid, signum)
    open(gate, "w").close()
    rig.until(lambda: len(rig.ended(receipt_id)) == 4, "the end")
    assert set(rig.ended(receipt_id).values()) == {"completed"}
    assert rig.stop(worker) == 0


def test_a_dispatcher_that_was_replaced_learns_what_is_held(rig: Rig) -> None:
    worker = rig.start()
    rig.acknowledging = False
    receipt_id = rig.hand(worker, noops(3))
    rig.until(lambda: len(rig.ended(receipt_id)) == 3, "results")
    worker.pipe.send(ActorReplaced("dispatcher"))
    rig.until(lambda: len(rig.heard(WorkerReady, worker)) == 2, "the greeting")
    assert rig.heard(WorkerReady, worker)[1].holding == [[receipt_id, 0b111]]


def test_garbage_on_the_wire_harms_nobody(rig: Rig) -> None:
    worker = rig.start()
    socket = rig.dispatcher.socket
    for frames in (
        [],
        [b"RunJobs"],
        [b"RunJobs", b"{"],
        [b"RunJobs", b"[1]"],
        [b"Nonsense", b"[]"],
        [b"\xff", b"[]"],
    ):
        socket.send_multipart([worker.peer(), *frames])
    assert set(rig.run(worker, noops(2)).values()) == {"completed"}


def test_an_app_that_cannot_be_loaded_is_reported_by_the_worker(rig: Rig) -> None:
    worker = rig.launch(app="worker_apps:nothing_here")
    fatal = until(lambda: worker.said(Fatal), "the report")
    assert "'worker_apps:nothing_here': module 'worker_apps' has no 'nothing_here'" in fatal.reason
    until(lambda: worker.process.exitcode is not None, "the end")
    assert worker.process.exitcode == 1
