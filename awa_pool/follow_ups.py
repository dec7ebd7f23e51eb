"""Follow-ups that a handler stages: jobs that exist exactly if its attempt completes.

A request is validated, given its unique key and written as JSON when it is staged, so that nothing of it can fail for
reasons of its own when the attempt is finished, and no user code runs there. `seal` gives the item that SQL takes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, Self

import orjson

from . import validation as gate
from .errors import StagingError, ValidationError
from .registry import Registry
from .requests import InsertRequest, Options, item_json, options_of
from .tracing import TRACEPARENT, current_traceparent, producer_span

MOST_REQUESTS = 16
MOST_BYTES = 64 * 1024
PARENT = "awa:parent"


class EnqueueRequest:
    """A job to be put in, built step by step; each setter returns a request with that one thing changed.

    `EnqueueRequest(SendMail(to="x")).queue("mail").unique().metadata({"why": "signup"})`
    """

    __slots__ = ("_fields",)

    def __init__(self, args: Any, **options: Any) -> None:
        """Take the args and, by name, any of the options that the setters set."""
        unknown = options.keys() - _SETTERS
        if unknown:
            raise ValidationError("no such option", path=min(unknown))
        self._fields: dict[str, Any] = {"args": args, **options}

    def kind(self, kind: str) -> Self:
        """Name the kind; without it the args type says it."""
        return self._with("kind", kind)

    def queue(self, queue: str) -> Self:
        """Name the queue; without it the task's."""
        return self._with("queue", queue)

    def priority(self, priority: int) -> Self:
        """Set the priority, 1 (first) to 4."""
        return self._with("priority", priority)

    def max_attempts(self, max_attempts: int) -> Self:
        """Set how often it is tried, 1 to 1000."""
        return self._with("max_attempts", max_attempts)

    def tags(self, tags: Sequence[str]) -> Self:
        """Set the tags, at most 20."""
        return self._with("tags", tags)

    def metadata(self, metadata: dict[str, Any]) -> Self:
        """Set the metadata; names that start with `awa:` belong to the queue."""
        return self._with("metadata", metadata)

    def run_at(self, run_at: datetime) -> Self:
        """Set the earliest start, an aware datetime."""
        return self._with("run_at", run_at)

    def deadline(self, deadline: float | timedelta) -> Self:
        """Set how long an attempt may take, seconds or a timedelta."""
        return self._with("deadline", deadline)

    def unique(self, unique_opts: dict[str, Any] | bool | None = None, **parts: Any) -> Self:
        """Make it unique: `by_queue`, `by_args`, `by_period`, `states`; none of them means the defaults."""
        return self._with("unique_opts", parts if unique_opts is None else unique_opts)

    def ordering_key(self, ordering_key: str) -> Self:
        """Set the ordering key."""
        return self._with("ordering_key", ordering_key)

    def insert_request(self) -> InsertRequest:
        """Return the same as a plain request."""
        return InsertRequest(**self._fields)

    def __repr__(self) -> str:
        named = {name: value for name, value in self._fields.items() if name != "args"}
        return f"EnqueueRequest({type(self._fields['args']).__name__}, {named})"  # args may be secret

    def _with(self, name: str, value: Any) -> Self:
        changed = type(self)(self._fields["args"])
        changed._fields = {**self._fields, name: value}
        return changed


_SETTERS = frozenset(
    ("kind", "queue", "priority", "max_attempts", "tags", "metadata", "run_at", "deadline", "unique_opts",
     "ordering_key")
)  # fmt: skip


def request_of(made: Any) -> InsertRequest:
    """Return what a spec or a handler made as a plain request: args, an EnqueueRequest or an InsertRequest."""
    if isinstance(made, EnqueueRequest):
        return made.insert_request()
    return made if isinstance(made, InsertRequest) else InsertRequest(args=made)


class Sealed:
    """A validated request: its kind, the JSON item that SQL takes, and the bytes that count against the limit."""

    __slots__ = ("kind", "size_bytes", "text")

    def __init__(self, kind: str, text: bytes, size_bytes: int) -> None:
        self.kind = kind
        self.text = text
        self.size_bytes = size_bytes


def seal(registry: Registry, request: InsertRequest, parent_id: int, traceparent: object = None) -> Sealed:
    """Validate a request and write it as it goes into the database, with the job that it comes from.

    `traceparent` is the parent's own, for where no span is current. Errors: ValidationError naming the field.
    """
    options = options_of(registry, request)
    args = gate.args_json(request.args)
    with producer_span(
        f"enqueue {options.kind}", traceparent, job_kind=options.kind, parent_job_id=parent_id
    ):
        origin: dict[str, Any] = {PARENT: parent_id}
        if (current := current_traceparent(traceparent)) is not None:
            origin[TRACEPARENT] = current
    given = options.metadata
    made = orjson.dumps(origin)
    metadata = made if given is None else given[:-1] + b"," + made[1:]
    text = item_json(options._replace(metadata=metadata), args)
    return Sealed(options.kind, text, _counted(options, args))


def _counted(options: Options, args: bytes) -> int:
    texts = (options.kind, options.queue, options.ordering_key or "", *(options.tags or ()))
    return len(args) + len(options.metadata or b"") + sum(len(text.encode()) for text in texts)


class StagingBuffer:
    """What one attempt has staged, in order. May be used by threads and tasks that the handler starts."""

    def __init__(self, registry: Registry, parent_id: int, traceparent: object = None) -> None:
        self._registry = registry
        self._parent_id = parent_id
        self._traceparent = traceparent
        self._lock = threading.Lock()
        self._staged: list[Sealed] = []
        self._size_bytes = 0
        self._closed = False
        self.problem: StagingError | None = None
        """The first stage that failed: an attempt with one cannot complete."""

    def stage(self, request: InsertRequest) -> None:
        """Validate and keep a request. Errors: StagingError, which poisons the attempt."""
        with self._lock:
            try:
                self._keep(request)
            except StagingError as problem:
                self._poison(problem)
                raise

    def refuse(self, problem: StagingError) -> NoReturn:
        """Poison the attempt with a problem found before there was a request, and raise it."""
        with self._lock:
            self._poison(problem)
        raise problem

    def _poison(self, problem: StagingError) -> None:
        if self.problem is None and not self._closed:
            self.problem = problem

    def _keep(self, request: InsertRequest) -> None:
        if self._closed:
            raise StagingError.Sealed("the handler has returned: nothing can be staged any more")
        if len(self._staged) == MOST_REQUESTS:
            raise StagingError.TooMany(f"an attempt stages at most {MOST_REQUESTS} jobs")
        try:
            sealed = seal(self._registry, request, self._parent_id, self._traceparent)
        except ValidationError as problem:
            raise StagingError.Invalid(str(problem), path=problem.path) from problem
        if self._size_bytes + sealed.size_bytes > MOST_BYTES:
            raise StagingError.TooLarge(
                f"an attempt stages at most {MOST_BYTES} bytes of jobs; this one, of {sealed.size_bytes} bytes, comes on "
                f"top of {self._size_bytes}"
            )
        self._staged.append(sealed)
        self._size_bytes += sealed.size_bytes

    def add(self, sealed: Iterable[Sealed]) -> None:
        """Keep requests that the app itself registered: no limit, and nothing to validate."""
        with self._lock:
            self._staged.extend(sealed)

    @property
    def staged(self) -> list[Sealed]:
        """What is staged so far."""
        with self._lock:
            return list(self._staged)

    def close(self) -> list[Sealed]:
        """Seal the buffer; returns what was staged."""
        with self._lock:
            self._closed = True
            return self._staged


class FollowUps:
    """A handle to an attempt's staging, for threads, tasks and helpers of the handler; copies speak of the same attempt."""

    __slots__ = ("_buffer",)

    def __init__(self, buffer: StagingBuffer) -> None:
        self._buffer = buffer

    def enqueue_on_completion(
        self,
        args: Any,
        *,
        kind: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        tags: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        run_at: datetime | None = None,
        deadline: float | timedelta | None = None,
        unique_opts: dict[str, Any] | bool | None = None,
        ordering_key: str | None = None,
    ) -> None:
        """Stage a job that is put in exactly if this attempt completes; as `Job.enqueue_on_completion`."""
        if isinstance(args, EnqueueRequest | InsertRequest):
            others = (
                kind,
                queue,
                priority,
                max_attempts,
                tags,
                metadata,
                run_at,
                deadline,
                unique_opts,
                ordering_key,
            )
            if any(option is not None for option in others):
                self._buffer.refuse(StagingError.Invalid("a request brings its own options: set them there"))
            request = request_of(args)
        else:
            request = InsertRequest(
                args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
                metadata=metadata, run_at=run_at, deadline=deadline, unique_opts=unique_opts, ordering_key=ordering_key,
            )  # fmt: skip
        self._buffer.stage(request)

    def add(self, sealed: Iterable[Sealed]) -> None:
        """Stage requests that were sealed before, as those of specs are."""
        self._buffer.add(sealed)

    def __copy__(self) -> FollowUps:
        return FollowUps(self._buffer)

    def __deepcopy__(self, memo: Any) -> FollowUps:
        return FollowUps(self._buffer)
