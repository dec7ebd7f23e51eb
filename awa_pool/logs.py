"""Log lines of the pool's own processes: one handler on standard error, for people or for machines."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from .visible import visible

ROOT = "awa_pool"


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
    handler = logging.StreamHandler(sys.stderr)
    handler.awa_pool = True  # type: ignore[attr-defined]
    handler.setFormatter(JsonFormatter(role) if format == "json" else ConsoleFormatter(role))
    logger.addHandler(handler)
    logger.propagate = False
