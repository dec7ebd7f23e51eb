"""Dispatcher and finalizer as they run: own processes, real sockets, a real database, played workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from actors_rig import Rig

from awa_pool.messages import ActorReplaced, Idle, Stats, WorkerGone

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(dsn: str) -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**settings: Any) -> Rig:
        rigs.append(Rig(dsn, **settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def test_jobs_are_claimed_handed_over_completed_and_acknowledged(make_rig: MakeRig):
    rig = make_rig()
    worker = rig.worker()
    ids = rig.enqueue(50)
    rig.work_until(lambda: rig.states() == {"completed": 50} and not worker.kept)
    assert sorted(worker.ran) == ids
    assert rig.dispatcher.stop() == 0 and rig.finalizer.stop() == 0
    figures = [m.figures for m in rig.finalizer.heard if isinstance(m, Stats)][-1]
    assert figures["ended"] == {"kind": {"completed": 50}}


def test_a_waiting_pool_is_woken_by_a_notification_before_its_poll(make_rig: MakeRig):
    rig = make_rig(poll_interval_s=600.0)
    worker = rig.worker()
    rig.work_until(lambda: bool(rig.sql("select 1 from awa_pool.queue_waiters where until > now() + '5 s'")))
    rig.enqueue(1)
    rig.work_until(lambda: len(worker.ran) == 1)


def test_a_new_dispatcher_gives_back_what_nobody_holds_and_leaves_workers_theirs(make_rig: MakeRig):
    rig = make_rig()
    first, second = rig.worker(), rig.worker()
    rig.enqueue(6)
    rig.work_until(lambda: bool(first.waiting and second.waiting), work=False)
    rig.dispatcher.kill()
    kept = [body[0] for _, _, body in first.waiting]
    second.waiting.clear()  # as if it had died with the dispatcher
    rig.dispatcher = rig.start("dispatcher")
    for worker in (first, second):
        worker.say_ready()
    rig.work_until(lambda: rig.states() == {"completed": 6})
    assert set(kept) <= set(first.ran)
    assert sorted(first.ran + second.ran) == sorted(set(first.ran + second.ran))
    assert set(first.attempts + second.attempts) == {1}


def test_results_that_a_dead_finalizer_had_not_stored_are_stored_by_the_next_once(make_rig: MakeRig):
    rig = make_rig()
    worker = rig.worker()
    rig.enqueue(20)
    rig.work_until(lambda: len(worker.waiting) > 0, work=False)
    rig.finalizer.kill()
    while worker.work():
        worker.listen()
    assert worker.kept
    rig.finalizer = rig.start("finalizer")
    rig.dispatcher.pipe.send(ActorReplaced("finalizer"))
    rig.work_until(lambda: rig.states() == {"completed": 20} and not worker.kept)
    assert len(worker.ran) == 20


def test_a_dead_workers_attempts_end_as_its_page_told(make_rig: MakeRig):
    rig = make_rig(workers=2)
    victim = rig.worker()
    for _ in range(3):  # the kind is known to be short, so that a chunk of several is handed over
        rig.enqueue(10)
        rig.work_until(lambda: not rig.states().keys() - {"completed"})
    ids = rig.enqueue(9)
    rig.work_until(lambda: len(victim.waiting) >= 3, work=False)
    rows = victim.waiting[:2]
    started: dict[int, list[int]] = {}
    for number, (jobs, index, _) in enumerate(rows):
        row = started.setdefault(jobs.receipt_id, [jobs.receipt_id, 0, 0])
        row[1] |= 1 << index
        row[2] |= (1 << index) * (number == 0)
    completed, lost = (body[0] for _, _, body in rows)
    victim.dead = True
    gone = WorkerGone(
        1, victim.incarnation, "killed by signal 9 (SIGKILL)", list(started.values()), "handler"
    )
    rig.dispatcher.pipe.send(gone)
    heir = rig.worker()
    rig.work_until(lambda: rig.states() == {"completed": 38, "retryable": 1})
    assert sorted(heir.ran) == sorted(set(ids) - {completed, lost})
    assert set(heir.attempts) == {1}
    ((errors,),) = rig.sql("select errors from awa_pool.jobs where id = %s", lost)
    assert "SIGKILL" in errors[-1]["error"]


def test_cut_database_sessions_cost_no_attempt_and_no_job(make_rig: MakeRig):
    rig = make_rig()
    worker = rig.worker()
    for _ in range(4):
        rig.enqueue(25)
        worker.listen(0.01)
        rig.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'awa-pool %%'"
        )
    rig.work_until(lambda: rig.states() == {"completed": 100} and not worker.kept)
    assert set(worker.attempts) == {1}


def test_a_draining_pool_says_when_nothing_is_left(make_rig: MakeRig):
    rig = make_rig(drain=True)
    rig.worker()
    rig.enqueue(5)
    rig.sql("select awa_pool.enqueue('kind', '{}', p_run_at => now() + '1 hour')")
    rig.work_until(lambda: rig.states() == {"completed": 5, "scheduled": 1})
    idle = rig.dispatcher.wait_for(Idle)
    assert idle == Idle(1)


def test_a_stop_gives_back_what_has_not_started_and_uses_no_attempt(make_rig: MakeRig):
    rig = make_rig()
    worker = rig.worker()
    rig.enqueue(40)
    rig.work_until(lambda: bool(worker.waiting), work=False)
    assert rig.dispatcher.stop(drain_s=0.2) == 0
    assert rig.finalizer.stop() == 0
    assert rig.states() == {"available": 40}
    assert rig.sql("select distinct attempt from awa_pool.jobs") == [(0,)]


def test_no_more_of_a_queue_is_in_flight_than_its_limit(make_rig: MakeRig):
    rig = make_rig(queues=[["default", 2]], workers=3)
    workers = [rig.worker() for _ in range(3)]
    rig.enqueue(12)
    rig.work_until(lambda: sum(len(worker.waiting) for worker in workers) == 2, work=False)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, sum(len(worker.waiting) for worker in workers))
        return rig.states() == {"completed": 12}

    rig.work_until(done)
    assert most <= 2


def test_noise_on_the_sockets_ends_nobody(make_rig: MakeRig):
    rig = make_rig()
    worker = rig.worker()
    for wire in (worker.to_dispatcher, worker.to_finalizer):
        for frames in (
            [b""],
            [b"RunJobs", b"{}"],
            [b"AttemptsRan", b"[1,2"],
            [b"Holding", b'[1,[["x"]]]'],
            [b"\xff"] * 3,
        ):
            wire.socket.send_multipart(frames)
    rig.enqueue(3)
    rig.work_until(lambda: rig.states() == {"completed": 3})
