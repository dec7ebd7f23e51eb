"""Log lines of the pool's own processes: one handler on standard error, for people or for machines."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime

import orjson

from .line_writer import LineWriter
from .visible import visible

ROOT = "awa_pool"
FLUSH_S = 1.0
"""For so long a process that ends waits for whoever reads its log."""


class ConsoleFormatter(logging.Formatter):
    """`12:30:05 WARNING dispatcher: text`."""

    def __init__(self, role: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)-7s {role}: %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Put what messages quote (names, errors) on one line; a traceback follows on lines of its own."""
        return visible(super().formatMessage(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, role, pid, logger, message; error, and job_id, kind and attempt, where there are any."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "role": self._role,
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        if getattr(record, "job_kind", None) is not None:
            line |= {"job_id": record.job_id, "kind": record.job_kind, "attempt": record.job_attempt}  # type: ignore[attr-defined]
        return orjson.dumps(line, default=str).decode()


class PatientHandler(logging.Handler):
    """Writes to a descriptor without ever waiting for its reader; says how much was left out once there is room again."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.writer = LineWriter(fd)

    def emit(self, record: logging.LogRecord) -> None:
        """Have the record written."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 (a record that cannot be formatted stops nobody)
            self.handleError(record)
            return
        if count := self.writer.take_left_out():
            self.writer.write(self.format(left_out(count)))
        self.writer.write(line)

    def flush(self) -> None:
        """Wait a moment until all is written; `logging` asks for it when the interpreter ends."""
        self.writer.flush(FLUSH_S)


def left_out(count: int) -> logging.LogRecord:
    """Make the record that says how many lines nobody will see."""
    text = f"{count} lines of the log were left out: nobody had read what was written before"
    warning = {"name": ROOT, "levelno": logging.WARNING, "levelname": "WARNING", "process": os.getpid()}
    return logging.makeLogRecord(warning | {"msg": text})


def flush_logs() -> None:
    """Wait a moment until what was logged is written: for a process that ends without the interpreter's farewell."""
    for handler in logging.getLogger(ROOT).handlers:
        handler.flush()


def _handler() -> logging.Handler:
    """A handler for standard error, where that is a descriptor (an embedding program may have put an object there)."""
    try:
        return PatientHandler(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):
        return logging.StreamHandler(sys.stderr)


def set_up_logging(role: str, level: str = "info", format: str = "console") -> None:
    """Log this package's lines to standard error, unless the program has set up logging of its own.

    `level` is debug, info, warning or error; `format` console or json. Calling it again replaces the handler.
    """
    logger = logging.getLogger(ROOT)
    logger.setLevel(level.upper())
    ours = [handler for handler in logger.handlers if getattr(handler, "awa_pool", False)]
    if not ours and (logger.handlers or logging.getLogger().handlers):
        return
    for handler in ours:
        logger.removeHandler(handler)
        handler.flush()
    handler = _handler()
    handler.awa_pool = True  # type: ignore[attr-defined]
    handler.setFormatter(JsonFormatter(role) if format == "json" else ConsoleFormatter(role))
    logger.addHandler(handler)
    logger.propagate = False
