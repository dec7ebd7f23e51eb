"""Completion by the handler without a database: declaring it, the request to the finalizer, what is reported, tests with fakes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from asking_rig import in_thread

from awa_pool import (
    Cancel,
    Client,
    JobCancelled,
    LeaseLost,
    RegistrationError,
    RetryAfter,
    ShuttingDown,
    StagingError,
    StoreRefused,
    StoreUnavailable,
    TransitionRefused,
)
from awa_pool.events import Tick, Trouble
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import (
    AttemptsLeased,
    AttemptsNotLeased,
    Finish,
    Finished,
    Heard,
    LeaseAttempts,
    Send,
    Settings,
    StagedNo,
)
from awa_pool.finalizer.staged import StagedEnd, without_follow_ups
from awa_pool.job import Job
from awa_pool.messages import AttemptLeased, AttemptsEnded, LeaseAttempt, ResultsCommitted
from awa_pool.testing import HandlerJob
from awa_pool.wire import Router, wait_for_mail
from awa_pool.worker.attempt import job_type_of
from awa_pool.worker.events import Piece
from awa_pool.worker.leasing import LeasingInside
from awa_pool.worker.registering import Registrar


@dataclass
class Ship:
    how: str = "complete"


@dataclass
class Bill:
    order: int = 1


client = Client("host=nowhere")


@client.task(Ship, caller_completes=True, max_attempts=2, backoff=60.0)
def ship(job: Job[Ship]) -> object:
    if job.args.how == "nothing":
        return None
    if job.args.how == "snooze":
        return RetryAfter(5)
    conn = MagicMock()
    with job.completing(conn) as same:
        assert same is conn
        conn.execute("insert into shipped values (1)")
        if job.args.how == "stage":
            job.enqueue_on_completion(Bill())
        if job.args.how == "raise in it":
            raise KeyError("x")
    if job.args.how == "twice":
        with job.completing(conn):
            pass
    if job.args.how == "cancel after it":
        return Cancel("late")
    if job.args.how == "raise after it":
        raise KeyError("x")
    return None


@client.task(Bill)
async def bill(job: Job[Bill]) -> None:
    async with job.completing(MagicMock()):
        pass


# --- declaring -----------------------------------------------------------------------------------------------


def _handler(job: Any) -> None: ...


def _spec(args: Any, job: Any) -> None: ...


@pytest.mark.parametrize("target", [Ship, "ship"])
def test_follow_ups_of_its_completion_are_refused_in_either_order(target: Any) -> None:
    first = Client()
    first.task(Ship, caller_completes=True)(_handler)
    with pytest.raises(RegistrationError, match="client.insert"):
        first.on_completed_enqueue(target, _spec)
    first.on_exhausted_enqueue(target, lambda args, job, error, attempt: None)
    second = Client()
    second.on_completed_enqueue(target, _spec)
    with pytest.raises(RegistrationError, match="caller_completes=True"):
        second.task(Ship, caller_completes=True)(_handler)
    assert second.registry.tasks == {}
    second.task(Ship)(_handler)


def test_it_is_true_or_false() -> None:
    with pytest.raises(RegistrationError, match="caller_completes"):
        Client().task(Ship, caller_completes=1)(_handler)  # type: ignore[arg-type]


def test_a_job_outside_a_worker_says_where_to_go() -> None:
    with pytest.raises(TypeError, match="HandlerJob"):
        Job(Ship(), 1, "ship").completing(object())


# --- tests of handlers with a fake connection -----------------------------------------------------------------


@pytest.mark.parametrize(("how", "outcome", "error"), [
    ("complete", "completed", None), ("nothing", "retryable", "NotCompleted"), ("snooze", "retryable", "RetryAfter"),
    ("raise in it", "retryable", "KeyError"), ("raise after it", "completed", None),
    ("cancel after it", "completed", None), ("twice", "completed", None),
])  # fmt: skip
def test_a_handler_is_tested_with_a_fake_connection(how: str, outcome: str, error: str | None) -> None:
    job = HandlerJob(Ship(how), client=client)
    result = job.run()
    assert (result.outcome, result.error_type) == (outcome, error)
    assert job.completed is (outcome == "completed")
    if how == "twice":
        assert isinstance(result.exception, TransitionRefused)


def test_a_block_that_is_begun_within_itself_is_refused_and_goes_on() -> None:
    def handler(job: Job[Ship]) -> None:
        conn = MagicMock()
        block = job.completing(conn)
        with block:
            with pytest.raises(TransitionRefused, match="one block"), block:
                pass
            assert not conn.transaction.return_value.__exit__.called
        assert conn.transaction.return_value.__exit__.call_count == 1

    async def async_handler(job: Job[Ship]) -> None:
        block = job.completing(MagicMock())
        async with block:
            with pytest.raises(TransitionRefused, match="one block"):
                await block.__aenter__()

    for each in (handler, async_handler):
        assert HandlerJob(Ship(), client=client).run(each).is_completed


def test_staging_poisons_the_completion() -> None:
    job = HandlerJob(Ship("stage"), client=client)
    result = job.run()
    assert result.is_failed and isinstance(job.problem, StagingError) and not job.completed
    assert "conn=conn" in str(job.problem)


def test_a_kind_that_does_not_declare_it_is_told_how() -> None:
    result = HandlerJob(Bill(), client=client).run()
    assert isinstance(result.exception, TransitionRefused)
    assert "caller_completes=True" in str(result.exception)


def test_async_handlers_take_fakes_too() -> None:
    async def handler(job: Job[Ship]) -> None:
        async with job.completing(MagicMock()):
            pass

    assert HandlerJob(Ship(), client=client).run(handler).is_completed


# --- the request, in a worker ---------------------------------------------------------------------------------


class World:
    """A registrar, jobs that run, and the socket that it speaks to."""

    def __init__(self, folder: str) -> None:
        self.finalizer = Router(f"{folder}/f")
        settings = {"finalizer_path": f"{folder}/f", "worker": 1, "incarnation": "i1", "schema": "mine"}
        self.registrar = Registrar(settings)
        self.cancelled = False

    def job(self) -> Any:
        made = job_type_of(client.registry, None, self.registrar, set())(
            Ship(), 9, "ship", run_lease=4, is_cancelled=lambda: self.cancelled
        )
        made._piece = Piece("default", 2, 3, 11, -11, [5], [[9, "ship", {}, 1, 4, 2, None]], 0)
        return made

    def heard(self) -> tuple[bytes, LeaseAttempt]:
        assert wait_for_mail(self.finalizer, 10.0)
        received = self.finalizer.receive()
        assert received is not None and isinstance(received[1], LeaseAttempt)
        return received[0], received[1]

    def answer(self, status: str, error: str = "") -> LeaseAttempt:
        peer, message = self.heard()
        self.finalizer.send(peer, AttemptLeased(message.request, status, error))
        return message


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="awa-") as folder:
        made = World(folder)
        yield made
        made.registrar.close()
        made.finalizer.close(0)


def test_the_attempt_is_moved_before_the_block_and_the_request_said_again_until_answered(
    world: World,
) -> None:
    back = in_thread(lambda: world.registrar.lease(world.job()))
    first = world.heard()[1]
    world.registrar.say_again()
    assert world.answer("done") == first
    assert (first.slot, first.receipt_id, first.nonce, first.index) == (3, 11, -11, 5)
    assert (first.job_id, first.run_lease, world.registrar.schema) == (9, 4, "mine")
    assert back() is None
    back = in_thread(lambda: asyncio.run(world.registrar.lease_async(world.job())))
    world.answer("done")
    assert back() is None


@pytest.mark.parametrize(("status", "error"), [("stale", LeaseLost), ("refused", StoreRefused)])
def test_each_refusal_has_its_error(world: World, status: str, error: type[Exception]) -> None:
    back = in_thread(lambda: world.registrar.lease(world.job()))
    world.answer(status, "no")
    assert isinstance(back(), error)


def test_a_cancel_and_a_stop_reach_a_handler_that_waits_for_the_move(world: World) -> None:
    back = in_thread(lambda: world.registrar.lease(world.job()))
    world.heard()
    world.cancelled = True
    assert isinstance(back(), JobCancelled)
    world.cancelled = False
    back = in_thread(lambda: world.registrar.lease(world.job()))
    world.heard()
    world.registrar.stopping(at_once=True)
    assert isinstance(back(), ShuttingDown)


# --- the finalizer --------------------------------------------------------------------------------------------


def request(number: int, receipt: int = 1, **more: Any) -> LeaseAttempt:
    named = {"slot": 3, "receipt_id": receipt, "nonce": 5, "index": 0, "job_id": 70, "run_lease": 1, **more}
    return LeaseAttempt(number, **named)


def said(commands: Any) -> list[AttemptLeased]:
    return [c.message for c in commands if isinstance(c, Send) and isinstance(c.message, AttemptLeased)]


def calls(commands: Any) -> list[list[int]]:
    return [[item["receipt_id"] for item in c.items] for c in commands if isinstance(c, LeaseAttempts)]


def rows(*statuses: str) -> AttemptsLeased:
    return AttemptsLeased([SimpleNamespace(item=n, status=s) for n, s in enumerate(statuses)])


def test_inside_an_open_transaction_the_move_is_not_waited_for_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeasingInside, "most_s", 0.3)
    inside = in_thread(lambda: world.registrar.lease(world.job(), True))()
    assert isinstance(inside, StoreUnavailable) and "within 0.3 s" in str(inside)
    beside = in_thread(lambda: asyncio.run(world.registrar.lease_async(world.job(), True)))()
    assert isinstance(beside, StoreUnavailable)


def test_requests_share_a_call_and_what_is_busy_comes_again() -> None:
    core = Finalizer(Settings("f"))
    assert calls(core.step(Heard(b"w1", request(1)), 1.0)) == [[1]]
    for number, receipt in [(2, 2), (3, 3), (2, 2)]:
        assert calls(core.step(Heard(b"w1", request(number, receipt)), 1.1)) == []
    out = core.step(rows("done"), 1.2)
    assert said(out) == [AttemptLeased(1, "done")] and calls(out) == [[2, 3]]
    out = core.step(rows("busy", "stale"), 1.3)
    assert said(out) == [AttemptLeased(3, "stale")] and calls(out) == []
    due_s = core.next_tick_s()
    assert due_s is not None and 1.3 < due_s < 2.0
    assert calls(core.step(Tick(), due_s)) == [[2]]
    assert said(core.step(rows("done"), 2.0)) == [AttemptLeased(2, "done")]
    assert core.figures()["attempts_leased"] == 2


def test_a_call_that_fails_comes_again_and_one_that_is_refused_is_answered() -> None:
    core = Finalizer(Settings("f"))
    core.step(Heard(b"w1", request(1)), 1.0)
    assert said(core.step(AttemptsNotLeased(Trouble.AWAY, "gone"), 1.1)) == []
    assert calls(core.step(Tick(), 9.0)) == [[1]]
    assert said(core.step(AttemptsNotLeased(Trouble.REFUSED, "no such function"), 9.1)) == [
        AttemptLeased(1, "refused", "no such function")
    ]
    core.step(Heard(b"w1", request(2)), 10.0)
    assert said(core.step(rows("invalid"), 10.1))[0].status == "refused"


def test_while_handlers_ask_nothing_gathers_unread_and_their_own_ends_do_not_linger() -> None:
    """Each of them stands still until it is answered, and its lane has nothing else to send."""
    core = Finalizer(Settings("f"))
    core.step(Heard(b"w1", request(1)), 1.0)
    core.step(rows("done"), 1.01)
    other = [0, 70, 1, "k", "retry", 1.0, None]
    for seq in (1, 2):
        core.step(Heard(b"w2", AttemptsEnded("j", seq, 3, 8, 5, [], [other], True, 1)), 1.02)
        assert core.deaf_until_s() is None
    own = [1, 71, 1, "ship", "lost", 60.0, {"error": "not committed", "type": "NotCommitted"}]
    out = core.step(Heard(b"w1", AttemptsEnded("i", 1, 3, 9, 5, [], [own], True, 1, [], [1])), 1.03)
    assert 1 in [item["index"] for c in out if isinstance(c, Finish) for item in c.items]


@pytest.mark.parametrize("flaw", [{"slot": -1}, {"index": 63}, {"job_id": 1 << 63}, {"nonce": "5"}])
def test_a_request_that_cannot_be_read_is_noted_and_not_carried_out(flaw: dict[str, Any]) -> None:
    core = Finalizer(Settings("f"))
    assert calls(core.step(Heard(b"w1", request(1, **flaw)), 1.0)) == []


class Report:
    """A finalizer that was told of attempts of which the handler may have completed some."""

    def __init__(self, outcome: str = "lost") -> None:
        self.core = Finalizer(Settings("f"))
        entry = [1, 71, 1, "ship", outcome, 60.0, {"error": "not committed", "type": "NotCommitted"}]
        message = AttemptsEnded("i", 1, 3, 9, 5, [], [entry], False, 1, [], [1])
        out = [*self.core.step(Heard(b"w1", message), 1.0), *self.core.step(Tick(), 9.0)]
        (self.call,) = (command for command in out if isinstance(command, Finish))

    def written(self, status: str, state: str | None) -> tuple[dict[str, int], list[Any]]:
        """What is counted, and what is not as the worker has said."""
        row = SimpleNamespace(item=0, status=status, state=state)
        out = [*self.core.step(Finished([row], 0.0), 10.0), *self.core.step(Tick(), 20.0)]
        (word,) = (c.message for c in out if isinstance(c, Send) and isinstance(c.message, ResultsCommitted))
        return self.core.figures()["ended"].get("ship", {}), word.stale


@pytest.mark.parametrize(("outcome", "status", "state", "counted", "so"), [
    ("lost", "stale", "completed", "completed", True), ("lost", "done", "retryable", "retry", False),
    ("lost", "done", "failed", "fail", False), ("lost", "stale", None, None, False),
    ("retry", "stale", "completed", "completed", False), ("retry", "done", "retryable", "retry", True),
])  # fmt: skip
def test_the_database_decides_what_has_become_of_it(
    outcome: str, status: str, state: str | None, counted: str | None, so: bool
) -> None:
    report = Report(outcome)
    assert report.call.items[0]["owned"] is True
    ended, stale = report.written(status, state)
    assert ended == ({counted: 1} if counted else {})
    assert stale == ([] if so else [[9, 0b10]])
    assert report.core.figures()["stale"] == (0 if counted else 1)


def test_an_end_that_takes_the_place_of_a_refused_one_knows_it_still() -> None:
    values = {"slot": 3, "receipt_id": 9, "nonce": 5, "index": 1, "job_id": 71, "run_lease": 1, "owned": True}
    end = StagedEnd({**values, "outcome": "cancel"}, "ship", b'[{"kind":"x"}]', None)
    assert without_follow_ups(end, StagedNo(Trouble.REFUSED, "no").error)["owned"] is True
