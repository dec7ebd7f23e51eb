"""What a handler sees of its attempt (`Job`), and what a client sees of a job (`JobRow`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .tokens import ANSWER, CallbackToken, Resumed, answer_of

if TYPE_CHECKING:
    from .completing import Completing
    from .follow_ups import FollowUps, StagingBuffer

A = TypeVar("A")


class Job(Generic[A]):
    """One attempt of a job, as its handler sees it.

    `args` is of the task's args type; `attempt` counts from 1; `metadata` is a dict, `tags` a tuple; `deadline_s` is
    how long this attempt may take, or None.
    """

    _newest: tuple[int, str]
    """Number and id of the newest callback of this attempt, where there is one."""
    _resumed: Resumed | None
    """Set where the job was resumed."""
    __slots__ = (
        "_is_cancelled", "_newest", "_progress", "_resumed", "_staging", "args", "attempt", "deadline_s", "id", "kind", "max_attempts", "metadata",
        "ordering_key", "priority", "queue", "run_lease", "snoozes", "tags",
    )  # fmt: skip

    def __init__(
        self,
        args: A,
        id: int,
        kind: str,
        attempt: int = 1,
        max_attempts: int = 25,
        queue: str = "default",
        priority: int = 2,
        run_lease: int = 1,
        extra: dict[str, Any] | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> None:
        """Build from the fields of a claimed body; `extra` is that body's last element."""
        self.args = args
        self.id = id
        self.kind = kind
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.queue = queue
        self.priority = priority
        self.run_lease = run_lease
        self._is_cancelled = is_cancelled
        self._staging: StagingBuffer | None = None
        self.deadline_s: float | None = None
        if extra is None:
            self.metadata: dict[str, Any] = {}
            self.tags: tuple[str, ...] = ()
            self.snoozes: int = 0
            self.ordering_key: str | None = None
            self._progress: dict[str, Any] | None = None
        else:
            self.metadata = extra.get("metadata") or {}
            self.tags = tuple(extra.get("tags") or ())
            self.snoozes = extra.get("snoozes") or 0
            self.ordering_key = extra.get("ordering_key")
            progress = extra.get("progress")
            self._progress = progress if type(progress) is dict else None
            if ANSWER in self.metadata:
                self._resumed = answer_of(self.metadata)
                self.metadata = {name: value for name, value in self.metadata.items() if name != ANSWER}

    def is_cancelled(self) -> bool:
        """Say whether the job was cancelled while this attempt runs: a long handler asks now and then and stops."""
        return self._is_cancelled is not None and self._is_cancelled()

    @property
    def resumed(self) -> Resumed | None:
        """Return the answer (`number`, `payload`) with which this job goes on after it was parked, also over retries; None before one."""
        return getattr(self, "_resumed", None)

    def register_callback(
        self,
        timeout_seconds: float | timedelta,
        *,
        filter: str | None = None,
        on_complete: str | None = None,
        on_fail: str | None = None,
        transform: str | None = None,
    ) -> CallbackToken:
        """Register a callback for the outside world to answer within so long; returns once it is committed.

        In an async handler it is to be awaited: `token = await job.register_callback(60)`. `return WaitForCallback(token)`
        then parks the job. A newer callback of the attempt takes the place of an older one. Waits while the database is away.
        The four expressions (CEL over `payload`; docs/callbacks.md) say what `Client.resolve_callback` makes of an answer.
        Errors: ValidationError naming the argument; ConfigError without the extra that expressions need; LeaseLost (the job
        was cancelled or rescued, or the handler has returned), JobCancelled, DeadlineExceeded, ShuttingDown: let these through;
        TypeError outside a worker.
        """
        raise TypeError("this Job stands outside a worker: in a test, use awa_pool.testing.HandlerJob")

    def completing(self, conn: Any) -> Completing:
        """Complete the job in a transaction of the handler's: `with job.completing(conn): …`, `async with` an AsyncConnection.

        For tasks declared with `caller_completes=True` (docs/caller-owned-completion.md). Rows that the block writes with `conn`, a
        psycopg connection to the pool's own database, and the completion commit together, at the end of the block; where `conn`
        is in a transaction already, when that commits. An exception in the block completes nothing.
        Errors, each of which leaves the job as it is: LeaseLost (the attempt has ended), TransitionRefused, ValidationError,
        SchemaMismatch, StoreRefused, and as of `register_callback`; psycopg's own.
        """
        raise TypeError("this Job stands outside a worker: in a test, use awa_pool.testing.HandlerJob")

    def wait_for_callback(self, token: CallbackToken) -> Any:
        """Wait until the callback is answered, and return the payload; the attempt goes on, and others use its slot meanwhile.

        In an async handler it is to be awaited; a plain one blocks, and its task is declared with `waits=True`. A token is
        for one wait; a newer one may be registered after it.
        Errors: CallbackTimeout, LeaseLost (answered so that the job has ended, or rescued), JobCancelled, DeadlineExceeded,
        ShuttingDown: let them through; CallbackNotFound for a token that a newer one has replaced; TransitionRefused for a token
        that was waited for, or is another attempt's, for a second wait at a time, and in a plain handler without `waits=True`;
        DecodeError for a payload that JSON readers cannot give back; TypeError outside a worker.
        """
        raise TypeError("this Job stands outside a worker: in a test, use awa_pool.testing.HandlerJob")

    @property
    def progress(self) -> dict[str, Any] | None:
        """What this attempt, or one before it, has said last: percent, message, metadata, those that are set; else None."""
        return None if self._progress is None else dict(self._progress)

    def set_progress(self, percent: float, message: str | None = None) -> None:
        """Say how far the attempt is, 0 to 100, and in up to 1,000 characters at what; the last word counts.

        Never blocks; it is stored within about a second. Errors: ValidationError naming the field.
        """
        from .progress import moved

        self._progress = moved(self._progress, percent, message)
        self._say_progress(at_once=False)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Merge these keys into the progress's metadata: what the next attempt needs to go on where this one stops.

        Errors: ValidationError naming the field; PayloadTooLarge when all of it exceeds 8 KiB of JSON.
        """
        from .progress import annotated

        self._progress = annotated(self._progress, metadata)
        self._say_progress(at_once=False)

    def flush_progress(self) -> None:
        """Have what was said stored now rather than within a second. Does not wait for it."""
        if self._progress is not None:
            self._say_progress(at_once=True)

    def _say_progress(self, *, at_once: bool) -> None:
        """Outside a worker nobody is told."""

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
        """Stage a job that is put in, in the same transaction, exactly if this attempt completes.

        Options as of `Client.insert`; `args` may be an EnqueueRequest. At most 16 requests and 64 KiB an attempt.
        Errors: StagingError naming the field; an attempt that met one fails, even where the handler swallowed it.
        """
        self.follow_ups().enqueue_on_completion(
            args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags, metadata=metadata,
            run_at=run_at, deadline=deadline, unique_opts=unique_opts, ordering_key=ordering_key,
        )  # fmt: skip

    def follow_ups(self) -> FollowUps:
        """Return a handle that stages for this attempt, to be given to threads, tasks and helpers of the handler."""
        from .follow_ups import FollowUps

        if self._staging is None:
            self._staging = self._open_staging()
        return FollowUps(self._staging)

    def _open_staging(self) -> StagingBuffer:
        raise TypeError("this Job stands outside a worker: in a test, use awa_pool.testing.HandlerJob")

    def __repr__(self) -> str:
        return f"Job(id={self.id}, kind={self.kind!r}, attempt={self.attempt}/{self.max_attempts})"


class JobRow(NamedTuple):
    """A job as the database shows it to a client; instants are aware, `errors` are the newest 20.

    `dead`: it lies in the dead letter queue (its state is failed) until it is retried or purged. `progress`: what its
    newest attempt has said (docs/progress.md). `deadline_s`: its own, not that of its task or queue."""

    id: int
    kind: str
    queue: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime | None
    created_at: datetime | None
    attempted_at: datetime | None
    finalized_at: datetime | None
    args: Any
    metadata: dict[str, Any]
    tags: list[str]
    ordering_key: str | None
    errors: list[dict[str, Any]]
    snoozes: int
    run_lease: int
    reason: str | None
    runtime_id: str | None
    dead: bool = False
    progress: dict[str, Any] | None = None
    deadline_s: float | None = None
