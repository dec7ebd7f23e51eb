"""Callbacks from the handler's side without a database: tokens, parking, what is resumed; and the finalizer's road for requests."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from asking_rig import in_thread

from awa_pool import (
    CallbackToken,
    Client,
    DeadlineExceeded,
    JobCancelled,
    LeaseLost,
    ShuttingDown,
    StoreRefused,
    TransitionRefused,
    ValidationError,
    WaitForCallback,
)
from awa_pool.events import Tick, Trouble
from awa_pool.finalizer.core import Finalizer
from awa_pool.finalizer.events import (
    CallbacksNotRegistered,
    CallbacksRegistered,
    FinishStaged,
    Heard,
    RegisterCallbacks,
    Send,
    Settings,
    StagedAnswered,
    StagedRow,
)
from awa_pool.finalizer.reading import read_results
from awa_pool.finalizer.retry import GATHER_S
from awa_pool.job import Job
from awa_pool.messages import AttemptsEnded, CallbackRegistered, RegisterCallback
from awa_pool.outcomes import COMPLETED, Ending, resolve_outcome
from awa_pool.states import Outcome
from awa_pool.testing import HandlerJob
from awa_pool.wire import Router, wait_for_mail
from awa_pool.worker import registering
from awa_pool.worker.attempt import job_type_of
from awa_pool.worker.endings import Endings
from awa_pool.worker.events import Piece
from awa_pool.worker.limits import Alarm
from awa_pool.worker.registering import Registrar

client = Client("host=nowhere")


@dataclass
class Ask:
    how: str = "park"


@dataclass
class Letter:
    to: str


@client.task(Ask)
def ask(job: Job[Ask]) -> object:
    if job.resumed is not None:
        return None
    token = job.register_callback(60)
    match job.args.how:
        case "newer":
            job.register_callback(60)
        case "staged":
            job.enqueue_on_completion(Letter("ann"))
        case "foreign":
            token = HandlerJob(Ask(), client=client, id=77).register_callback(60)
        case "answered":
            token.spent = True  # as `wait_for_callback` leaves it
        case "raise":
            raise WaitForCallback(token)
    return WaitForCallback(token)


# --- tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1, 0.001, float("nan"), float("inf"), 366 * 86400, "60", True, None])
def test_an_absurd_time_out_is_refused_before_anything_is_asked(timeout: Any) -> None:
    with pytest.raises(ValidationError, match="timeout_seconds"):
        HandlerJob(Ask()).register_callback(timeout)


def test_a_job_outside_a_worker_says_where_to_go() -> None:
    with pytest.raises(TypeError, match="HandlerJob"):
        Job(Ask(), 1, "ask").register_callback(60)


@pytest.mark.parametrize("token", [None, "d2e7c7f2-0000-4000-8000-000000000000", 7])
def test_only_a_token_can_be_waited_for(token: Any) -> None:
    with pytest.raises(ValidationError, match="register_callback"):
        WaitForCallback(token)


def test_a_token_that_was_not_awaited_says_so_and_hides_its_id() -> None:
    async def registering() -> tuple[str, int]:
        return "secret", 3

    token = CallbackToken((1, 1), 60.0, registering=registering)
    with pytest.raises(ValidationError, match="await"):
        WaitForCallback(token)

    async def twice() -> None:
        assert await token is token and await token is token

    asyncio.run(twice())
    assert (token.id, token.number) == ("secret", 3)
    assert "secret" not in repr(token)


@pytest.mark.parametrize("interruption", [ShuttingDown("stop"), LeaseLost("gone")])
def test_an_interruption_gives_the_attempt_back(interruption: Exception) -> None:
    ending = resolve_outcome(None, interruption, attempt=3, backoff=None, rng=Random(1))
    assert ending == Ending(Outcome.RETURN)


# --- endings, by HandlerJob -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["park", "raise", "staged"])
def test_an_attempt_parks_and_drops_what_it_staged(how: str, caplog: pytest.LogCaptureFixture) -> None:
    job = HandlerJob(Ask(how), client=client, id=5)
    with caplog.at_level(logging.WARNING):
        result = job.run()
    assert result.is_waiting and result.outcome == "waiting_external" and result.staged == ()
    assert [token.number for token in job.callbacks] == [1]
    assert [record.getMessage() for record in caplog.records] == (
        ["job 5, kind ask, waits for a callback: the 1 follow-ups that it had staged are dropped"]
        if how == "staged"
        else []
    )


@pytest.mark.parametrize(
    ("how", "why", "error"),
    [
        ("newer", "newer", "CallbackNotFound"),
        ("foreign", "another attempt", "CallbackNotFound"),
        ("answered", "its payload given", "TransitionRefused"),
    ],
)
def test_a_token_that_cannot_be_waited_for_fails_the_attempt(how: str, why: str, error: str) -> None:
    result = HandlerJob(Ask(how), client=client).run()
    assert result.is_retryable and why in str(result.error)
    assert str(result.error_type).endswith(error)


def test_specs_for_waiting_come_with_the_parking_and_undo_it_when_they_raise() -> None:
    app = Client("host=nowhere")
    app.task(Ask)(ask)
    made: list[Callable[[], object]] = [lambda: Letter("bob")]
    app.on_waiting_for_callback_enqueue(Ask, lambda args, job: made[0]())
    result = HandlerJob(Ask(), client=app).run()
    assert result.is_waiting and [each.args for each in result.staged] == [{"to": "bob"}]
    made[0] = lambda: 1 // 0
    result = HandlerJob(Ask(), client=app, attempt=2, max_attempts=3).run()
    assert result.is_retryable and "ZeroDivision" in str(result.error_type)
    result = HandlerJob(Ask(), client=app, attempt=3, max_attempts=3).run()
    assert result.is_failed and result.reason == "follow_up_failed"


def test_a_resumed_job_finds_its_answer_and_not_among_its_metadata() -> None:
    job = HandlerJob(Ask(), client=client, resumed=(3, {"ok": [1]}), metadata={"mine": 1})
    assert job.resumed is not None and job.resumed == (3, {"ok": [1]}) and job.resumed.number == 3
    assert job.metadata == {"mine": 1}
    assert job.run().is_completed
    assert job.register_callback(timedelta(seconds=5)).number == 4
    assert HandlerJob(Ask()).resumed is None
    assert Job(Ask(), 1, "ask", extra={"metadata": {"awa:callback": "of other software"}}).resumed is None


def test_the_approval_gate_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "callbacks.md"
    (code, *_) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "gate_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    gate = importlib.import_module("gate_of_the_page")
    first = HandlerJob(gate.Publish(7), client=gate.client)
    assert first.run().is_waiting and first.callbacks[0].timeout_s == 7 * 86400
    agreed = HandlerJob(gate.Publish(7), client=gate.client, resumed=(1, {"approved": True})).run()
    assert agreed.is_completed and [each.args for each in agreed.staged] == [{"article": 7}]
    refused = HandlerJob(gate.Publish(7), client=gate.client, resumed=(1, {"approved": False})).run()
    assert refused.is_completed and refused.staged == ()


# --- the worker's registrar against a finalizer of the test's own ---------------------------------------------


class World:
    """A registrar, jobs that run, and the socket that it speaks to."""

    def __init__(self, folder: str) -> None:
        self.finalizer = Router(f"{folder}/f")
        self.registrar = Registrar({"finalizer_path": f"{folder}/f", "worker": 1, "incarnation": "i1"})
        self.cancelled = False

    def job(self, kind: str = "ask", *, running: bool = True) -> Any:
        made = job_type_of(client.registry, None, self.registrar, set())(
            Ask(), 9, kind, run_lease=4, is_cancelled=lambda: self.cancelled
        )
        made._piece = (
            Piece("default", 2, 3, 11, -11, [5], [[9, "ask", {}, 1, 4, 25, None]], 0) if running else None
        )
        return made

    def heard(self) -> tuple[bytes, RegisterCallback]:
        assert wait_for_mail(self.finalizer, 10.0)
        received = self.finalizer.receive()
        assert received is not None and isinstance(received[1], RegisterCallback)
        return received[0], received[1]

    def answer(self, status: str, number: int = 0, error: str = "") -> RegisterCallback:
        peer, message = self.heard()
        self.finalizer.send(peer, CallbackRegistered(message.request, status, number, error))
        return message


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="awa-") as folder:
        made = World(folder)
        yield made
        made.registrar.close()
        made.finalizer.close(0)


def test_a_sync_handler_gets_its_token_once_it_is_committed(world: World) -> None:
    job = world.job()
    back = in_thread(lambda: job.register_callback(60))
    message = world.answer("done", 2)
    assert (message.slot, message.receipt_id, message.nonce, message.index) == (3, 11, -11, 5)
    assert (message.job_id, message.run_lease, message.timeout_s) == (9, 4, 60.0)
    token = back()
    assert (token.id, token.number, token.attempt) == (message.callback_id, 2, (9, 4))


@client.task(Letter)
async def letter(job: Job[Letter]) -> None: ...


@pytest.mark.parametrize(
    ("kind", "told"),
    [("ask", "neither waited for its callback #2 nor returned"), ("letter", "was not awaited: nothing was registered")],
)  # fmt: skip
def test_a_callback_that_a_completed_handler_has_left_is_told_once_for_its_kind(
    world: World, caplog: pytest.LogCaptureFixture, kind: str, told: str
) -> None:
    endings = Endings(client.registry, "app", Random(1), registrar=world.registrar)
    task = client.registry.tasks[kind]
    for ending in (Ending(Outcome.SNOOZE, 1.0), COMPLETED, COMPLETED):
        job = world.job(kind)
        piece = job._piece
        if kind == "ask":
            back = in_thread(lambda job=job: job.register_callback(60))  # type: ignore[misc]
            world.answer("done", 2)
            back()
        else:
            job.register_callback(60)
        endings.settle(piece, 0, job, task, ending)
        assert len(caplog.records) == (ending is COMPLETED)
    assert told in caplog.text and f"kind {kind}" in caplog.text


def test_a_callback_that_was_waited_for_or_returned_is_not_told_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    endings = Endings(client.registry, "app", Random(1), registrar=world.registrar)
    task = client.registry.tasks["ask"]
    for how in ("returned", "waited"):
        job = world.job()
        piece = job._piece
        back = in_thread(lambda job=job: job.register_callback(60))  # type: ignore[misc]
        world.answer("done", 1)
        token = back()
        ending = Ending(Outcome.PARK, token=token)
        if how == "waited":
            with pytest.raises(TransitionRefused):  # it is not declared to wait; that it tried is what counts
                job.wait_for_callback(token)
            ending = COMPLETED
        endings.settle(piece, 0, job, task, ending)
    assert caplog.records == []


def test_what_is_not_answered_is_said_again_with_the_same_id(world: World) -> None:
    back = in_thread(lambda: world.job().register_callback(60))
    first = world.heard()[1]
    world.registrar.say_again()
    assert world.answer("done", 1) == first
    assert back().id == first.callback_id


@pytest.mark.parametrize(
    ("status", "error"), [("stale", LeaseLost), ("waiting", TransitionRefused), ("refused", StoreRefused)]
)
def test_each_refusal_has_its_error(world: World, status: str, error: type[Exception]) -> None:
    back = in_thread(lambda: world.job().register_callback(60))
    world.answer(status, 0, "no")
    assert isinstance(back(), error)


def test_a_cancel_and_a_stop_reach_a_handler_that_waits_for_the_database(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = in_thread(lambda: world.job().register_callback(60))
    world.heard()
    world.cancelled = True
    assert isinstance(back(), JobCancelled)
    world.cancelled = False
    monkeypatch.setattr(registering, "STOPPING_S", 0.05)
    back = in_thread(lambda: world.job().register_callback(60))
    world.heard()
    world.registrar.stopping()
    assert isinstance(back(), ShuttingDown)
    monkeypatch.setattr(registering, "STOPPING_S", 3600.0)
    back = in_thread(lambda: world.job().register_callback(60))
    world.heard()
    world.registrar.stopping(at_once=True)
    assert isinstance(back(), ShuttingDown)


def test_a_deadline_reaches_a_sync_handler_that_waits_and_nothing_is_left_behind(world: World) -> None:
    def handler(job: Any) -> object:
        return job.register_callback(60)

    alarm = Alarm(registering.NOT_TO_BREAK)
    result, raised = alarm.call(handler, world.job(), 0.2)
    assert result is None and isinstance(raised, DeadlineExceeded) and alarm.rang
    world.heard()
    back = in_thread(lambda: world.job().register_callback(60))
    assert world.answer("done", 1).request == 2 and back().number == 1


def test_many_ask_at_once_and_each_gets_its_own_answer(world: World) -> None:
    async def all_of_them() -> list[tuple[str, int]]:
        jobs = [world.job() for _ in range(300)]
        return await asyncio.gather(*(world.registrar.register_async(job, 60.0) for job in jobs))

    back = in_thread(lambda: asyncio.run(all_of_them()))
    messages = {message.request: message for message in (world.answer("done", 1) for _ in range(300))}
    assert [text for text, _ in back()] == [messages[number].callback_id for number in range(1, 301)]


def test_a_process_that_a_handler_has_forked_is_told_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.registrar, "_pid", 1)
    with pytest.raises(LeaseLost, match="forked"):
        world.job().register_callback(60)


def test_nothing_is_registered_once_the_handler_has_returned(world: World) -> None:
    with pytest.raises(LeaseLost, match="handlers that run"):
        world.job(running=False).register_callback(60)


def test_tasks_of_an_async_handler_ask_side_by_side(world: World) -> None:
    async def both() -> list[tuple[str, int]]:
        job = world.job()
        return await asyncio.gather(*(world.registrar.register_async(job, 60.0) for _ in range(2)))

    back = in_thread(lambda: asyncio.run(both()))
    messages = [world.answer("done", number) for number in (1, 2)]
    assert sorted(back()) == sorted(
        (message.callback_id, number) for number, message in enumerate(messages, 1)
    )


# --- the finalizer's core -------------------------------------------------------------------------------------


def request(number: int, receipt: int = 1, **more: Any) -> RegisterCallback:
    fields = {"slot": 3, "receipt_id": receipt, "nonce": -receipt, "index": 0, "job_id": 5, "run_lease": 1,
              "callback_id": f"id{number}", "timeout_s": 60.0} | more  # fmt: skip
    return RegisterCallback(number, **fields)


def said(commands: Any) -> list[CallbackRegistered]:
    return [c.message for c in commands if isinstance(c, Send) and isinstance(c.message, CallbackRegistered)]


def calls(commands: Any) -> list[list[str]]:
    return [[item["wanted_id"] for item in c.items] for c in commands if isinstance(c, RegisterCallbacks)]


def answer_row(item: int, status: str, number: int | None = None) -> Any:
    return SimpleNamespace(item=item, status=status, number=number)


def test_requests_share_a_call_and_those_of_an_attempt_keep_their_order() -> None:
    core = Finalizer(Settings("f1"))
    assert calls(core.step(Heard(b"w", request(1)), 1.0)) == [["id1"]]
    for message in (request(1), request(2), request(3, receipt=2), request(4, receipt=2)):
        assert calls(core.step(Heard(b"w", message), 1.0)) == []
    out = core.step(CallbacksRegistered([answer_row(0, "done", 1)]), 1.0)
    assert said(out) == [CallbackRegistered(1, "done", 1)] and calls(out) == []
    due_s = core.next_tick_s()
    assert due_s is not None and 1.0 < due_s <= 1.0 + GATHER_S
    out = core.step(Tick(), due_s)
    assert calls(out) == [["id2", "id3"]]  # the repeat of the first was not taken
    out = core.step(CallbacksRegistered([answer_row(0, "busy"), answer_row(1, "stale")]), 1.0)
    assert said(out) == [CallbackRegistered(3, "stale")] and core.next_tick_s() is not None
    assert sorted(*calls(core.step(Heard(b"w", request(9, receipt=9)), 1.1))) == ["id2", "id4", "id9"]


def test_a_call_that_fails_comes_again_and_one_that_is_refused_is_answered() -> None:
    core = Finalizer(Settings("f1"))
    core.step(Heard(b"w", request(1)), 1.0)
    assert core.step(CallbacksNotRegistered(Trouble.AWAY, "gone"), 1.0) == []
    due_s = core.next_tick_s()
    assert due_s is not None and due_s > 1.0
    assert calls(core.step(Heard(b"w", request(2, receipt=2)), due_s)) == [["id1", "id2"]]
    out = core.step(CallbacksNotRegistered(Trouble.REFUSED, "a trigger"), 2.0)
    assert sorted(message.request for message in said(out)) == [1, 2] and said(out)[0].error == "a trigger"


@pytest.mark.parametrize(
    "flaw", [{"timeout_s": "1"}, {"timeout_s": float("inf")}, {"index": 63}, {"slot": -1}]
)
def test_a_request_that_cannot_be_read_is_noted_and_not_carried_out(flaw: dict[str, Any]) -> None:
    core = Finalizer(Settings("f1"))
    out = core.step(Heard(b"w", request(1, **flaw)), 1.0)
    assert calls(out) == [] and "malformed" in str(out)


def parking(*more: Any) -> AttemptsEnded:
    return AttemptsEnded("i1", 1, 3, 7, -7, [], [[0, 5, 1, "ask", "park", None, None, *more]])


def test_a_parking_takes_the_road_of_follow_ups_and_a_refused_one_is_a_failed_attempt() -> None:
    core = Finalizer(Settings("f1"))
    out = core.step(Heard(b"w", parking({"percent": 5}, "some-id"), []), 1.0)
    (trip,) = [command for command in out if isinstance(command, FinishStaged)]
    ((values, follow_ups),) = trip.ends
    assert follow_ups == b"[]" and (values["outcome"], values["callback_id"]) == ("park", "some-id")
    assert values["progress"] == {"percent": 5}
    out = core.step(StagedAnswered(trip.lane, [StagedRow("refused", None, 0)], 0.1), 1.1)
    (item,) = next(command.items for command in out if hasattr(command, "items"))
    assert item["outcome"] == "retry" and item["error"]["type"] == "CallbackNotFound"


@pytest.mark.parametrize("more", [(), (None,), (None, None), (None, 7)])
def test_a_parking_without_a_callback_is_not_read(more: tuple[Any, ...]) -> None:
    _, items, ends, result, bad = read_results(b"w", parking(*more), [])
    assert (items, ends, result.left, bad) == ([], [], 0, 1)
