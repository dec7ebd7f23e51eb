"""What handlers print and log carries their job's tag; everything else passes unchanged."""

from __future__ import annotations

import contextlib
import contextvars
import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from awa_pool.job import Job
from awa_pool.logs import JsonFormatter
from awa_pool.worker.output import TaggedStream, Tags, finish_lines, install

JOB: Job[None] = Job(None, 12, "mail", 3)


@pytest.fixture
def tags() -> Tags:
    return Tags()


def test_whole_lines_of_a_job_are_tagged_and_others_pass(tags: Tags) -> None:
    below = io.StringIO()
    stream = TaggedStream(below, "stdout", tags, as_json=False)
    stream.write("before\n")
    tags.main_job = JOB
    print("one", "two", file=stream)
    stream.writelines(["a\nb\n", "c"])
    tags.main_job = None
    stream.write("after\n")
    assert below.getvalue() == (
        "before\n[mail 12 attempt 3] one two\n[mail 12 attempt 3] a\n[mail 12 attempt 3] b\n"
        "[mail 12 attempt 3] c\nafter\n"
    )


def test_a_task_of_the_async_lane_has_its_own_tag(tags: Tags) -> None:
    below = io.StringIO()
    stream = TaggedStream(below, "stdout", tags, as_json=False)

    def within_task() -> None:
        tags.task_job.set(JOB)
        print("x", file=stream)

    contextvars.copy_context().run(within_task)
    print("y", file=stream)
    assert below.getvalue() == "[mail 12 attempt 3] x\ny\n"


def test_json_lines_carry_the_job_as_fields(tags: Tags) -> None:
    below = io.StringIO()
    stream = TaggedStream(below, "stderr", tags, as_json=True)
    tags.main_job = JOB
    print('say "hi"', file=stream)
    line = json.loads(below.getvalue())
    assert (line["logger"], line["message"], line["role"]) == ("stderr", 'say "hi"', "worker")
    assert (line["job_id"], line["kind"], line["attempt"]) == (12, "mail", 3)


def test_a_stream_that_is_gone_harms_no_handler(tags: Tags) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    stream = TaggedStream(Gone(), "stdout", tags, as_json=False)
    print("lost", file=stream, flush=True)


def test_an_endless_line_is_put_out_in_parts(tags: Tags) -> None:
    below = io.StringIO()
    stream = TaggedStream(below, "stdout", tags, as_json=False)
    tags.main_job = JOB
    stream.write("x" * 70_000)
    assert below.getvalue().endswith("x\n")


@contextlib.contextmanager
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Streams and root logger as in a new process, within the test (pytest changes both between its phases)."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    below = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", io.StringIO())
        patched.setattr(sys, "stderr", below)
        try:
            yield below
        finally:
            root.handlers[:] = before
            root.setLevel(level)


def test_logging_without_a_set_up_goes_tagged_to_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_process(monkeypatch) as below:
        tags = install({"log_level": "info", "worker": 7})
        tags.main_job = JOB
        logging.getLogger("shop").info("sold %d", 3)
        print("no end", end="")
        finish_lines()
    line = below.getvalue()
    assert line.startswith("[mail 12 attempt 3] ") and line.endswith(" INFO    worker 7: sold 3\n")


def test_handlers_of_the_app_keep_their_format_and_get_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_process(monkeypatch) as below:
        logging.basicConfig(format="mine: %(message)s (%(job_id)s)", level=logging.INFO)
        tags = install({})
        tags.main_job = JOB
        logging.getLogger("shop").info("sold")
    assert below.getvalue() == "[mail 12 attempt 3] mine: sold (12)\n"


def test_json_records_have_job_fields_and_are_not_wrapped_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_process(monkeypatch) as below:
        tags = install({"log_format": "json"})
        tags.main_job = JOB
        logging.getLogger("shop").warning("sold")
    record = json.loads(below.getvalue())
    assert (record["level"], record["logger"], record["message"]) == ("warning", "shop", "sold")
    assert (record["job_id"], record["kind"], record["attempt"]) == (12, "mail", 3)


def test_json_records_hold_exceptions_and_strange_arguments() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        record = logging.LogRecord("shop", logging.ERROR, "f", 1, "%s", (object,), sys.exc_info())
    fields = json.loads(JsonFormatter("worker").format(record))
    assert "boom" in fields["error"] and "object" in fields["message"]
