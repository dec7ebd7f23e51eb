"""From what a caller hands in to requests that are ready to be sent: defaults filled in, everything validated."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import orjson

from . import validation as gate
from .errors import ValidationError
from .registry import Registry, Task, kind_of
from .unique import DEFAULT_STATES, Uniqueness, checked_unique

CHUNK_JOBS = 500
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertRequest:
    """One job to be put in; what is None takes the task's default, or the queue's own."""

    args: Any
    kind: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    tags: Any = None
    metadata: dict[str, Any] | None = None
    run_at: datetime | None = None
    ordering_key: str | None = None
    deadline: float | timedelta | None = None
    unique_opts: dict[str, Any] | bool | None = None  # False: not unique, whatever the task says

    def __post_init__(self) -> None:
        # A dataclass, too: it would become a job of kind `insert_request`.
        if isinstance(self.args, InsertRequest):
            raise ValidationError(
                "an InsertRequest is no args: give it to insert_many([…]), or its fields to insert",
                path="args",
            )


_OPTIONS = frozenset(f.name for f in fields(InsertRequest)) - {"args"}


_DEFAULTS = ("default", 2, 25)  # of queue, priority and max_attempts


class Options(NamedTuple):
    """A validated request without its args: JSON is text, instants are UTC."""

    kind: str
    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | None = None
    metadata: bytes | None = None
    tags: list[str] | None = None
    ordering_key: str | None = None
    deadline_s: float | None = None
    unique: Uniqueness | None = None


def options_of(registry: Registry, request: InsertRequest) -> Options:
    """Validate all of a request but its args, with the defaults of its task.

    Errors: ValidationError whose path names the field.
    """
    kind = request.kind
    if kind is None:
        kind = _kind_for(registry, type(request.args))
    else:
        gate.checked_kind(kind)
    task = registry.tasks.get(kind)
    if task is not None and _belongs_elsewhere(registry, task, type(request.args)):
        raise ValidationError(
            f"kind {kind!r} takes {_name_of(task.args_type)}, not {_name_of(type(request.args))}", path="args"
        )
    queue, priority, max_attempts = (task.queue, task.priority, task.max_attempts) if task else _DEFAULTS
    key = request.ordering_key
    return Options(
        kind,
        queue if request.queue is None else gate.checked_queue(request.queue),
        priority if request.priority is None else gate.checked_priority(request.priority),
        max_attempts if request.max_attempts is None else gate.checked_max_attempts(request.max_attempts),
        gate.checked_run_at(request.run_at),
        gate.metadata_json(request.metadata),
        gate.checked_tags(request.tags),
        key if key is None else gate.checked_name(key, "ordering_key"),
        None if request.deadline is None else gate.checked_deadline_s(request.deadline),
        checked_unique(request.unique_opts)
        if request.unique_opts is not None
        else task.unique
        if task
        else None,
    )


def _belongs_elsewhere(registry: Registry, task: Task, args_type: type) -> bool:
    """Say whether these args are those of another task: with the kind given, nobody would notice before they run."""
    return (
        args_type is not dict
        and args_type is not task.args_type
        and any(other.args_type is args_type for other in registry.tasks.values())
    )


def _name_of(args_type: Any) -> str:
    return getattr(args_type, "__name__", str(args_type))


def _kind_for(registry: Registry, kind_type: type) -> str:
    task = registry.by_type.get(kind_type)
    if task is not None:
        return task.kind
    if kind_type is dict:
        raise ValidationError("args in a plain dict do not say what they are for: give kind='…'", path="kind")
    rivals = [task.kind for task in registry.tasks.values() if task.args_type is kind_type]
    if rivals:
        raise ValidationError(
            f"{kind_type.__name__} belongs to {', '.join(rivals)}: give kind='…'", path="kind"
        )
    return gate.checked_kind(kind_of(kind_type.__name__))


class _Frame:
    """What stands around the args of all jobs that have the same options, as JSON and as a COPY row."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.goes_as_document = options.run_at is not None or options.unique is not None
        extras = (options.metadata, options.ordering_key, options.deadline_s)
        self.is_plain = not options.tags and extras == (None, None, None)

    def json(self) -> tuple[bytes, bytes]:
        options = self.options
        head = b'{"kind":' + orjson.dumps(options.kind) + b',"args":'
        rest: dict[str, Any] = {}
        for name, default in zip(("queue", "priority", "max_attempts"), _DEFAULTS, strict=True):
            value = getattr(options, name)
            if value != default:  # the others are the database's own defaults
                rest[name] = value
        if options.run_at is not None:
            rest["run_at"] = options.run_at
        if options.metadata is not None:
            rest["metadata"] = orjson.Fragment(options.metadata)
        if options.tags:
            rest["tags"] = options.tags
        if options.ordering_key is not None:
            rest["ordering_key"] = options.ordering_key
        if options.deadline_s is not None:
            rest["deadline_s"] = options.deadline_s
        if options.unique is not None and options.unique.states != DEFAULT_STATES:
            rest["unique_states"] = options.unique.states
        return head, b"," + orjson.dumps(rest)[1:] if rest else b"}"

    def copy_row(self, plain: bool) -> tuple[bytes, bytes]:
        options = self.options
        columns = [_copy_text(options.queue), b"%d" % options.priority, b"%d" % options.max_attempts]
        if not plain:
            columns += [
                b"\\N" if options.metadata is None else _copy_escape(options.metadata),
                b"\\N" if not options.tags else _copy_text(_array_literal(options.tags)),
                b"\\N" if options.ordering_key is None else _copy_text(options.ordering_key),
                b"\\N" if options.deadline_s is None else repr(options.deadline_s).encode(),
            ]
        return _copy_text(options.kind) + b"\t", b"\t" + b"\t".join(columns) + b"\n"


def item_json(options: Options, args: bytes) -> bytes:
    """Return one job as an item of the document of `enqueue_many`, its unique key included."""
    head, tail = _Frame(options).json()
    return head + args + _key_json(options, args, time.time()) + tail


def _key_json(options: Options, args: bytes, now_s: float) -> bytes:
    """Return what stands behind the args of a unique job; nothing for others."""
    if options.unique is None:
        return b""
    key = options.unique.key(options.kind, options.queue, args, now_s)
    return b',"unique_key":"%s"' % key.hex().encode()


def _copy_escape(text: bytes) -> bytes:
    """Escape JSON text for COPY: it holds no raw control characters, so only backslashes."""
    return text.replace(b"\\", b"\\\\")


def _copy_text(text: str) -> bytes:
    escaped = text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return escaped.encode()


def _array_literal(items: list[str]) -> str:
    return "{" + ",".join('"' + i.replace("\\", "\\\\").replace('"', '\\"') + '"' for i in items) + "}"


class Document(NamedTuple):
    """Jobs as the document of `enqueue_many`: their indexes in the whole call, the JSON text, whether any is unique."""

    places: Sequence[int]
    text: str
    keyed: bool


class Rows(NamedTuple):
    """Jobs as rows of COPY's text form; `plain`: with the columns only that every job has."""

    text: bytes
    plain: bool


class Chunk:
    """Validated jobs of one bulk call; `places` are their indexes in the call, by default consecutive from `first`."""

    def __init__(
        self, first: int, frames: list[_Frame], texts: list[bytes], places: list[int] | None = None
    ) -> None:
        self.first = first
        self.places: Sequence[int] = range(first, first + len(texts)) if places is None else places
        self.keyed = any(frame.options.unique is not None for frame in set(frames))
        self._frames = frames
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def json(self) -> str:
        """Return the jobs as the document of `enqueue_many`."""
        parts = []
        for frame, texts in self._runs():
            head, tail = frame.json()
            parts.append(head + (tail + b"," + head).join(texts) + tail)
        return (b"[" + b",".join(parts) + b"]").decode()

    def copy_rows(self) -> Rows:
        """Return the jobs as rows of COPY (not for those that go as documents)."""
        plain = all(frame.is_plain for frame in set(self._frames))
        parts = []
        for frame, texts in self._runs():
            head, tail = frame.copy_row(plain)
            parts.append(head + (tail + head).join(map(_copy_escape, texts)) + tail)
        return Rows(b"".join(parts), plain)

    def split(self) -> tuple[Chunk, Chunk]:
        """Part the jobs that COPY takes from those that go as documents: with a due time, or unique."""
        sides: tuple[list[int], list[int]] = ([], [])
        for at, frame in enumerate(self._frames):
            sides[frame.goes_as_document].append(at)
        plain, others = (
            Chunk(
                0,
                [self._frames[at] for at in side],
                [self._texts[at] for at in side],
                [self.places[at] for at in side],
            )
            for side in sides
        )
        return plain, others

    def has_documents(self) -> bool:
        """Say whether any of the jobs cannot go by COPY."""
        return any(frame.goes_as_document for frame in set(self._frames))

    def queues(self) -> set[str]:
        """Return the queues of the jobs."""
        return {frame.options.queue for frame in set(self._frames)}

    def _runs(self) -> Iterator[tuple[_Frame, list[bytes]]]:
        at = 0
        for frame, group in itertools.groupby(self._frames):
            count = sum(1 for _ in group)
            yield frame, self._texts[at : at + count]
            at += count


class _Batch:
    """Validates the items of one bulk call chunk by chunk."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_type: dict[type, _Frame] = {}
        self._by_options: dict[Any, _Frame] = {}
        self._now_s = time.time()  # one period for all jobs of the call

    def chunks(self, items: Iterable[Any]) -> Iterator[Chunk]:
        first = size = 0
        frames: list[_Frame] = []
        texts: list[bytes] = []
        values: list[Any] = []
        known, write, limit = self._by_type, gate.plain_json, gate.ARGS_BYTES
        for at, item in enumerate(items):
            try:
                frame = known.get(type(item))
                if frame is None:
                    frame, item = self._frame(item)
                value = item if type(item) is dict else gate.args_object(item)
                text = write(value, "args", limit)
            except ValidationError as problem:
                raise _named(problem, at) from None
            frames.append(frame)
            texts.append(text)
            values.append(value)
            size += len(text)
            if size > CHUNK_BYTES or len(texts) == CHUNK_JOBS:
                _check(first, texts, values)
                yield self._chunk(first, frames, texts)
                first, size, frames, texts, values = at + 1, 0, [], [], []
        if texts:
            _check(first, texts, values)
            yield self._chunk(first, frames, texts)

    def _chunk(self, first: int, frames: list[_Frame], texts: list[bytes]) -> Chunk:
        """Make a chunk of jobs that were looked over; the key of a unique job goes behind its args."""
        chunk = Chunk(first, frames, texts)
        if chunk.keyed:
            for at, frame in enumerate(frames):
                texts[at] += _key_json(frame.options, texts[at], self._now_s)
        return chunk

    def _frame(self, item: Any) -> tuple[_Frame, Any]:
        """Return the frame of an item that is not of a type seen before, and its args."""
        if type(item) is InsertRequest:
            request = item
        elif type(item) is tuple:
            request = _request_of_pair(item)
        else:
            frame = _Frame(options_of(self._registry, InsertRequest(args=item)))
            self._by_type[type(item)] = frame
            return frame, item
        key: Any = None
        if request.metadata is None and request.tags is None:
            key = (
                type(request.args), request.kind, request.queue, request.priority, request.max_attempts,
                request.run_at, request.ordering_key, request.deadline,
                tuple(unique.items()) if type(unique := request.unique_opts) is dict else unique,
            )  # fmt: skip
            try:
                known = self._by_options.get(key)
            except TypeError:  # something that is not even hashable: to be named below
                key = known = None
            if known is not None:
                return known, request.args
        frame = _Frame(options_of(self._registry, request))
        if key is not None and len(self._by_options) < CHUNK_JOBS:
            self._by_options[key] = frame
        return frame, request.args


def _named(problem: ValidationError, index: int) -> ValidationError:
    """Put the item's index in front of a flaw's path, keeping its class."""
    text = str(problem).removeprefix(f"{problem.path}: ")
    path = f"jobs[{index}].{problem.path}" if problem.path else f"jobs[{index}]"
    return type(problem)(text, path=path)


def _check(first: int, texts: list[bytes], values: list[Any]) -> None:
    """Look over a whole chunk at once; only where there is a sign, at each of its jobs."""
    if not gate.suspicious(b"\n".join(texts)):
        return
    for at, (text, value) in enumerate(zip(texts, values, strict=True), first):
        if gate.suspicious(text):
            try:
                gate.check_exact(value, "args")
            except ValidationError as problem:
                raise _named(problem, at) from None


def _request_of_pair(item: tuple[Any, ...]) -> InsertRequest:
    if len(item) != 2 or type(item[1]) is not dict:
        raise ValidationError("expected args, (args, options) or an InsertRequest")
    unknown = item[1].keys() - _OPTIONS
    if unknown:
        raise ValidationError("no such option", path=str(min(map(str, unknown))))
    return InsertRequest(args=item[0], **item[1])


def chunks_of(registry: Registry, items: Iterable[Any]) -> Iterator[Chunk]:
    """Validate the items of a bulk call: args objects, (args, options) pairs or InsertRequests.

    Errors: ValidationError whose path names the item, as `jobs[7].args.name`.
    """
    return _Batch(registry).chunks(items)


def documents_of(chunks: Iterable[Chunk]) -> Iterator[Document]:
    """Return the documents of a bulk call, in order of its items.

    From the first unique job on everything goes as one document: keys are taken in one pass, in order, or two such calls
    could wait for each other.
    """
    places: list[int] = []
    texts: list[str] = []
    for chunk in chunks:
        if not texts and not chunk.keyed:
            yield Document(chunk.places, chunk.json(), False)
        elif len(chunk):
            places.extend(chunk.places)
            texts.append(chunk.json()[1:-1])
    if texts:
        yield Document(places, f"[{','.join(texts)}]", True)
