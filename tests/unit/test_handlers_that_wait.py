"""Waits for callbacks from the handler's side: what is refused, what each answer comes to, and what reaches a thread that waits."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from awa_pool.messages import (
    AwaitCallback,
    CallbackAnswered,
    CallbackRegistered,
    ForgetCallback,
    RegisterCallback,
)
from awa_pool.wire import Router, wait_for_mail
from awa_pool.worker.attempt import job_type_of
from awa_pool.worker.events import Piece
from awa_pool.worker.registering import Registrar
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
        made: Any = job_type_of(client.registry, None, self.registrar, set())(
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


@pytest.mark.parametrize("ended", [True, False])
def test_a_task_left_behind_by_its_handler_ends_as_cancelled_by_what_it_asked_for(
    world: World, ended: bool
) -> None:
    job = world.job("coro")
    said: list[str] = []

    async def left_behind() -> asyncio.Future[Any]:
        asyncio.get_running_loop().set_exception_handler(lambda _, said_of: said.append(said_of["message"]))
        asks = asyncio.ensure_future(job.register_callback(5.0))
        peer, message = await asyncio.to_thread(world.heard, RegisterCallback)
        if ended:
            job._piece = None
        world.finalizer.send(peer, CallbackRegistered(message.request, "stale", 0))
        await asyncio.wait([asks])
        return asks

    asks = asyncio.run(left_behind())
    if ended:
        assert asks.cancelled() and said == []
        with pytest.raises(LeaseLost, match="the attempt has ended"):
            asks.result()
    else:
        assert type(asks.exception()) is LeaseLost


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
