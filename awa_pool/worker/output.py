"""Tags what a handler prints and logs with its job: id, kind and attempt.

While nothing runs, streams and log records pass unchanged. The tag is looked up per line, never per job, so a job
that prints nothing pays one attribute store.
"""

from __future__ import annotations

import contextvars
import logging
import os
import select
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from awa_pool.job import Job
from awa_pool.logs import ConsoleFormatter, JsonFormatter, left_out
from awa_pool.visible import visible

_LINE_CAP = 64 * 1024
ROOM_MS = 500
"""For so long the worker waits for a reader that rests, the first time."""
NOBODY: Any = object()
"""In the place of a task's job: what is written now is the worker's own, whatever runs beside."""


class Tags:
    """Which job the calling code belongs to."""

    def __init__(self) -> None:
        self.main_job: Job[Any] | None = None
        """The job of the main thread; threads that its handler starts count as its own."""
        self.task_job: contextvars.ContextVar[Job[Any] | None] = contextvars.ContextVar(
            "awa_pool_job", default=None
        )
        """The job of an asyncio task."""

    def current(self) -> Job[Any] | None:
        job = self.task_job.get()
        return None if job is NOBODY else job or self.main_job


class TaggedStream:
    """Stands in for sys.stdout or sys.stderr: whole lines go on, with the job's tag in front."""

    def __init__(self, stream: TextIO, name: str, tags: Tags, as_json: bool) -> None:
        self._stream = stream
        self._name = name
        self._tags = tags
        self._as_json = as_json
        self._partial = ""
        self._partial_job: Job[Any] | None = None

    def write(self, text: str) -> int:
        """Write; a stream that is gone or full takes nothing away from the handler."""
        job = self._tags.current()
        if self._partial and job is not self._partial_job:
            self.finish_line()
        if job is None:
            self._put(text)
            return len(text)
        *lines, rest = (self._partial + text).split("\n")
        self._partial, self._partial_job = rest, job
        if lines:
            self._put("".join(self._tagged(line, job) for line in lines))
        if len(rest) > _LINE_CAP:
            self.finish_line()
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def finish_line(self) -> None:
        """Put out what a job left without a line end."""
        if self._partial and self._partial_job is not None:
            partial, job = self._partial, self._partial_job
            self._partial, self._partial_job = "", None
            self._put(self._tagged(partial, job))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _tagged(self, line: str, job: Job[Any]) -> str:
        if self._as_json:
            record = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "level": "info",
                "role": "worker",
                "pid": os.getpid(),
                "logger": self._name,
                "message": line,
                "job_id": job.id,
                "kind": job.kind,
                "attempt": job.attempt,
            }
            return orjson.dumps(record).decode() + "\n"
        return f"[{visible(job.kind)} {job.id} attempt {job.attempt}] {line}\n"

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            if text.endswith("\n"):
                self._stream.flush()
        except (OSError, ValueError):
            return


class JobFilter(logging.Filter):
    """Puts `job_id`, `job_kind` and `job_attempt` (or None) on each record that does not have them."""

    def __init__(self, tags: Tags) -> None:
        super().__init__()
        self._tags = tags

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "job_id"):
            return True
        job = self._tags.current()
        record.job_id = job.id if job else None
        record.job_kind = job.kind if job else None
        record.job_attempt = job.attempt if job else None
        return True


class WorkerHandler(logging.StreamHandler[Any]):
    """Logs to a stream. A job's lines wait for whoever reads them, as what it prints does; the worker's own do not, as
    nobody would end that: where there is no room, they are left out and counted."""

    def __init__(self, stream: Any, tags: Tags) -> None:
        super().__init__(stream)
        self._tags = tags
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it."""
        fd = None if self._tags.current() is not None else self._descriptor()
        if fd is None:
            super().emit(record)
            return
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 (as StreamHandler does)
            self.handleError(record)
            return
        if not self._has_room(fd):
            self._left_out += 1
            return
        if isinstance(self.stream, TaggedStream):
            self.stream.finish_line()
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._write(fd, self.format(left_out(count)))
        self._write(fd, line)

    def _descriptor(self) -> int | None:
        try:
            self.stream.flush()
            return int(self.stream.fileno())
        except (AttributeError, OSError, ValueError):  # an object that the app has put there, or closed
            return None

    def _write(self, fd: int, line: str) -> None:
        """Write in pieces that a pipe with any room takes whole; the rest of a line for which there is none is dropped."""
        data = line.encode(errors="backslashreplace") + b"\n"
        for at in range(0, len(data), select.PIPE_BUF):
            if not self._has_room(fd):
                self._left_out += 1
                return
            try:
                os.write(fd, data[at : at + select.PIPE_BUF])
            except OSError:
                return

    def _has_room(self, fd: int) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(0 if self._left_out else ROOM_MS))


def install(settings: Mapping[str, Any]) -> Tags:
    """Tag this process's standard streams and logging; handlers the app has set up keep their formats.

    Returns the `Tags` that executors set.
    """
    tags = Tags()
    as_json = settings.get("log_format") == "json"
    replaced: list[tuple[TextIO, TaggedStream]] = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue  # closed by whoever started the pool
        tagged = TaggedStream(stream, name, tags, as_json)
        setattr(sys, name, tagged)
        replaced.append((stream, tagged))
    root = logging.getLogger()
    if not root.handlers:
        _add_root_handler(root, settings, as_json, tags)
    for handler in root.handlers:
        handler.addFilter(JobFilter(tags))
        if not isinstance(handler, logging.StreamHandler) or as_json:
            continue
        for stream, tagged in replaced:
            if handler.stream is stream:  # set up while the app was imported
                handler.setStream(tagged)
    return tags


def finish_lines() -> None:
    """Put out what jobs have printed without a line end."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TaggedStream):
            stream.finish_line()


def _add_root_handler(root: logging.Logger, settings: Mapping[str, Any], as_json: bool, tags: Tags) -> None:
    stream = sys.stderr
    # JSON records carry the job as fields: they must not be wrapped a second time as printed text.
    bare = stream._stream if as_json and isinstance(stream, TaggedStream) else stream
    handler = WorkerHandler(bare, tags)
    role = f"worker {settings.get('worker', '')}".rstrip()
    handler.setFormatter(JsonFormatter("worker") if as_json else ConsoleFormatter(role))
    root.addHandler(handler)
    level = logging.getLevelName(str(settings.get("log_level") or "info").upper())
    root.setLevel(level if isinstance(level, int) else logging.INFO)
