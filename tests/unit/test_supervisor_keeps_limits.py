"""When a worker is ended for one of its attempts, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

from supervisor_rig import Rig

from awa_pool.messages import AttemptCancelled, WorkerGone
from awa_pool.supervisor import events as ev
from awa_pool.supervisor.limits import Attempt, Held, Limits
from awa_pool.supervisor.places import Child

LATE = "deadline_exceeded"


def held(index: int = 0, *, deadline_s: float = 0.0, grace_s: float = 4.0, cancel_kill: bool = True) -> Held:
    return Held(Attempt(7, -7, index), 100 + index, "work", deadline_s, grace_s, cancel_kill)


def seen(limits: Limits, now_s: float, *attempts: Held) -> tuple[list[int], list[int]]:
    """Return the indexes to terminate for, and those to kill for."""
    verdict = limits.seen("w", attempts, alone=len(attempts) < 2, now_s=now_s)
    return [a.index for a in verdict.terminate_for], [o.held.attempt.index for o in verdict.kill_for]


def test_sigterm_comes_a_little_before_sigkill_and_each_only_when_it_is_due() -> None:
    limits, late = Limits(), held(deadline_s=10.0)
    assert seen(limits, 1.0, late) == ([], [])
    assert limits.due_s() == 13.0
    assert seen(limits, 12.9, late) == ([], [])
    assert seen(limits, 13.0, late) == ([0], [])
    assert limits.due_s() == 14.0
    assert seen(limits, 13.5, late) == ([], [])
    assert seen(limits, 14.0, late) == ([], [0])


def test_an_attempt_that_ended_in_time_leaves_nothing_behind() -> None:
    limits = Limits()
    seen(limits, 13.0, held(deadline_s=10.0))
    assert seen(limits, 14.0, held(1)) == ([], [])
    assert limits.due_s() is None and not limits.concerns("w")


def test_a_short_grace_is_shared_between_the_two_signals_and_none_kills_at_once() -> None:
    assert seen(Limits(), 10.5, held(deadline_s=10.0, grace_s=1.0)) == ([0], [])
    assert seen(Limits(), 10.0, held(deadline_s=10.0, grace_s=0.0)) == ([], [0])


def test_programs_of_attempts_beside_it_get_no_sigterm() -> None:
    limits, late, other = Limits(), held(deadline_s=10.0), held(1)
    assert seen(limits, 13.5, late, other) == ([], [])
    assert seen(limits, 14.0, late, other) == ([], [0])


def test_a_cancelled_attempt_has_its_grace_from_the_first_news_if_its_task_allows_the_kill() -> None:
    limits = Limits()
    for now_s in (1.0, 3.0):
        limits.cancelled("w", Attempt(7, -7, 0), now_s)
        limits.cancelled("w", Attempt(7, -7, 1), now_s)
    running = (held(), held(1, cancel_kill=False), held(2))
    assert seen(limits, 4.9, *running) == ([], [])
    assert seen(limits, 5.0, *running) == ([], [0])


def test_the_news_of_a_cancel_may_come_before_the_attempt_starts_and_is_forgotten_after_a_while() -> None:
    limits = Limits()
    limits.cancelled("w", Attempt(7, -7, 0), 1.0)
    seen(limits, 50.0)
    assert seen(limits, 51.0, held()) == ([], [0])
    seen(limits, 62.0)
    assert seen(limits, 63.0, held()) == ([], [])
    assert not limits.concerns("w")


def test_the_nearer_of_deadline_and_cancel_counts() -> None:
    limits = Limits()
    limits.cancelled("w", Attempt(7, -7, 0), 1.0)
    verdict = limits.seen("w", [held(deadline_s=2.0)], alone=True, now_s=5.5)
    assert [overdue.reason for overdue in verdict.kill_for] == ["cancelled"]


# --- in the supervisor ---------------------------------------------------------------------------------------


def pool() -> tuple[Rig, Child]:
    rig = Rig(workers=1)
    for role in ("dispatcher", "finalizer", "maintenance"):
        rig.ready(role)
    return rig, rig.ready("worker", 1)


def account(child: Child, started: list[Any]) -> WorkerGone:
    return WorkerGone(1, child.incarnation, "killed by signal 9 (SIGKILL)", started, "handler")


def told(commands: list[ev.Command]) -> WorkerGone:
    (news,) = [c.message for c in commands if isinstance(c, ev.Tell) and isinstance(c.message, WorkerGone)]
    assert isinstance(news, WorkerGone)
    return news


def test_a_worker_is_killed_for_its_late_attempt_which_alone_is_charged_and_replaced_at_once() -> None:
    rig, worker = pool()
    late = held(deadline_s=rig.now_s - 4.0)
    out = rig.feed(ev.LimitsSeen(worker.incarnation, (late, held(1)), alone=False))
    assert out == [ev.KillFor(worker.incarnation, (late.attempt,))]
    out = rig.feed(ev.LimitsSeen(worker.incarnation, (late, held(1)), alone=False))
    assert out == []  # it is on its way
    gone = ev.ChildExited(worker.incarnation, "killed", 9, worked=True, account=account(worker, [[7, 3, 0]]))
    out = rig.feed(gone)
    assert told(out).charged == [[7, 1, LATE]]
    assert any(isinstance(command, ev.Start) for command in out)
    assert rig.core.killed == {LATE: 1}


def test_a_worker_that_dies_of_the_sigterm_died_for_that_attempt() -> None:
    """A handler may have taken the signal's usual effect back."""
    rig, worker = pool()
    late = held(deadline_s=rig.now_s - 3.5)
    out = rig.feed(ev.LimitsSeen(worker.incarnation, (late,), alone=True))
    assert out == [ev.Terminate(worker.incarnation, late.attempt)]
    gone = ev.ChildExited(worker.incarnation, "killed", 15, worked=True, account=account(worker, [[7, 1, 0]]))
    assert told(rig.feed(gone)).charged == [[7, 1, LATE]]


def test_a_worker_that_went_on_to_the_next_attempt_is_spared() -> None:
    rig, worker = pool()
    rig.feed(ev.LimitsSeen(worker.incarnation, (held(deadline_s=rig.now_s - 4.0),), alone=True))
    rig.feed(ev.Spared(worker.incarnation))
    gone = ev.ChildExited(worker.incarnation, "killed", 9, worked=True, account=account(worker, [[7, 3, 0]]))
    assert told(rig.feed(gone)).charged == []
    assert not rig.core.killed


def test_a_cancel_ends_what_goes_on_also_during_a_drain() -> None:
    rig, worker = pool()
    rig.feed(ev.SignalCame(15, "SIGTERM"))
    dispatcher = rig.child("dispatcher")
    rig.says(dispatcher, AttemptCancelled(1, worker.incarnation, 7, -7, 0))
    rig.says(dispatcher, AttemptCancelled(9, "nobody", 7, -7, 0))
    assert rig.feed(ev.LimitsSeen(worker.incarnation, (held(),), alone=True)) == []
    rig.wait(4.0)
    out = rig.feed(ev.LimitsSeen(worker.incarnation, (held(),), alone=True))
    assert out == [ev.KillFor(worker.incarnation, (Attempt(7, -7, 0),))]
