"""Where a job was made, in the words of W3C trace context; OpenTelemetry is used where it is installed, and never needed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

TRACEPARENT = "awa:traceparent"
_TRACER = "awa_pool"


@cache
def _otel() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None


def current_traceparent(fallback: object = None) -> str | None:
    """Return the current span as a `traceparent`, else `fallback` if it is text."""
    trace = _otel()
    if trace is not None:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return fallback if isinstance(fallback, str) else None


@contextlib.contextmanager
def producer_span(name: str, parent: object, **attributes: str | int) -> Iterator[None]:
    """Open a span of kind PRODUCER below the current one, or below the span that `parent`, a `traceparent`, names."""
    trace = _otel()
    if trace is None:
        yield
        return
    context = None if trace.get_current_span().get_span_context().is_valid else _context_of(trace, parent)
    with trace.get_tracer(_TRACER).start_as_current_span(
        name, context=context, kind=trace.SpanKind.PRODUCER, attributes=attributes
    ):
        yield


def _context_of(trace: Any, traceparent: object) -> Any:
    parts = traceparent.split("-") if isinstance(traceparent, str) else []
    with contextlib.suppress(ValueError):
        if len(parts) == 4:
            span = trace.SpanContext(
                int(parts[1], 16),
                int(parts[2], 16),
                is_remote=True,
                trace_flags=trace.TraceFlags(int(parts[3], 16)),
            )
            return trace.set_span_in_context(trace.NonRecordingSpan(span))
    return None
