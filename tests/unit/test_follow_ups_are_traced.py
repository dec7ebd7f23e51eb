"""With OpenTelemetry installed each follow-up gets a producer span in its parent's trace; without it nothing is missing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from awa_pool import Client, tracing
from awa_pool.job import Job
from awa_pool.testing import HandlerJob

otel = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

PARENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class SendMail:
    to: str


client = Client("host=nowhere")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The spans that end in this test. The process's own provider stays as it is."""
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(exporting.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def stage(job: Job[SendMail]) -> None:
    job.enqueue_on_completion(SendMail("b"), kind="one")
    job.enqueue_on_completion(SendMail("c"), kind="two")


def stage_in_a_span(job: Job[SendMail]) -> None:
    with otel.get_tracer("the app").start_as_current_span("work"):
        stage(job)


def told(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def test_each_follow_up_has_a_producer_span_below_the_handlers_own(spans: Any) -> None:
    staged = HandlerJob(SendMail("a"), id=7).run(stage_in_a_span).staged
    one, two, work = spans.get_finished_spans()
    assert [span.name for span in (one, two, work)] == ["enqueue one", "enqueue two", "work"]
    for span in (one, two):
        assert span.kind is otel.SpanKind.PRODUCER
        assert span.parent.span_id == work.context.span_id
        assert span.attributes["parent_job_id"] == 7
    assert [each.metadata["awa:traceparent"] for each in staged] == [told(one), told(two)]


def test_where_the_handler_opens_none_they_join_the_trace_that_its_job_came_with(spans: Any) -> None:
    staged = HandlerJob(SendMail("a"), traceparent=PARENTS).run(stage).staged
    one, two = spans.get_finished_spans()
    for span in (one, two):
        assert f"{span.context.trace_id:032x}" == PARENTS.split("-")[1]
        assert f"{span.parent.span_id:016x}" == PARENTS.split("-")[2]
    assert [each.metadata["awa:traceparent"] for each in staged] == [told(one), told(two)]


def test_nothing_of_ours_lies_around_a_handler(spans: Any) -> None:
    seen: list[bool] = []
    HandlerJob(SendMail("a"), traceparent=PARENTS).run(
        lambda job: seen.append(otel.get_current_span().get_span_context().is_valid)
    )
    assert seen == [False]
    assert spans.get_finished_spans() == ()


def test_a_follow_up_of_a_spec_is_traced_alike(spans: Any) -> None:
    app = Client("host=nowhere")
    app.task(SendMail, kind="mail")(stage_in_a_span)
    app.on_completed_enqueue("mail", lambda args, job: {"n": 1} and SendMail("spec"))
    HandlerJob(SendMail("a"), client=app, traceparent=PARENTS).run()
    (of_spec,) = [span for span in spans.get_finished_spans() if span.name == "enqueue mail"]
    assert f"{of_spec.context.trace_id:032x}" == PARENTS.split("-")[1]


@pytest.mark.parametrize("text", ["nonsense", "00-zz-zz-01", "00-00-00-00", 7])
def test_what_is_no_traceparent_does_no_harm(spans: Any, text: Any) -> None:
    job = HandlerJob(SendMail("a"), traceparent=text)
    assert len(job.run(stage).staged) == 2


def test_without_the_library_follow_ups_carry_the_parents_own_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    tracing._otel.cache_clear()
    try:
        (with_one, _) = HandlerJob(SendMail("a"), traceparent=PARENTS).run(stage).staged
        (without, _) = HandlerJob(SendMail("a")).run(stage).staged
    finally:
        tracing._otel.cache_clear()
    assert with_one.metadata["awa:traceparent"] == PARENTS
    assert "awa:traceparent" not in without.metadata
