"""Hooks are told of what was committed as the worker said it, in order, and what they do troubles nobody."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from awa_pool import Client, RegistrationError, RetryAfter, Snooze
from awa_pool.finalizer.peers import Peer
from awa_pool.hooks import Completed, JobEvent, Retried, Started, call_hooks
from awa_pool.job import Job
from awa_pool.messages import ResultsCommitted, RunJobs
from awa_pool.worker.core import LaneCore
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Arrived, Flush, TellHooks
from awa_pool.worker.output import Tags
from awa_pool.worker.telling import MOST_WAITING, Teller

DEADLINE_S = 20.0


@dataclass
class Work:
    number: int


@dataclass
class Other:
    number: int


class World:
    """An app, and a lane of a worker that runs its jobs by hand."""

    def __init__(self, *hooks: Any) -> None:
        self.client = Client("host=nowhere")
        self.client.task(Work)(_run)
        self.client.task(Other)(_run_other)
        for hook in hooks:
            self.client.on_event(Work)(hook)
        self.started: list[JobEvent] = []
        self.endings = Endings(self.client.registry, "app", Random(1), self.started.extend)
        self.lane = LaneCore(1, "w1", "sync", 1, ["work"])

    def run(self, results: list[object], kind: str = "work", receipt_id: int = 1) -> None:
        """Run as many jobs of one receipt as there are results, and send them."""
        bodies = b"\0".join(
            b'[%d,"%s",{"number":%d},1,1,3,null]' % (i, kind.encode(), i) for i in range(len(results))
        )
        message = RunJobs("q", 2, 0, receipt_id, 1, list(range(len(results))))
        self.lane.step(Arrived(message, (bodies,)), 0.0)
        piece = self.lane.take()
        assert piece is not None
        task = self.client.registry.tasks[kind]
        for index, result in enumerate(results):
            piece.todo &= ~(1 << index)
            job = self.endings.job(piece, task, index, piece.bodies[index], lambda: False)
            assert job is not None
            self.endings.settle(piece, index, job, task, self.endings.of_handler(task, 1, result, None))
        self.lane.step(Flush(piece), 0.0)

    def acknowledge(self, seq: int, stale: list[Any] | None = None) -> list[JobEvent]:
        commands = self.lane.step(Arrived(ResultsCommitted(seq, stale or [])), 0.0)
        return [event for command in commands if isinstance(command, TellHooks) for event in command.events]


def _run(job: Job[Work]) -> None: ...


def _run_other(job: Job[Other]) -> None: ...


def hook(event: JobEvent) -> None: ...


def test_nothing_is_told_before_the_acknowledgement_and_then_all_once() -> None:
    world = World(hook)
    world.run([None, RetryAfter(5), Snooze(5)])
    assert [type(event) for event in world.started] == [Started] * 3
    completed, retried = world.acknowledge(1)
    assert isinstance(completed, Completed) and completed.duration_s >= 0 and completed.args == Work(0)
    assert isinstance(retried, Retried) and (retried.job.id, retried.attempt) == (1, 1)
    assert world.acknowledge(1) == []


def test_what_was_not_so_is_told_to_nobody() -> None:
    world = World(hook)
    world.run([None, None, None], receipt_id=8)
    world.run([None, None], receipt_id=9)
    told = world.acknowledge(2, [[8, 0b101], [7, 0b111]])
    assert [event.job.id for event in told] == [1, 0, 1]


def test_a_kind_without_hooks_keeps_and_tells_nothing() -> None:
    world = World(hook)
    world.run([None, RetryAfter(5)], kind="other")
    assert world.started == [] and world.acknowledge(1) == []


def test_an_app_without_hooks_builds_jobs_as_if_there_were_none() -> None:
    endings = World().endings
    assert endings.hooked == frozenset() and endings.job == endings._job


def test_an_untrue_result_is_named_until_the_worker_has_forgotten_it() -> None:
    peer = Peer(0.0)
    for seq in (1, 2):
        assert peer.take(seq, 1, 0.0)
    peer.committed(2, 9, 0b10)
    assert peer.ack() == (0, [2]) and peer.stale() == [[9, 0b10]]
    peer.committed(1)
    assert peer.ack() == (2, []) and peer.stale() == [[9, 0b10]]
    assert not peer.take(2, 1, 0.0) and peer.stale() == [[9, 0b10]]  # the acknowledgement was lost
    assert peer.take(3, 3, 0.0) and peer.stale() == []


WHATEVER = [asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt, ValueError]


def test_the_teller_calls_hooks_in_order_on_a_thread_of_its_own_and_bears_what_they_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[tuple[int, int]] = []

    def raises(event: JobEvent) -> None:
        raise WHATEVER[event.args.number]("what is secret")

    def hears(event: JobEvent) -> None:
        heard.append((event.args.number, threading.get_ident()))

    world = World(raises, hears)
    teller = Teller(world.client.registry, Tags())
    teller.tell(Started(Job(Work(number), number, "work")) for number in range(len(WHATEVER)))
    teller.close(DEADLINE_S)
    assert [number for number, _ in heard] == list(range(len(WHATEVER)))
    assert {thread for _, thread in heard} != {threading.get_ident()}
    for kind in WHATEVER:
        assert f"kind work: {kind.__name__} at {__file__}" in caplog.text
    assert caplog.text.count("raises failed on Started") == len(WHATEVER) and "secret" not in caplog.text


def test_what_user_code_raises_beside_a_hook_does_not_end_the_tellers_thread(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    real = Tags()

    class Odd(Tags):
        @property
        def task_job(self) -> Any:
            if not heard:
                heard.append(0)
                raise asyncio.CancelledError("what is secret")
            return real.task_job

        @task_job.setter
        def task_job(self, value: Any) -> None: ...

    teller = Teller(World(lambda event: heard.append(event.job.id)).client.registry, Odd())
    teller.tell([Started(Job(Work(1), 1, "work")), Started(Job(Work(2), 2, "work"))])
    teller.close(DEADLINE_S)
    assert heard == [0, 2] and "told to nobody: CancelledError" in caplog.text
    assert "secret" not in caplog.text + capfd.readouterr().err


def test_a_tellers_thread_that_has_died_is_started_again() -> None:
    heard: list[int] = []
    teller = Teller(World(lambda event: heard.append(event.job.id)).client.registry, Tags())
    dead = threading.Thread(target=int)
    dead.start()
    dead.join()
    teller._thread = dead
    teller.tell([Started(Job(Work(1), 1, "work"))])
    teller.close(DEADLINE_S)
    teller.tell([Started(Job(Work(2), 2, "work"))])
    assert heard == [1]


def test_on_a_clients_main_thread_only_a_ctrl_c_ends_the_telling(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def raises(event: JobEvent) -> None:
        raise WHATEVER[event.args.number]("what is secret")

    triggers = World(raises, lambda event: heard.append(event.args.number)).client.registry.triggers
    for number, kind in enumerate(WHATEVER):
        event = Started(Job(Work(number), number, "work"))
        if kind is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                call_hooks(triggers, Work, event)
            assert "interrupted: 1 more hooks of job 3 are not called" in caplog.text
        else:
            call_hooks(triggers, Work, event)
    assert heard == [0, 1, 2, 4] and "secret" not in caplog.text


def test_events_that_wait_for_a_slow_hook_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    go_on, here = threading.Event(), threading.Event()
    heard = 0

    def slow(event: JobEvent) -> None:
        nonlocal heard
        heard += 1
        here.set()
        assert go_on.wait(DEADLINE_S)

    teller = Teller(World(slow).client.registry, Tags())
    event = Started(Job(Work(1), 1, "work"))
    teller.tell([event])
    assert here.wait(DEADLINE_S)
    teller.tell([event] * (MOST_WAITING + 50))
    go_on.set()
    teller.close(DEADLINE_S)
    assert heard == MOST_WAITING + 1 and caplog.text.count("are told to nobody") == 1


@pytest.mark.parametrize("target", ["awa:outcome", "", dict, 7])
def test_a_hook_for_what_is_no_kind_of_the_app_is_refused(target: Any) -> None:
    with pytest.raises(RegistrationError):
        Client("host=nowhere").on_event_kind(target)(hook)


def test_a_hook_that_cannot_take_the_event_is_refused() -> None:
    async def later(event: JobEvent) -> None: ...

    for wrong in (lambda: None, later, "text"):
        with pytest.raises(RegistrationError):
            Client("host=nowhere").on_event(Work)(wrong)  # type: ignore[type-var]
