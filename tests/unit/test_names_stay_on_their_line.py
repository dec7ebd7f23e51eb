"""Names and errors come from anybody: in logs and refusals they neither begin a line of their own nor steer a terminal."""

from __future__ import annotations

import io
import logging

import pytest

from awa_pool.cli.entry import main
from awa_pool.job import Job
from awa_pool.logs import ConsoleFormatter
from awa_pool.visible import visible
from awa_pool.worker.output import TaggedStream, Tags

FORGED = "mail\n12:00:00 ERROR   supervisor: all is lost\x1b[2J\u202e"
SHOWN = r"mail\n12:00:00 ERROR   supervisor: all is lost\x1b[2J\u202e"


def test_only_what_moves_the_cursor_is_spelt_out() -> None:
    assert visible("Ящик 😀 'x' \"y\" %s") == "Ящик 😀 'x' \"y\" %s"
    assert visible(FORGED) == SHOWN
    assert visible("\ud800") == r"\ud800"


def test_a_log_line_is_one_line() -> None:
    record = logging.LogRecord("awa_pool", logging.INFO, "", 0, "serving %s", (FORGED,), None)
    line = ConsoleFormatter("supervisor").format(record)
    assert line.endswith(f"INFO    supervisor: serving {SHOWN}") and line.isprintable()


def test_a_tag_is_one_line_and_prints_pass_as_they_are() -> None:
    below, tags = io.StringIO(), Tags()
    tags.main_job = Job(None, 12, FORGED, 3)
    print("\x1b[1mbold\x1b[0m", file=TaggedStream(below, "stdout", tags, as_json=False))  # type: ignore[type-var]
    assert below.getvalue() == f"[{SHOWN} 12 attempt 3] \x1b[1mbold\x1b[0m\n"


def test_a_refusal_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FORGED]) == 2
    written = capsys.readouterr().err
    assert written.count("\n") == 1 and "\x1b" not in written
