"""`HandlerJob`: a handler's unit test, without a database, under a worker's validation and limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from awa_pool import (
    Cancel,
    Client,
    DecodeError,
    EnqueueRequest,
    RetryAfter,
    Snooze,
    StagingError,
    TerminalError,
    ValidationError,
)
from awa_pool.follow_ups import MOST_BYTES, MOST_REQUESTS
from awa_pool.job import Job
from awa_pool.testing import HandlerJob, StagedJob, WorkResult

client = Client("host=nowhere")


@dataclass
class SignUp:
    name: str
    tags: tuple[str, ...] = ()


@dataclass
class SendMail:
    to: str
    lines: list[str] = field(default_factory=list)


@client.task(SignUp, queue="people", max_attempts=3, deadline=30)
def sign_up(job: Job[SignUp]) -> None:
    job.enqueue_on_completion(SendMail(job.args.name), metadata={"why": "signup"})


@client.task(SendMail, queue="mail", priority=3)
async def send_mail(job: Job[SendMail]) -> None:
    await asyncio.sleep(0)
    job.enqueue_on_completion(SignUp("again"))


def test_what_a_handler_staged_is_told_in_plain_values() -> None:
    job = HandlerJob(SignUp("ann"), client=client, id=7)
    sign_up(job)
    assert job.staged == [
        StagedJob(
            "send_mail", {"to": "ann", "lines": []}, "mail", 3, metadata={"why": "signup", "awa:parent": 7}
        )
    ]
    assert job.problem is None


def test_a_job_has_its_tasks_defaults_and_what_the_test_says() -> None:
    job = HandlerJob(SignUp("ann"), client=client)
    assert (job.kind, job.queue, job.max_attempts, job.priority, job.attempt) == (
        "sign_up", "people", 3, 2, 1,
    )  # fmt: skip
    assert (job.deadline_s, job.metadata, job.tags, job.is_cancelled()) == (30.0, {}, (), False)
    own = HandlerJob(
        SignUp("ann"), client=client, queue="q", max_attempts=9, priority=1, attempt=4, deadline=5, tags=["x"],
        metadata={"a": 1}, ordering_key="k", cancelled=True,
    )  # fmt: skip
    assert (own.queue, own.max_attempts, own.priority, own.attempt, own.deadline_s) == ("q", 9, 1, 4, 5.0)
    assert (own.tags, own.metadata, own.ordering_key) == (("x",), {"a": 1}, "k")
    assert own.is_cancelled()


def test_without_an_app_the_kind_is_the_args_types_name() -> None:
    job = HandlerJob(SendMail("ann"))
    assert (job.kind, job.queue, job.args) == ("send_mail", "default", SendMail("ann"))
    assert HandlerJob({"n": 1}, kind="plain").args == {"n": 1}


def test_args_have_gone_through_json_as_in_a_worker() -> None:
    args = SignUp("ann", ("a", "b"))
    job = HandlerJob(args)
    assert job.args == args and job.args is not args
    with pytest.raises(DecodeError, match="tags"):
        HandlerJob(SignUp("ann", tags=(1,)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "path"),
    [
        (lambda: HandlerJob(SignUp("a\0")), "args.name"),
        (lambda: HandlerJob({"n": float("nan")}, kind="k"), "args.n"),
        (lambda: HandlerJob(SignUp("a"), priority=5), "priority"),
        (lambda: HandlerJob(SignUp("a"), kind="k" * 201), "kind"),
        (lambda: HandlerJob(SignUp("a"), metadata={"awa:parent": 1}), "metadata.awa:parent"),
        (lambda: HandlerJob(SignUp("a"), max_attempts=2, attempt=3), "attempt"),
        (lambda: HandlerJob({"n": 1}), "kind"),
    ],
)
def test_a_job_that_no_insert_would_take_is_refused(made: Any, path: str) -> None:
    with pytest.raises(ValidationError) as refused:
        made()
    assert refused.value.path == path


def test_the_limits_are_those_of_a_worker() -> None:
    job = HandlerJob(SignUp("ann"), client=client)
    for n in range(MOST_REQUESTS):
        job.enqueue_on_completion(SendMail(str(n)))
    with pytest.raises(StagingError.TooMany):
        job.enqueue_on_completion(SendMail("one more"))
    assert isinstance(job.problem, StagingError.TooMany)
    assert len(job.staged) == MOST_REQUESTS
    large = HandlerJob(SignUp("ann"))
    with pytest.raises(StagingError.TooLarge):
        large.enqueue_on_completion(SendMail("x" * MOST_BYTES))


def test_a_run_ends_as_in_a_worker() -> None:
    result = HandlerJob(SignUp("ann"), client=client).run()
    assert result and result.is_completed and result.state is None
    assert [staged.kind for staged in result.staged] == ["send_mail"]
    assert HandlerJob(SendMail("ann"), client=client).run().staged[0].kind == "sign_up"  # an async handler


def swallow(job: Job[SignUp]) -> None:
    try:
        job.enqueue_on_completion(SendMail("ann"), priority=9)
    except StagingError:
        return


def fail(job: Job[SignUp]) -> None:
    job.enqueue_on_completion(SendMail("ann"))
    raise ValueError("no luck")


def end_terminally(job: Job[SignUp]) -> None:
    raise TerminalError("never")


@pytest.mark.parametrize(
    ("handler", "attempt", "outcome", "error"),
    [
        (swallow, 1, "failed", "priority"),
        (fail, 1, "retryable", "no luck"),
        (fail, 3, "failed", "no luck"),
        (end_terminally, 1, "failed", "never"),
        (lambda job: RetryAfter(5), 1, "retryable", "after 5 s"),
        (lambda job: Snooze(5), 1, "snoozed", None),
        (lambda job: Cancel("not wanted"), 1, "cancelled", "not wanted"),
        (lambda job: "a value", 1, "completed", None),
    ],
)
def test_every_ending_is_told(handler: Any, attempt: int, outcome: str, error: str | None) -> None:
    result = HandlerJob(SignUp("ann"), client=client, attempt=attempt).run(handler)
    assert result.outcome == outcome
    assert getattr(result, f"is_{outcome}")
    assert result.staged == ()
    assert error is None if result.error is None else error is not None and error in result.error
    assert isinstance(result.exception, ValueError) == (handler is fail)


def test_after_the_run_nothing_can_be_staged() -> None:
    job = HandlerJob(SignUp("ann"), client=client)
    handle = job.follow_ups()
    job.run()
    with pytest.raises(StagingError.Sealed):
        handle.enqueue_on_completion(SendMail("late"))


def test_specs_of_the_app_come_first() -> None:
    app = Client("host=nowhere")
    app.task(SignUp)(sign_up)
    app.on_completed_enqueue(
        SignUp, lambda args, job: EnqueueRequest(SendMail("spec"), queue="news").tags(["spec"])
    )
    staged = HandlerJob(SignUp("ann"), client=app).run().staged
    assert [(each.args["to"], each.queue, each.tags) for each in staged] == [
        ("spec", "news", ("spec",)),
        ("ann", "default", ()),
    ]


def test_progress_is_checked_and_seen_and_that_of_an_attempt_before_is_there() -> None:
    def handler(job: Job[SignUp]) -> None:
        before = (job.progress or {}).get("metadata", {}).get("rows", 0)
        job.set_progress(40, "half way")
        job.update_metadata({"rows": before + 1})
        job.flush_progress()

    job = HandlerJob(SignUp("ann"), progress={"metadata": {"rows": 6}})
    handler(job)
    assert job.progress == {"percent": 40, "message": "half way", "metadata": {"rows": 7}}
    with pytest.raises(ValidationError, match="percent"):
        HandlerJob(SignUp("ann")).set_progress(101)


def test_a_run_without_a_handler_says_what_to_give() -> None:
    with pytest.raises(TypeError, match="client="):
        HandlerJob(SignUp("ann")).run()


def test_an_async_handler_inside_a_loop_is_awaited_by_the_test() -> None:
    async def check() -> None:
        job = HandlerJob(SendMail("ann"), client=client)
        with pytest.raises(TypeError, match="await the handler"):
            job.run()
        await send_mail(job)
        assert [each.kind for each in job.staged] == ["sign_up"]

    asyncio.run(check())


def test_a_failing_assertion_of_pytest_in_a_stub_fails_the_test() -> None:
    with pytest.raises(pytest.fail.Exception):
        HandlerJob(SignUp("ann")).run(lambda job: pytest.fail("a stub was called"))


def test_what_an_assertion_shows_of_a_result_begins_with_the_error() -> None:
    result = WorkResult(
        outcome="failed", error="no ink " * 99, error_type="shop.NoInk", job=HandlerJob({}, kind="add", id=7)
    )
    assert repr(result).startswith("<WorkResult failed: shop.NoInk: no ink no ink")
    assert repr(result).endswith("; job 7, kind add>") and len(repr(result)) < 260
    assert repr(WorkResult(outcome="snoozed", delay_s=3.0)) == "<WorkResult snoozed: delay_s=3.0>"
