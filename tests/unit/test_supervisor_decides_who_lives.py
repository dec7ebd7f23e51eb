from __future__ import annotations

import signal

from supervisor_rig import Rig, account, finished, killed, started, told

from awa_pool.messages import (
    ActorReplaced,
    Drained,
    Idle,
    Ready,
    Retire,
    Stats,
    Stop,
    StopNow,
    WorkerGone,
    Worn,
)
from awa_pool.supervisor import events as ev
from awa_pool.supervisor.places import FIRST_DELAY_S, MOST_FAILURES, Life
from awa_pool.supervisor.recycling import IDLE_GRACE_S
from awa_pool.supervisor.stopping import CLOSE_S


def test_everybody_is_started_and_told_their_settings() -> None:
    rig = Rig(workers=3)
    assert sorted(started(rig.commands)) == [
        ("dispatcher", 0), ("finalizer", 0), ("maintenance", 0), ("worker", 1), ("worker", 2), ("worker", 3),
    ]  # fmt: skip
    assert len([c for c in rig.commands if isinstance(c, ev.Instruct)]) == 6
    assert len({c.incarnation for c in rig.commands if isinstance(c, ev.Start)}) == 6


def test_actors_wait_for_the_facts_of_the_first_ready_worker() -> None:
    rig = Rig(facts_known=False)
    assert rig.child("dispatcher").life is Life.UNINSTRUCTED
    rig.ready("worker", 1)
    settle = [c for c in rig.commands if isinstance(c, ev.Settle)]
    assert [c.facts for c in settle] == [{"queues": ["default"]}]
    rig.ready("worker", 2)
    assert len([c for c in rig.commands if isinstance(c, ev.Settle)]) == 1
    rig.feed(ev.FactsSettled())
    assert rig.child("dispatcher").life is Life.BOOTING


def test_a_worker_killed_by_its_job_is_replaced_at_once_however_often() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    for _ in range(20):
        child = rig.child("worker", 1)
        out = rig.dies(child, signal=signal.SIGSEGV, worked=True, account=account(child))
        assert started(out) == [("worker", 1)]
        rig.ready("worker", 1)
    assert finished(rig.commands) == []


def test_the_dispatcher_hears_what_a_dead_worker_had_started_and_siblings_are_left_alone() -> None:
    rig = Rig(workers=2)
    rig.all_ready()
    child = rig.child("worker", 1)
    news = account(child)
    out = rig.dies(child, signal=9, worked=True, account=news)
    assert ev.Tell(rig.child("dispatcher").incarnation, news) in out
    assert killed(out) == []
    assert rig.child("worker", 2).life is Life.READY


def test_failing_boots_are_tried_again_with_growing_pauses_until_the_pool_gives_up() -> None:
    rig = Rig(workers=1)
    for role in ev.ACTORS:
        rig.ready(role)
    rig.ready("worker", 1)
    rig.dies(rig.child("worker", 1), signal=9, worked=True)
    pauses, last_s = [], rig.now_s
    for _ in range(MOST_FAILURES - 1):
        assert rig.dies(rig.child("worker", 1), "exited with status 3") and not finished(rig.commands)
        while rig.core.workers()[0].child is None:
            rig.live(0.5)
        pauses.append(rig.now_s - last_s)
        last_s = rig.now_s
    assert pauses == sorted(pauses) and pauses[-1] > 4 * FIRST_DELAY_S
    out = rig.dies(rig.child("worker", 1), "exited with status 3")
    assert any(
        isinstance(c, ev.Log) and "exited with status 3" in c.text and "in a row" in c.text for c in out
    )
    for role in ("dispatcher", "finalizer", "maintenance"):
        rig.drains(rig.child(role))
    assert finished(rig.commands) == [1]


def test_one_worker_that_cannot_boot_does_not_end_a_pool_in_which_another_works() -> None:
    rig = Rig(workers=2)
    rig.all_ready()
    rig.dies(rig.child("worker", 1), signal=9, worked=True)
    for _ in range(MOST_FAILURES + 2):
        while rig.core.workers()[0].child is None:
            rig.live(0.5)
        rig.dies(rig.child("worker", 1))
    assert finished(rig.commands) == [] and rig.core.stopping is None


def test_an_app_that_cannot_be_loaded_at_all_ends_the_pool_at_once_with_the_reason() -> None:
    rig = Rig(workers=1)
    out = rig.fatal(rig.child("worker", 1), "cannot load app 'shop:client'")
    assert any(isinstance(c, ev.Log) and "shop:client" in c.text for c in out)
    for role in ev.ACTORS:
        rig.dies(rig.child(role), signal=9)
    assert finished(rig.commands) == [2]


def test_a_boot_that_hangs_is_killed_at_its_deadline_and_tried_again() -> None:
    rig = Rig(workers=1, boot_timeout_s=10.0)
    for role in ev.ACTORS:
        rig.ready(role)
    child = rig.child("worker", 1)
    assert killed(rig.live(9.0)) == []
    assert killed(rig.live(2.0)) == [child.incarnation]
    rig.dies(child, signal=9)
    assert started(rig.live(1.0)) == [("worker", 1)]


def test_a_silent_actor_is_killed_and_its_successor_is_announced() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    old = rig.child("finalizer")
    for _ in range(14):
        rig.wait(0.5)
        rig.alive("dispatcher", "maintenance")
    assert old.incarnation in killed(rig.commands)
    rig.dies(old, signal=9)
    rig.commands.clear()
    rig.ready("finalizer")
    assert set(told(rig.commands, ActorReplaced)) == {
        rig.child("worker", 1).incarnation, rig.child("dispatcher").incarnation,
    }  # fmt: skip


def test_a_new_dispatcher_is_told_of_the_recent_deaths() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.dies(rig.child("dispatcher"), signal=9)
    child = rig.child("worker", 1)
    rig.dies(child, signal=9, worked=True, account=account(child))
    assert told(rig.commands, WorkerGone) == []
    new = rig.ready("dispatcher")
    assert told(rig.commands, WorkerGone) == [new.incarnation]


def test_silence_is_forgiven_when_the_supervisor_itself_stood_still() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.now_s += 60.0  # stopped and continued, or the machine slept
    assert killed(rig.feed(ev.Tick())) == []
    rig.alive()
    assert killed(rig.live(4.0)) == []


def test_a_worker_may_be_silent_as_long_as_its_handler_runs() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    assert killed(rig.live(120.0)) == []


def test_a_stop_signal_drains_workers_then_dispatcher_then_finalizer() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    stopped = told(rig.commands, Stop)
    assert rig.child("worker", 1).incarnation in stopped and rig.child("dispatcher").incarnation in stopped
    assert rig.child("finalizer").incarnation not in stopped
    rig.drains(rig.child("worker", 1))
    rig.drains(rig.child("maintenance"))
    assert rig.child("finalizer").incarnation not in told(rig.commands, Stop)
    rig.drains(rig.child("dispatcher"))
    assert rig.child("finalizer").incarnation in told(rig.commands, Stop)
    rig.drains(rig.child("finalizer"))
    assert finished(rig.commands) == [0]
    assert killed(rig.commands) == []


def test_with_no_worker_left_the_dispatcher_need_not_wait_for_the_time_to_drain() -> None:
    rig = Rig(workers=1, drain_timeout_s=600.0)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    dispatcher = rig.child("dispatcher").incarnation
    out = rig.drains(rig.child("worker", 1))
    (stop,) = [c.message for c in out if isinstance(c, ev.Tell) and c.incarnation == dispatcher]
    assert isinstance(stop, Stop) and stop.drain_s < 10.0 < stop.away_s <= 600.0


def test_what_is_not_ready_when_the_pool_stops_is_killed() -> None:
    rig = Rig(workers=2)
    rig.feed(ev.SignalCame(signal.SIGINT, "SIGINT"))
    assert len(killed(rig.commands)) == 5
    for child in rig.core.children():
        rig.dies(child, signal=9)
    rig.wait(0.1)
    assert finished(rig.commands) == [0]


def test_jobs_cut_at_the_drain_timeout_use_no_attempt() -> None:
    rig = Rig(workers=1, drain_timeout_s=5.0)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    child = rig.child("worker", 1)
    assert told(rig.live(4.5), StopNow) == []
    assert told(rig.live(1.0), StopNow) == [child.incarnation]
    assert killed(rig.live(1.5)) == [child.incarnation]
    out = rig.dies(child, signal=9, worked=True, account=account(child, 7, 0b11, 0b01))
    news = [c.message for c in out if isinstance(c, ev.Tell) and isinstance(c.message, WorkerGone)]
    assert [n.started for n in news] == [[[7, 0b01, 0b01]]]


def test_a_second_signal_cuts_everything_within_seconds() -> None:
    rig = Rig(workers=1, drain_timeout_s=600.0)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGINT, "SIGINT"))
    worker = rig.child("worker", 1)
    assert rig.feed(ev.SignalCame(signal.SIGINT, "SIGINT")) == []  # to the process and to its group: one stop
    rig.wait(1.0)
    assert killed(rig.feed(ev.SignalCame(signal.SIGINT, "SIGINT"))) == [worker.incarnation]
    rig.dies(worker, signal=9, worked=True)
    while not finished(rig.commands) and rig.now_s < 1010.0:
        rig.wait(0.25)
        for child in rig.core.children():
            if child.killed_for:
                rig.dies(child, signal=9)
    assert finished(rig.commands) == [130]


def test_a_finalizer_lost_during_the_drain_is_replaced_while_results_may_come() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    out = rig.dies(rig.child("finalizer"), signal=9)
    assert started(out) == [("finalizer", 0)]
    rig.ready("finalizer")
    assert rig.child("worker", 1).incarnation in told(rig.commands, ActorReplaced)
    assert started(rig.dies(rig.child("worker", 1), signal=9, worked=True)) == []


def test_a_dispatcher_lost_on_the_way_out_has_a_successor_that_gives_back_what_it_held() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(15, "SIGTERM"))
    assert started(rig.dies(rig.child("dispatcher"), signal=9)) == [("dispatcher", 0)]
    rig.drains(rig.child("worker", 1))
    new = rig.ready("dispatcher")
    assert told(rig.commands, Stop)[-1] == new.incarnation
    assert finished(rig.commands) == []
    rig.drains(new)
    rig.drains(rig.child("finalizer"))
    rig.drains(rig.child("maintenance"))
    assert finished(rig.commands) == [0]


def test_a_dispatcher_whose_seat_is_empty_when_the_pool_stops_is_started_then_or_never() -> None:
    for worked in (True, False):
        rig = Rig(workers=1)
        if worked:
            rig.ready("worker", 1)
        rig.dies(rig.child("dispatcher"))
        rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
        rig.wait(2.0)
        assert (rig.core.child_of("dispatcher") is not None) is worked


def test_a_dispatcher_that_leaves_too_late_or_dies_after_a_second_signal_has_no_successor() -> None:
    for hard in (False, True):
        rig = Rig(workers=1)
        rig.all_ready()
        rig.feed(ev.SignalCame(15, "SIGTERM"))
        rig.drains(rig.child("worker", 1))
        dispatcher = rig.child("dispatcher")
        if hard:
            rig.wait(1.0)
            rig.feed(ev.SignalCame(15, "SIGTERM"))
        else:
            rig.live(CLOSE_S + 1)
            assert dispatcher.incarnation in killed(rig.commands)
        assert started(rig.dies(dispatcher, signal=9)) == []


def test_a_pool_that_could_not_store_its_last_results_does_not_end_with_zero() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    for role, number in (("worker", 1), ("maintenance", 0), ("dispatcher", 0)):
        rig.drains(rig.child(role, number))
    finalizer = rig.child("finalizer")
    assert killed(rig.wait(12.0)) == [finalizer.incarnation]
    rig.dies(finalizer, signal=9)
    assert finished(rig.commands) == [1]


def test_a_finalizer_that_leaves_with_results_unstored_is_told_in_the_exit_status() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    for role, number in (("worker", 1), ("maintenance", 0), ("dispatcher", 0)):
        rig.drains(rig.child(role, number))
    finalizer = rig.child("finalizer")
    rig.says(finalizer, Stats("finalizer", finalizer.incarnation, {"held_jobs": 3}))
    out = rig.drains(finalizer)
    assert any(isinstance(c, ev.Log) and c.text.startswith("3 results were not stored") for c in out)
    assert finished(rig.commands) == [1]


def test_a_dispatcher_that_leaves_with_jobs_in_hand_is_told_in_the_exit_status() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    for role, number in (("worker", 1), ("maintenance", 0)):
        rig.drains(rig.child(role, number))
    dispatcher = rig.child("dispatcher")
    out = rig.says(dispatcher, Drained("dispatcher", dispatcher.incarnation, 2))
    assert any(isinstance(c, ev.Log) and c.text.startswith("2 claimed jobs could not be given") for c in out)
    rig.dies(dispatcher, "exited", status=0)
    rig.drains(rig.child("finalizer"))
    assert finished(rig.commands) == [1]


def test_the_dispatcher_gives_jobs_back_only_after_their_workers_were_cut() -> None:
    rig = Rig(workers=1, drain_timeout_s=5.0)
    rig.all_ready()
    out = rig.feed(ev.SignalCame(signal.SIGTERM, "SIGTERM"))
    drains = {
        c.incarnation: c.message.drain_s
        for c in out
        if isinstance(c, ev.Tell) and isinstance(c.message, Stop)
    }
    assert drains[rig.child("dispatcher").incarnation] > drains[rig.child("worker", 1).incarnation] == 5.0


def test_an_idle_dispatcher_ends_a_draining_pool() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    out = rig.says(rig.child("dispatcher"), Idle(3, parked=1))
    (line,) = [c.text for c in out if isinstance(c, ev.Log) and "drained" in c.text]
    assert "3 wait for their time" in line and "1 wait for the answer to a callback" in line
    assert not any(isinstance(c, ev.Log) and c.level == "warning" for c in out)
    assert rig.child("worker", 1).incarnation in told(out, Stop)


def test_queues_asked_for_are_told_and_those_that_nothing_knows_are_warned_of_once() -> None:
    rig = Rig(workers=2, queues=("default", "mial", "new"))
    assert not any(isinstance(c, ev.Log) and "serving" in c.text for c in rig.commands)
    rig.all_ready()
    assert [c.text for c in rig.commands if isinstance(c, ev.Log) and "serving" in c.text] == [
        "serving default, mial, new"
    ]
    assert len([c for c in rig.commands if isinstance(c, ev.AskKnownQueues)]) == 1
    out = rig.feed(ev.QueuesKnown(("mail", "new")))
    assert out == [ev.Log("warning", "no task, job or setting knows the queue 'mial': did you mean 'mail'?")]
    out = rig.says(rig.child("dispatcher"), Idle(0, ["mial"]))
    assert not any(isinstance(c, ev.Log) and c.level == "warning" for c in out)


def test_a_drain_that_is_faster_than_the_database_warns_all_the_same_but_not_of_the_apps_own_queues() -> None:
    rig = Rig(workers=1, queues=("default", "mial"))
    rig.all_ready()
    out = rig.says(rig.child("dispatcher"), Idle(0, ["default", "mial"]))
    assert [c.text for c in out if isinstance(c, ev.Log) and c.level == "warning"] == [
        "no task, job or setting knows the queue 'mial': is it misspelt?"
    ]


def test_a_pool_of_the_apps_own_queues_asks_nobody() -> None:
    for queues in ((), ("default",)):
        rig = Rig(workers=1, queues=queues)
        rig.all_ready()
        assert not any(isinstance(c, ev.AskKnownQueues) for c in rig.commands)
        out = rig.says(rig.child("dispatcher"), Idle(0, ["default"]))
        assert not any(isinstance(c, ev.Log) and c.level == "warning" for c in out)


def test_a_refused_schema_ends_the_pool_with_status_two() -> None:
    rig = Rig(workers=1)
    rig.feed(ev.Refused("run: awa-pool migrate"))
    for child in rig.core.children():
        rig.dies(child, signal=9)
    rig.wait(0.1)
    assert finished(rig.commands) == [2]


def test_a_rescued_runtime_ends_its_handlers_and_begins_anew() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    worker, dispatcher = rig.child("worker", 1), rig.child("dispatcher")
    out = rig.feed(ev.RuntimeLost())
    assert any(isinstance(c, ev.TakeNewRuntime) for c in out)
    assert {worker.incarnation, dispatcher.incarnation} <= set(killed(out))
    out = rig.dies(worker, signal=9, worked=True, account=account(worker))
    assert started(out) == [("worker", 1)] and told(out, WorkerGone) == []


def test_a_worn_worker_goes_only_when_its_successor_is_ready() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    old = rig.child("worker", 1)
    assert started(rig.says(old, Worn(old.incarnation, 100))) == [("worker", 1)]
    assert started(rig.says(old, Worn(old.incarnation, 100))) == []
    assert told(rig.commands, Stop) == []
    rig.commands.clear()
    new = rig.ready("worker", 1)
    assert new.incarnation != old.incarnation
    assert told(rig.commands, Retire) == [rig.child("dispatcher").incarnation]
    assert told(rig.commands, Stop) == [old.incarnation]
    assert started(rig.drains(old)) == []


def test_a_pool_whose_only_worker_is_worn_gives_up_when_no_successor_boots() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    old = rig.child("worker", 1)
    rig.says(old, Worn(old.incarnation, 100))
    for _ in range(MOST_FAILURES):
        rig.dies(rig.child("worker", 1), "exited with status 1")
        rig.live(40.0)
    assert rig.core.stopping is not None and rig.core.stopping.status == 1
    assert "worker 1 failed" in rig.core.gave_up


def test_a_retiring_worker_has_all_the_time_its_jobs_need_and_little_more() -> None:
    rig = Rig(workers=1)
    rig.all_ready()
    old = rig.child("worker", 1)
    rig.says(old, Worn(old.incarnation, 100))
    rig.ready("worker", 1)
    for _ in range(100):  # an hour and a half
        rig.live(IDLE_GRACE_S - 5)
        rig.feed(ev.WorkerMeasured(old.incarnation, 100, 1 << 20, busy=True))
    assert killed(rig.commands) == []
    rig.live(IDLE_GRACE_S + 1)
    assert killed(rig.commands) == [old.incarnation]


def test_a_memory_cap_that_a_fresh_worker_exceeds_is_refused_with_both_numbers() -> None:  # B007
    rig = Rig(workers=1, max_rss_bytes=20 << 20)
    child = rig.child("worker", 1)
    rig.says(child, Ready("worker", child.incarnation, {"rss_bytes": 31 << 20}))
    assert rig.core.stopping is not None and rig.core.stopping.status == 2
    assert "20.0 MiB" in rig.core.gave_up and "31.0 MiB" in rig.core.gave_up


def test_a_later_worker_above_the_cap_works_and_is_warned_about() -> None:  # B007
    rig = Rig(workers=1, max_rss_bytes=1 << 20)
    rig.all_ready()
    old = rig.child("worker", 1)
    for _ in range(3):
        assert started(rig.feed(ev.WorkerMeasured(old.incarnation, 0, 50 << 20))) == []
    warnings = [c.text for c in rig.commands if isinstance(c, ev.Log) and c.level == "warning"]
    assert len(warnings) == 1 and "1.0 MiB" in warnings[0] and "50.0 MiB" in warnings[0]
    assert started(rig.feed(ev.WorkerMeasured(old.incarnation, 1, 50 << 20))) == [("worker", 1)]


def test_a_worker_that_a_signal_has_stopped_is_killed_after_its_time_and_one_that_goes_on_is_not() -> None:
    rig = Rig(workers=2, frozen_s=6.0)
    rig.all_ready()
    first, second = rig.child("worker", 1), rig.child("worker", 2)
    both, one = frozenset({first.incarnation, second.incarnation}), frozenset({first.incarnation})
    rig.feed(ev.ChildrenStopped(both))
    assert [c for c in rig.commands if isinstance(c, ev.Log) and "stopped by a signal" in c.text]
    rig.live(4.0)
    rig.feed(ev.ChildrenStopped(one))
    assert killed(rig.commands) == []
    rig.live(3.0)
    assert killed(rig.commands) == [first.incarnation]
    assert first.killed_for == "was stopped by a signal for 6 s"


def test_the_time_that_the_supervisor_itself_stood_still_is_not_held_against_a_stopped_worker() -> None:
    rig = Rig(workers=1, frozen_s=6.0)
    rig.all_ready()
    rig.feed(ev.ChildrenStopped(frozenset({rig.child("worker", 1).incarnation})))
    rig.now_s += 60.0
    rig.feed(ev.Tick())
    assert killed(rig.commands) == []


def test_an_actor_that_is_stopped_while_it_boots_is_noticed_within_seconds() -> None:
    rig = Rig(workers=1, boot_timeout_s=30.0)
    dispatcher = rig.child("dispatcher")
    rig.feed(ev.ChildrenStopped(frozenset({dispatcher.incarnation})))
    rig.wait(6.0)
    assert killed(rig.commands) == [dispatcher.incarnation]


def test_workers_that_never_become_ready_end_the_pool_with_the_name_of_the_app() -> None:
    """B005."""
    rig = Rig(workers=1, boot_timeout_s=2.0, app="shop.jobs:client")
    for role in ev.ACTORS:
        rig.ready(role)
    for _ in range(MOST_FAILURES):
        child = rig.child("worker", 1)
        rig.wait(2.6)
        rig.alive()
        assert child.killed_for == "was not ready after 2 s"
        rig.dies(child, signal=signal.SIGKILL)
        for _ in range(80):
            if rig.core.stopping is None and rig.core.workers()[0].child is None:
                rig.live(0.5)
    assert rig.core.gave_up == (
        f"worker 1 of shop.jobs:client failed {MOST_FAILURES} times in a row: was not ready after 2 s"
    )
