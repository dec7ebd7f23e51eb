"""Waits for callbacks from the handler's side: what is refused, what each answer comes to, and what reaches a thread that waits."""

from __future__ import annotations

import asyncio
import importlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking_rig import in_thread

from awa_pool import (
    CallbackNotFound,
    CallbackTimeout,
    CallbackToken,
    Client,
    DeadlineExceeded,
    DecodeError,
    JobCancelled,
    LeaseLost,
    RegistrationError,
    ShuttingDown,
    StoreRefused,
    TransitionRefused,
    ValidationError,
)
from awa_pool.job import Job
from awa_pool.messages import AskHolding as Audit
from awa_pool.messages import (
    AttemptsWait,
    AwaitCallback,
    CallbackAnswered,
    CallbackRegistered,
    ForgetCallback,
    Holding,
    RegisterCallback,
)
from awa_pool.page import Page, PageReader, Phase
from awa_pool.testing import HandlerJob
from awa_pool.wire import Router, wait_for_mail
from awa_pool.worker.attempt import job_type_of
from awa_pool.worker.core import LaneCore
from awa_pool.worker.events import Arrived, Flush, Piece, SayWaits, ToDispatcher, ToFinalizer
from awa_pool.worker.registering import Registrar
from awa_pool.worker.seats import Seats
from awa_pool.worker.threads import ThreadReins

client = Client("host=nowhere")


@dataclass
class Plain:
    """Not declared to wait."""


@dataclass
class Waits:
    """Declared to wait."""


@dataclass
class Coro:
    """Async."""


@client.task(Plain)
def plain(job: Job[Plain]) -> None: ...


@client.task(Waits, waits=True)
def waits(job: Job[Waits]) -> None: ...


@client.task(Coro)
async def coro(job: Job[Coro]) -> None: ...


# --- declarations -----------------------------------------------------------------------------------------------


def test_only_plain_handlers_are_declared_to_wait_and_then_share_their_worker() -> None:
    app = Client("host=nowhere")
    with pytest.raises(RegistrationError, match="an async handler may wait for callbacks without it"):
        app.task(Coro, waits=True)(coro)
    with pytest.raises(RegistrationError, match="waits: expected True or False, got int"):
        app.task(Waits, waits=1)(waits)  # type: ignore[arg-type]
    tasks = client.registry.tasks
    assert [tasks[kind].beside_others for kind in ("plain", "waits", "coro")] == [False, True, True]
    assert [tasks[kind].cancel_kill for kind in ("plain", "waits", "coro")] == [True, False, False]


# --- the worker's side against a finalizer of the test's own ------------------------------------------------------


class World:
    """A registrar, attempts that run, and the socket that it speaks to."""

    def __init__(self, folder: str) -> None:
        self.finalizer = Router(f"{folder}/f")
        self.registrar = Registrar({"finalizer_path": f"{folder}/f", "worker": 1, "incarnation": "i1"})
        self.cancelled = False
        self.given: list[str] = []

    def job(self, kind: str = "waits", *, running: bool = True) -> Any:
        made: Any = job_type_of(client.registry, None, self.registrar)(
            Waits(), 9, kind, run_lease=4, is_cancelled=lambda: self.cancelled
        )
        made._piece = (
            Piece("default", 2, 3, 11, -11, [5], [[9, kind, {}, 1, 4, 25, None]], 0) if running else None
        )
        made._seat = SimpleNamespace(
            reins=ThreadReins(),
            begins_to_wait=lambda: self.given.append("away"),
            goes_on=lambda: self.given.append("back"),
        )
        return made

    def wait(self, job: Any, token: Any) -> Callable[[], Any]:
        """Wait on the handler's own thread; the result waits for what came of it."""

        def wait() -> Any:
            job._seat.reins.begin()
            return job.wait_for_callback(token)

        return in_thread(wait)

    def heard(self, kind: type[Any] = AwaitCallback) -> tuple[bytes, Any]:
        assert wait_for_mail(self.finalizer, 10.0)
        received = self.finalizer.receive()
        assert received is not None and isinstance(received[1], kind)
        return received[0], received[1]

    def answer(self, status: str, why: str = "", *payload: bytes) -> AwaitCallback:
        peer, message = self.heard()
        self.finalizer.send(peer, CallbackAnswered(message.request, status, 1, why), *payload)
        return message


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="awa-") as folder:
        made = World(folder)
        yield made
        made.registrar.close()
        made.finalizer.close(0)


def token_of(job: Any, number: int = 1) -> CallbackToken:
    token = CallbackToken((job.id, job.run_lease), 60.0, (f"id{number}", number))
    job._newest = max(getattr(job, "_newest", (0, "")), (number, token.id))
    return token


def test_a_payload_arrives_once_and_exactly(world: World) -> None:
    job = world.job()
    token = token_of(job, 2)
    back = world.wait(job, token)
    message = world.answer("answered", "", b'{"a":[1.0,null,9007199254740993]}')
    assert (message.slot, message.receipt_id, message.nonce, message.index) == (3, 11, -11, 5)
    assert (message.job_id, message.run_lease, message.callback_id) == (9, 4, "id2")
    assert repr(back()) == "{'a': [1.0, None, 9007199254740993]}"
    assert token.spent and world.given == ["away", "back"]
    assert "its payload given" in str(world.wait(job, token)())


@pytest.mark.parametrize("payload", [b'{"n": 9223372036854775808}', b'"\\ud800"', b"[1e999]", b"{"])
def test_a_payload_that_no_reader_gives_back_fails_the_job(world: World, payload: bytes) -> None:
    job = world.job()
    back = world.wait(job, token_of(job))
    world.answer("answered", "", payload)
    problem = back()
    assert isinstance(problem, DecodeError) and str(problem).startswith("payload: ")


@pytest.mark.parametrize(
    ("status", "why", "error", "words"),
    [
        ("refused", "", CallbackNotFound, "not the newest"),
        ("failed", "a trigger said no", StoreRefused, "a trigger said no"),
        ("stale", "expired", CallbackTimeout, "not answered in time"),
        ("stale", "cancelled", JobCancelled, "cancelled"),
        ("stale", "completed", LeaseLost, "completed the job"),
        ("stale", "failed", LeaseLost, "failed the job"),
        ("stale", "retried", LeaseLost, "run again"),
        ("stale", "", LeaseLost, "rescued"),
    ],
)
def test_each_end_of_a_wait_has_its_error(
    world: World, status: str, why: str, error: type[Exception], words: str
) -> None:
    job = world.job()
    token = token_of(job)
    back = world.wait(job, token)
    world.answer(status, why)
    problem = back()
    assert type(problem) is error and words in str(problem) and not token.spent
    assert world.given == ["away", "back"]


@pytest.mark.parametrize("token", [None, "d2e7c7f2-0000-4000-8000-000000000000", 7])
def test_only_a_token_can_be_waited_for(world: World, token: Any) -> None:
    problem = world.wait(world.job(), token)()
    assert isinstance(problem, ValidationError) and "token: expected what job.register_callback" in str(
        problem
    )


def test_tokens_that_cannot_be_waited_for_are_refused_before_anybody_is_asked(world: World) -> None:
    job = world.job()
    older = token_of(job, 1)
    token_of(job, 2)
    problem = world.wait(job, older)()
    assert isinstance(problem, CallbackNotFound) and "#2 of this attempt has taken the place of #1" in str(
        problem
    )

    foreign = CallbackToken((77, 1), 60.0, ("id", 1))
    problem = world.wait(world.job(), foreign)()
    assert isinstance(problem, TransitionRefused) and "another attempt (job 77)" in str(problem)

    problem = world.wait(world.job(), CallbackToken((9, 4), 60.0))()
    assert isinstance(problem, ValidationError) and "await" in str(problem)

    job = world.job("plain")
    problem = world.wait(job, token_of(job))()
    assert isinstance(problem, TransitionRefused) and "waits=True" in str(problem)

    job = world.job(running=False)
    problem = world.wait(job, token_of(job))()
    assert isinstance(problem, LeaseLost) and "while its handler runs" in str(problem)

    job = world.job()
    with pytest.raises(TransitionRefused, match="on its own thread"):  # this is another
        job.wait_for_callback(token_of(job))

    with pytest.raises(TypeError, match="HandlerJob"):
        Job(Waits(), 1, "waits").wait_for_callback(foreign)
    assert world.given == [] and world.finalizer.receive() is None


def test_one_wait_at_a_time_and_the_same_token_may_be_waited_for_again_when_one_is_given_up(
    world: World,
) -> None:
    job = world.job("coro")
    token = token_of(job)
    heard = threading.Event()

    async def several() -> list[object]:
        first = asyncio.create_task(job.wait_for_callback(token))
        await asyncio.to_thread(heard.wait, 20.0)
        second = await asyncio.gather(job.wait_for_callback(token), return_exceptions=True)
        first.cancel()
        given_up = await asyncio.gather(first, return_exceptions=True)
        return [*second, *given_up, await job.wait_for_callback(token)]

    outcome: list[list[object]] = []
    thread = threading.Thread(target=lambda: outcome.append(asyncio.run(several())), daemon=True)
    thread.start()
    world.heard()
    heard.set()
    world.heard(ForgetCallback)
    world.answer("answered", "", b"3")
    thread.join(20.0)
    ((second, given_up, payload),) = outcome
    assert isinstance(second, TransitionRefused) and "one wait at a time" in str(second)
    assert isinstance(given_up, asyncio.CancelledError) and payload == 3
    assert world.given == ["away", "back", "away", "back"]


def test_a_newer_callback_is_refused_during_a_wait_and_names_the_one_given_up_after_it(world: World) -> None:
    job = world.job("coro")
    token = token_of(job)
    heard = threading.Event()

    async def several() -> list[object]:
        wait = asyncio.create_task(job.wait_for_callback(token))
        await asyncio.to_thread(heard.wait, 20.0)
        meanwhile = await asyncio.gather(job.register_callback(5.0), return_exceptions=True)
        wait.cancel()
        await asyncio.gather(wait, return_exceptions=True)
        return [*meanwhile, (await job.register_callback(5.0)).number]

    outcome: list[list[object]] = []
    thread = threading.Thread(target=lambda: outcome.append(asyncio.run(several())), daemon=True)
    thread.start()
    world.heard()
    heard.set()
    world.heard(ForgetCallback)
    peer, message = world.heard(RegisterCallback)
    assert message.over == token.id
    world.finalizer.send(peer, CallbackRegistered(message.request, "done", 2))
    thread.join(20.0)
    ((refused, number),) = outcome
    assert isinstance(refused, TransitionRefused) and "give that wait up" in str(refused) and number == 2


def test_an_async_handler_is_refused_with_the_same_words(world: World) -> None:
    async def all_of_them() -> list[str]:
        ended, cancelled = world.job("coro", running=False), world.job("coro")
        calls = [ended.wait_for_callback(token_of(ended)), world.job("coro").wait_for_callback(None)]
        world.cancelled = True
        calls.append(cancelled.wait_for_callback(token_of(cancelled)))
        return [type(each).__name__ for each in await asyncio.gather(*calls, return_exceptions=True)]

    assert asyncio.run(all_of_them()) == ["LeaseLost", "ValidationError", "JobCancelled"]


def test_a_wait_is_said_again_and_a_stop_ends_it_at_once(world: World) -> None:
    job = world.job()
    back = world.wait(job, token_of(job))
    first = world.heard()[1]
    world.registrar.say_again()
    assert world.heard()[1] == first
    world.registrar.stopping()
    problem = back()
    assert isinstance(problem, ShuttingDown) and "the job goes back" in str(problem)
    assert world.heard(ForgetCallback)[1] == ForgetCallback(first.request)
    job = world.job()
    assert isinstance(world.wait(job, token_of(job))(), ShuttingDown), "and those that begin after it"


def test_an_answer_that_was_on_its_way_when_the_pool_began_to_stop_is_still_given(world: World) -> None:
    answered, other = world.job(), world.job()
    backs = [world.wait(job, token_of(job)) for job in (answered, other)]
    heard = [world.heard() for _ in backs]
    world.registrar.stopping(20.0)
    peer, message = heard[0]
    world.finalizer.send(peer, CallbackAnswered(message.request, "answered", 1), b"7")
    came = [back() for back in backs]
    assert came.count(7) == 1 and sum(isinstance(each, ShuttingDown) for each in came) == 1


def test_a_cancel_and_a_deadline_reach_a_thread_that_waits(world: World) -> None:
    job = world.job()
    back = world.wait(job, token_of(job))
    world.heard()
    job._seat.reins.cancel()
    assert isinstance(back(), JobCancelled) and job._seat.reins.cancelled
    world.heard(ForgetCallback)

    job = world.job()
    back = world.wait(job, token_of(job))
    world.heard()
    job._seat.reins.exceed(2.5)
    problem = back()
    assert type(problem) is DeadlineExceeded and "2.5 s" in str(problem) and job._seat.reins.late

    world.cancelled = True
    job = world.job()
    assert isinstance(world.wait(job, token_of(job))(), JobCancelled)


def test_a_handler_that_swallows_its_deadline_is_not_let_into_another_wait(world: World) -> None:
    job = world.job()
    job._seat.reins.exceed(2.5)
    job._seat.reins._pending = None  # it was raised, and swallowed
    assert isinstance(world.wait(job, token_of(job))(), DeadlineExceeded)
    with pytest.raises(DeadlineExceeded, match="waits for nothing more"):
        asyncio.run(_again(world))
    assert world.given == [], "nobody was asked"


async def _again(world: World) -> None:
    job = world.job("coro")
    job._seat.reins.late = True
    await job.wait_for_callback(token_of(job))


# --- what is raised in threads ------------------------------------------------------------------------------------


def run(body: Callable[[ThreadReins], object], reins: ThreadReins) -> BaseException | None:
    """Call `body` on a thread of its own, as a handler is; returns what it raised."""
    raised: list[BaseException | None] = []

    def call() -> None:
        try:
            try:
                reins.begin()
                body(reins)
            finally:
                reins.end()
            raised.append(None)
        except BaseException as problem:  # noqa: BLE001
            raised.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20.0)
    return raised[0]


def compute(_: object = None) -> None:
    """Use the interpreter until somebody objects."""
    until_s = time.monotonic() + 20.0
    while time.monotonic() < until_s:
        pass


def test_a_deadline_that_passes_before_the_thread_begins_is_raised_as_it_begins() -> None:
    reins = ThreadReins()
    reins.exceed(1.0)
    assert type(run(compute, reins)) is DeadlineExceeded


def test_a_deadline_is_raised_once_in_a_thread_that_computes_and_never_after_its_end() -> None:
    reins = ThreadReins()

    def cleans_up(_: ThreadReins) -> None:
        threading.Timer(0.05, reins.exceed, [3.0]).start()
        try:
            compute()
        except DeadlineExceeded as problem:
            assert str(problem) == "the deadline of 3 s has passed"
        with reins:
            pass

    assert run(cleans_up, reins) is None
    reins.exceed(1.0)
    reins = ThreadReins()
    assert run(lambda _: None, reins) is None
    reins.exceed(1.0)
    assert reins.late


def test_our_own_code_on_a_thread_is_not_broken_and_tells_on_the_way_out() -> None:
    reins = ThreadReins()
    seen: list[str] = []

    def handler(_: ThreadReins) -> None:
        with reins, reins:
            reins.exceed(1.0)
            seen.append("whole")
        seen.append("too far")

    assert type(run(handler, reins)) is DeadlineExceeded and seen == ["whole"]

    reins = ThreadReins()
    ended: list[object] = []

    def answered_meanwhile(_: ThreadReins) -> None:
        with reins:
            reins.hold(lambda problem: ended.append(problem) or False)  # it has its answer already
            reins.exceed(1.0)

    assert type(run(answered_meanwhile, reins)) is DeadlineExceeded and len(ended) == 1


# --- books and places ---------------------------------------------------------------------------------------------


def test_the_dispatcher_hears_of_what_has_changed_and_the_audit_of_all() -> None:
    core = LaneCore(1, "i", "async", 2, ["waits"])
    one, two = (Piece("default", 2, 3, receipt, 9, [0, 1], [], 0) for receipt in (5, 6))

    def say() -> list[Any]:
        return [
            command.message for command in core.step(SayWaits(), 1.0) if isinstance(command, ToDispatcher)
        ]

    core.waits(one, 1)
    core.waits(one, 2)
    core.waits(two, 1)
    assert say() == [AttemptsWait([[5, 3], [6, 1]], True)] and say() == []
    core.goes_on(one, 1)
    core.goes_on(two, 1)
    core.waits(two, 1)
    core.waits(two, 2)
    assert say() == [AttemptsWait([[5, 1]], False), AttemptsWait([[6, 2]], True)]
    (held,) = core.step(Arrived(Audit(4)), 1.0)
    assert held == ToDispatcher(Holding(4, [], [[5, 2], [6, 3]]))
    core.greet()
    assert say() == [AttemptsWait([[5, 2], [6, 3]], True)]


def test_results_are_not_held_back_for_those_of_handlers_that_wait() -> None:
    core = LaneCore(1, "i", "async", 2, ["waits"])
    waiting, other = (Piece("default", 2, 3, receipt, 9, [0], [], 0) for receipt in (5, 6))
    core.active += [waiting, other]
    waiting.running = other.running = 1
    core.waits(waiting, 1)
    other.running, other.done = 0, {"waits": 1}
    (ended,) = (c.message for c in core.step(Flush(other), 1.0) if isinstance(c, ToFinalizer))
    assert not ended.more


def test_seats_are_given_away_up_to_a_bound_and_the_page_shows_who_waits(tmp_path: Any) -> None:
    page = Page.create(str(tmp_path / "page"), 4, ["waits"])
    core = LaneCore(1, "i", "async", 2, ["waits"])
    seats = Seats(core, page.async_, 1, 2, 2, lambda call: call())
    piece = Piece("default", 2, 3, 5, 9, list(range(8)), [], 0)
    piece.row = page.async_.open_piece(3, 5, 9)
    reader = PageReader(str(tmp_path / "page"))
    own = SimpleNamespace(in_handler=lambda: True)

    def sit(index: int) -> Any:
        assert seats.room
        seat = seats.take(piece, index, [index, "waits", {}, 1, 1, 25, None], 0, 1.0, None)
        seat.reins = own  # type: ignore[assignment]
        return seat

    def shown() -> dict[int, Phase]:
        return {each.index: each.phase for each in reader.running("async")}

    taken = [sit(0), sit(1)]
    assert not seats.room
    for seat in taken:
        seat.begins_to_wait()
    taken += [sit(2), sit(3)]
    taken[2].begins_to_wait()  # it keeps its slot: two have given theirs away
    assert not seats.room
    assert shown() == {0: Phase.WAITING, 1: Phase.WAITING, 2: Phase.WAITING, 3: Phase.HANDLER}
    assert reader.waiting() == 3
    assert [each.index for each in reader.running("async", waiting=False)] == [3]
    taken[0].goes_on()
    assert not seats.room and shown()[0] is Phase.HANDLER
    seats.leave(taken[3])
    assert not seats.room, "three hold a slot of two"
    seats.leave(taken[2])
    taken[2].goes_on()  # of a task that was left behind
    seats.leave(taken[1])  # while it waits
    seats.leave(taken[0])
    assert seats.room and shown() == {}
    assert core.step(Arrived(Audit(1)), 1.0) == [ToDispatcher(Holding(1, [], []))]
    again = [sit(4), sit(5)]
    assert not seats.room and len(again) == 2


def test_the_page_shows_at_once_who_waits_and_who_goes_on_whenever_the_lane_hears_of_it(
    tmp_path: Any,
) -> None:
    page = Page.create(str(tmp_path / "page"), 4, ["waits"])
    core = LaneCore(1, "i", "async", 2, ["waits"])
    posted: list[Any] = []
    seats = Seats(core, page.async_, 1, 2, 2, posted.append)
    piece = Piece("default", 2, 3, 5, 9, list(range(8)), [], 0)
    piece.row = page.async_.open_piece(3, 5, 9)
    reader = PageReader(str(tmp_path / "page"))

    def sit(index: int, *, own: bool = True) -> Any:
        seat = seats.take(piece, index, [index, "waits", {}, 1, 1, 25, None], 0, 1.0, None)
        seat.reins = SimpleNamespace(in_handler=lambda: own)  # type: ignore[assignment]
        return seat

    def phase() -> Phase:
        (shown,) = reader.running("async")
        return shown.phase

    def hear() -> None:
        posted.pop(0)()

    seat = sit(0)
    seat.begins_to_wait()
    assert phase() is Phase.WAITING and seats.room
    seat.goes_on()
    assert phase() is Phase.HANDLER
    hear()
    assert phase() is Phase.HANDLER, "it has gone on since"
    seat.begins_to_wait()
    hear()
    assert phase() is Phase.WAITING, "it waits again since"
    seat.goes_on()
    hear()
    hear()
    assert phase() is Phase.HANDLER and posted == []
    seat.begins_to_wait()
    hear()
    seats.leave(seat)
    other = sit(1)
    assert other.place == seat.place
    seat.goes_on()
    seat.begins_to_wait()
    assert phase() is Phase.HANDLER, "the place is another's"
    seats.leave(other)
    sit(2, own=False).begins_to_wait()
    assert phase() is Phase.ASIDE and reader.waiting() == 1 and reader.running("async", waiting=False) == []


# --- in tests of handlers -----------------------------------------------------------------------------------------


@client.task(dict, kind="twice", waits=True)
def twice(job: Job[dict[str, Any]]) -> None:
    first = job.wait_for_callback(job.register_callback(60))
    token = job.register_callback(60)
    second = job.wait_for_callback(token)
    job.enqueue_on_completion({"got": [first, second]}, kind="told")


@client.task(dict, kind="twice_async")
async def twice_async(job: Job[dict[str, Any]]) -> None:
    first = await job.wait_for_callback(await job.register_callback(60))
    second = await job.wait_for_callback(await job.register_callback(60))
    job.enqueue_on_completion({"got": [first, second]}, kind="told")


@pytest.mark.parametrize("kind", ["twice", "twice_async"])
def test_a_handler_under_test_is_given_its_answers_beforehand(kind: str) -> None:
    def job(*answers: Any, **more: Any) -> HandlerJob[dict[str, Any]]:
        return HandlerJob({}, kind=kind, client=client, answers=answers, **more)

    result = job((1, 2), {"ok": True}).run()
    assert result.is_completed and result.staged[0].args == {"got": [[1, 2], {"ok": True}]}
    assert [token.number for token in result.job.callbacks] == [1, 2]  # type: ignore[attr-defined]
    assert job(1, CallbackTimeout("too late")).run().is_retryable
    assert job(1, ShuttingDown("stop")).run().outcome == "returned"
    assert job(1, 2, cancelled=True).run().is_cancelled
    missing = job(1).run()
    assert missing.is_retryable and "callback #2, and no answer is left" in str(missing.error)
    with pytest.raises(ValidationError, match=r"answers\[1\]"):
        job(1, {2})


def test_a_handler_under_test_is_refused_what_a_worker_would_refuse() -> None:
    def never(job: Any) -> None:
        token = job.register_callback(60)
        assert job.wait_for_callback(token) == 1
        job.wait_for_callback(token)

    result = HandlerJob(Plain(), client=client, answers=[1, 2]).run(never)
    assert "waits=True" in str(result.error)
    result = HandlerJob(Waits(), client=client, answers=[1, 2]).run(never)
    assert "its payload given" in str(result.error)
    result = HandlerJob({}, kind="unknown", answers=[1, 2]).run(never)
    assert "its payload given" in str(result.error)

    async def awaited() -> object:
        job = HandlerJob({}, kind="twice_async", client=client, answers=[3, 4])
        await twice_async(job)
        return job.staged[0].args

    assert asyncio.run(awaited()) == {"got": [3, 4]}


def test_the_shipping_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "callbacks.md"
    (code,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        if "waits=True" in block and "class Ship" in block
    )
    (tmp_path / "shipping_of_the_page.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    shipping = importlib.import_module("shipping_of_the_page")
    answers = [{"paid": True}, {"number": "P7"}]
    result = HandlerJob(shipping.Ship(7), client=shipping.client, answers=answers).run()
    assert result.is_completed and [each.args for each in result.staged] == [{"order": 7, "parcel": "P7"}]
    refused = HandlerJob(shipping.Ship(7), client=shipping.client, answers=[{"paid": False}]).run()
    assert refused.is_completed and refused.staged == ()
