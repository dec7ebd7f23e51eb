"""A handler's requests are checked, keyed and written when they are staged; one bad one poisons the attempt."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from awa_pool import Client, EnqueueRequest, InsertRequest, StagingError, TerminalError, ValidationError
from awa_pool.follow_ups import MOST_BYTES, MOST_REQUESTS, FollowUps, StagingBuffer
from awa_pool.job import Job


@dataclass
class SendMail:
    to: str


@dataclass
class PackParcel:
    weight_g: int


client = Client("host=nowhere")


@client.task(SendMail, queue="mail", priority=3)
def send_mail(job: Job[SendMail]) -> None: ...


@client.task(PackParcel)
def pack_parcel(job: Job[PackParcel]) -> None: ...


def staging(traceparent: str | None = None) -> tuple[StagingBuffer, FollowUps]:
    buffer = StagingBuffer(client.registry, 7, traceparent)
    return buffer, FollowUps(buffer)


def staged(buffer: StagingBuffer) -> list[dict[str, Any]]:
    return [orjson.loads(sealed.text) for sealed in buffer.close()]


def test_requests_are_kept_in_order_with_their_tasks_defaults_and_their_parent() -> None:
    buffer, follow_ups = staging()
    follow_ups.enqueue_on_completion(SendMail("a"), metadata={"why": "signup"}, tags=["x"])
    follow_ups.enqueue_on_completion({"n": 1}, kind="other", queue="q", unique_opts={})
    mail, other = staged(buffer)
    assert (mail["kind"], mail["queue"], mail["priority"], mail["args"]) == (
        "send_mail",
        "mail",
        3,
        {"to": "a"},
    )
    assert mail["metadata"] == {"why": "signup", "awa:parent": 7}
    assert other["metadata"] == {"awa:parent": 7}
    assert len(bytes.fromhex(other["unique_key"])) == 16


def test_the_key_is_the_one_that_an_insert_would_have() -> None:
    from awa_pool.requests import chunks_of

    buffer, follow_ups = staging()
    follow_ups.enqueue_on_completion(SendMail("a"), unique_opts={"by_queue": True})
    (inserted,) = chunks_of(
        client.registry, [InsertRequest(args=SendMail("a"), unique_opts={"by_queue": True})]
    )
    assert staged(buffer)[0]["unique_key"] == orjson.loads(inserted.json())[0]["unique_key"]


def test_the_setters_of_a_request_never_discard_each_other() -> None:
    buffer, follow_ups = staging()
    plain = EnqueueRequest(SendMail("a")).queue("fast")
    follow_ups.enqueue_on_completion(
        plain.unique(by_queue=True).metadata({"m": 1}).priority(1).max_attempts(2)
    )
    follow_ups.enqueue_on_completion(plain)
    first, second = staged(buffer)
    assert (first["queue"], first["priority"], first["max_attempts"], first["metadata"]["m"]) == (
        "fast",
        1,
        2,
        1,
    )
    assert "unique_key" in first
    assert "unique_key" not in second and second["queue"] == "fast"


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (SendMail(float("nan")), {}, "args.to"),  # type: ignore[arg-type]
    ({"at": datetime(2026, 1, 1)}, {"kind": "k"}, "args.at"),
    (SendMail("a"), {"priority": 5}, "priority"),
    (SendMail("a"), {"max_attempts": 0}, "max_attempts"),
    (SendMail("a"), {"run_at": datetime(2026, 1, 1)}, "run_at"),
    (SendMail("a"), {"kind": "k" * 201}, "kind"),
    (SendMail("a"), {"queue": "q" * 201}, "queue"),
    (SendMail("a"), {"tags": ["t"] * 21}, "tags"),
    (SendMail("a\0"), {}, "args.to"),
    (SendMail("a"), {"metadata": {"awa:parent": 1}}, "metadata.awa:parent"),
    (SendMail("a"), {"unique_opts": {"by_moon": True}}, "unique_opts.by_moon"),
    (SendMail("a"), {"deadline": -1}, "deadline"),
    (PackParcel(1), {"kind": "send_mail"}, "args"),
]


@pytest.mark.parametrize(
    ("args", "options", "path"), BAD, ids=[f"{path}-{n}" for n, (_, _, path) in enumerate(BAD)]
)
def test_a_bad_request_names_its_field_and_poisons(args: Any, options: dict[str, Any], path: str) -> None:
    buffer, follow_ups = staging()
    with pytest.raises(StagingError.Invalid) as refused:
        follow_ups.enqueue_on_completion(args, **options)
    assert refused.value.path == path and path.split(".")[0] in str(refused.value)
    assert refused.value.__cause__ is not None
    assert isinstance(refused.value, TerminalError)
    assert buffer.problem is refused.value
    follow_ups.enqueue_on_completion(SendMail("b"))
    assert buffer.problem is refused.value  # the first one counts


def test_seventeen_requests_are_too_many() -> None:
    buffer, follow_ups = staging()
    for _ in range(MOST_REQUESTS):
        follow_ups.enqueue_on_completion(SendMail("a"))
    assert buffer.problem is None
    with pytest.raises(StagingError.TooMany, match="16"):
        follow_ups.enqueue_on_completion(SendMail("a"))
    assert isinstance(buffer.problem, StagingError.TooMany)


def test_one_byte_more_than_64_kib_is_too_large() -> None:
    buffer, follow_ups = staging()
    rest = len(b"send_mail") + len(b"mail") + len(b'{"to":""}')
    follow_ups.enqueue_on_completion(SendMail("a" * (MOST_BYTES - rest)))
    assert buffer.problem is None
    other, follow_ups = staging()
    with pytest.raises(StagingError.TooLarge, match=str(MOST_BYTES)):
        follow_ups.enqueue_on_completion(SendMail("a" * (MOST_BYTES - rest + 1)))
    assert other.problem is not None


def test_the_64_kib_are_those_of_all_requests_of_an_attempt_together() -> None:
    buffer, follow_ups = staging()
    rest = len(b"send_mail") + len(b"mail") + len(b'{"to":""}')
    for _ in range(4):
        follow_ups.enqueue_on_completion(SendMail("a" * (MOST_BYTES // 4 - rest)))
    assert buffer.problem is None
    with pytest.raises(StagingError.TooLarge, match=f"on top of {MOST_BYTES}"):
        follow_ups.enqueue_on_completion(SendMail(""))
    assert isinstance(buffer.problem, StagingError.TooLarge) and len(buffer.staged) == 4


def test_after_the_handler_returned_nothing_is_staged_and_nothing_poisoned() -> None:
    buffer, follow_ups = staging()
    follow_ups.enqueue_on_completion(SendMail("a"))
    assert len(buffer.close()) == 1
    with pytest.raises(StagingError.Sealed):
        follow_ups.enqueue_on_completion(SendMail("b"))
    assert buffer.problem is None and len(buffer.staged) == 1


def test_a_request_with_options_beside_it_is_refused() -> None:
    buffer, follow_ups = staging()
    with pytest.raises(StagingError.Invalid, match="own options"):
        follow_ups.enqueue_on_completion(EnqueueRequest(SendMail("a")), queue="q")
    assert buffer.problem is not None


def test_an_unknown_option_of_a_request_is_named() -> None:
    with pytest.raises(ValidationError, match="colour"):
        EnqueueRequest(SendMail("a"), colour="red")


def test_copies_of_the_handle_stage_for_the_same_attempt_from_any_thread() -> None:
    buffer, follow_ups = staging()
    handles = [copy.copy(follow_ups), copy.deepcopy(follow_ups), follow_ups]
    threads = [
        threading.Thread(target=handle.enqueue_on_completion, args=(SendMail(str(n)),))
        for n, handle in enumerate(handles * 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(int(item["args"]["to"]) for item in staged(buffer)) == list(range(15))


def test_the_parents_trace_goes_on_where_no_span_is_current() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    buffer, follow_ups = staging(trace)
    follow_ups.enqueue_on_completion(SendMail("a"), run_at=datetime(2030, 1, 1, tzinfo=UTC))
    (item,) = staged(buffer)
    assert item["metadata"]["awa:traceparent"].split("-")[1] == trace.split("-")[1]
    assert item["run_at"].startswith("2030-01-01")


def test_a_job_outside_a_worker_says_where_staging_works() -> None:
    with pytest.raises(TypeError, match="HandlerJob"):
        Job({}, 1, "k").enqueue_on_completion({}, kind="x")
