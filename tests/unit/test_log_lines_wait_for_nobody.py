"""What is logged is written by a thread: a full pipe holds up nobody, and what was left out is counted."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator

import pytest

from awa_pool import logs
from awa_pool.line_writer import MOST_LINES
from awa_pool.logs import PatientHandler, flush_logs, set_up_logging


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The reading end of a pipe that stands for standard error; logging of the package as it was before, at the end."""
    reader, writer = os.pipe()
    logger = logging.getLogger(logs.ROOT)
    before = logger.handlers[:], logger.level, logger.propagate, logging.getLogger().handlers[:]
    logger.handlers, logging.getLogger().handlers = [], []
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logging("supervisor")
        monkeypatch.undo()
        yield reader
    logger.handlers, logger.level, logger.propagate, logging.getLogger().handlers = before
    os.close(reader)


def test_lines_come_out_in_order_and_a_flush_waits_for_them(pipe: int) -> None:
    log = logging.getLogger("awa_pool.test")
    for number in range(100):
        log.info("line %d", number)
    flush_logs()
    written = os.read(pipe, 1 << 16).decode()
    assert re.findall(r"line (\d+)", written) == [str(number) for number in range(100)]
    assert written.splitlines()[0].endswith("INFO    supervisor: line 0")


def test_a_reader_that_rests_stops_nobody_and_learns_how_much_it_has_missed(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FLUSH_S", 0.05)
    log = logging.getLogger("awa_pool.test")
    lines, size = MOST_LINES + 3000, 100
    for number in range(lines):
        log.info("line %d %s", number, "x" * size)
    flush_logs()  # gives up: nobody reads
    written = b""
    handlers = logging.getLogger(logs.ROOT).handlers
    (handler,) = [each for each in handlers if isinstance(each, PatientHandler)]
    while not handler.writer.flush(0.01):
        written += os.read(pipe, 1 << 16)
    log.info("afterwards")
    handler.writer.flush(5)
    os.set_blocking(pipe, False)
    try:
        while chunk := os.read(pipe, 1 << 16):
            written += chunk
    except BlockingIOError:
        pass
    numbers = [int(number) for number in re.findall(rb"line (\d+)", written)]
    assert numbers == sorted(set(numbers)) and numbers[:100] == list(range(100))
    told = re.findall(rb"WARNING supervisor: (\d+) lines of the log were left out", written)
    assert sum(map(int, told)) == lines - len(numbers) > 0
    assert written.endswith(b"supervisor: afterwards\n")
