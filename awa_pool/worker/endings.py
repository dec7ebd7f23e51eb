"""From what a handler did to the items of `AttemptsEnded`; shared by the lanes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from time import monotonic
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from awa_pool.errors import AwaError, CallbackNotFound, DecodeError, TransitionRefused
from awa_pool.job import Job
from awa_pool.outcomes import COMPLETED, Ending, describe_error, resolve_outcome, retry_delay_s
from awa_pool.registry import Registry, Task
from awa_pool.states import Outcome

from .attempt import Attempt, job_type_of
from .bodies import Body, Unreadable
from .events import Piece
from .owed import KIND as OWED
from .reporting import Reporter
from .spec_failures import SpecFailures

if TYPE_CHECKING:  # loaded by the first attempt that has follow-ups
    from awa_pool.follow_ups import Sealed
    from awa_pool.hooks import JobEvent
    from awa_pool.tokens import CallbackToken

    from .failing import Failures
    from .registering import Registrar

_CANNOT_WAIT = "the handler returned to wait for a callback that cannot be waited for"
_log = logging.getLogger(__name__)


def leave_out_our_frame(raised: BaseException) -> None:
    """Begin the traceback of what a handler raised with the handler; one that will not have it stays as it is."""
    with contextlib.suppress(BaseException):
        if raised.__traceback__ is not None:
            raised.__traceback__ = raised.__traceback__.tb_next


def left_behind(token: CallbackToken | str) -> str:
    """Say what became of a callback that a handler registered, and then neither waited for nor returned."""
    if isinstance(token, str):
        return token
    if not token.registered:
        return "`job.register_callback(…)` was not awaited: nothing was registered, and nobody can answer"
    return (
        f"its handler neither waited for its callback #{token.number} nor returned WaitForCallback(token): an answer to it "
        "finds nobody; is a `return` missing?"
    )


class Endings:
    """Records how attempts ended in their pieces."""

    def __init__(
        self,
        registry: Registry,
        app_name: str,
        rng: Random,
        tell: Callable[[list[JobEvent]], None] | None = None,
        reporter: Reporter | None = None,
        registrar: Registrar | None = None,
        failures: Failures | None = None,
        spec_failures: SpecFailures | None = None,
    ) -> None:
        """`tell` has hooks called; it must not block. `reporter` hears of progress, `registrar` registers callbacks,
        `failures` logs what failed, `spec_failures` counts specs that did."""
        self.registry = registry
        self.tell = tell
        self.failures = failures
        self.spec_failures = spec_failures or SpecFailures()
        self._reporter = reporter
        self.words: dict[tuple[int, int], Any] = {} if reporter is None else reporter.words
        """Attempts that have said something of their progress: they are to be settled, however they end."""
        self.watched = frozenset(
            registry.triggers.wanted((task.kind, task.args_type) for task in registry.tasks.values())
        )
        """Kinds for which something was registered: their outcomes are looked at."""
        self.hooked = frozenset(
            task.kind
            for task in registry.tasks.values()
            if registry.triggers.hooks(task.kind, task.args_type)
        )
        """Kinds whose hooks are told."""
        self.owned = frozenset(task.kind for task in registry.tasks.values() if task.caller_completes)
        """Kinds whose handlers complete their jobs."""
        self.watched |= self.owned
        if self.hooked:
            self.watched |= {OWED}
        self.settled = set(self.watched)
        """Kinds of whose attempts even a plain completion is settled: those watched, and those that register callbacks."""
        self._job_type = job_type_of(registry, reporter, registrar, self.settled)
        self.job = self._job_with_news if self.hooked else self._job
        """Builds what the handler sees; None when the args do not decode (then that is recorded)."""
        self._app_name = app_name
        self._rng = rng
        self.dropped: dict[str, tuple[str, int]] = {}
        """Kind -> type of a value that its handlers return and nobody keeps, and a job of which one did; the supervisor tells it
        once for all."""
        self.follow_ups_dropped = 0
        """Staged by attempts that parked instead of completing."""
        self._told_of: set[str] = set()
        """Kinds whose handlers have left a callback behind: said once."""

    def of_handler(
        self, task: Task, attempt: int, result: object, raised: BaseException | None, *, late: bool = False
    ) -> Ending:
        """Resolve what a handler returned or raised.

        `late`: the handler had been told that its deadline has passed.
        """
        if raised is None and issubclass(type(result), CoroutineType):
            result.close()  # type: ignore[attr-defined]
            raised = TypeError(
                f"the handler of {task.kind!r} returned a coroutine: declare it with async def"
            )
            result = None
        return resolve_outcome(
            result, raised, attempt=attempt, backoff=task.backoff, rng=self._rng, late=late
        )

    def undecodable(self, error: BaseException) -> Ending:
        """The stored args do not fit the task's type: terminal, as another attempt would meet the same args."""
        if isinstance(error, DecodeError):
            return Ending(Outcome.FAIL, error={"error": str(error), "type": "DecodeError"})
        described = describe_error(error)  # raised by the args type itself; its message may show values
        described["error"] = "args do not decode: their type raised this error"
        return Ending(Outcome.FAIL, error=described)

    def unknown_kind(self, kind: str) -> Ending:
        """The app has no task of that kind: terminal, the documented rule for rollouts."""
        text = f"kind {kind!r} is not known to app {self._app_name!r}"
        return Ending(Outcome.FAIL, error={"error": text, "type": "UnknownKind"})

    def unreadable(self, body: Unreadable) -> Ending:
        return Ending(Outcome.FAIL, error={"error": body.problem, "type": "UnreadableJob"})

    def cancelled_before_start(self) -> Ending:
        return Ending(Outcome.CANCEL, error={"error": "cancelled before it started", "type": "Cancel"})

    def _job_with_news(
        self, piece: Piece, task: Task, index: int, body: list[Any], is_cancelled: Callable[[], bool]
    ) -> Attempt | None:
        job = self._job(piece, task, index, body, is_cancelled)
        if job is not None and task.kind in self.hooked:
            job._began_s = monotonic()
            if self.tell is not None:
                from awa_pool.hooks import Started

                self.tell([Started(job)])
        return job

    def _job(
        self, piece: Piece, task: Task, index: int, body: list[Any], is_cancelled: Callable[[], bool]
    ) -> Attempt | None:
        job_id, kind, stored, attempt, run_lease, max_attempts, extra = body
        queue, priority = piece.queue, piece.priority
        try:  # args types may run user code, and a row of other software may hold anything
            args = self.registry.decode_args(task, stored)
            job = self._job_type(
                args, job_id, kind, attempt, max_attempts, queue, priority, run_lease, extra, is_cancelled
            )
            job._piece = piece
            return job
        except BaseException as error:  # noqa: BLE001
            ending = self.undecodable(error)
            self._say(job_id, kind, attempt, max_attempts, ending)
            self.record(piece, index, job_id, run_lease, kind, ending)
            return None

    def _say(self, job_id: int, kind: str, attempt: int, max_attempts: int, ending: Ending) -> None:
        if self.failures is not None and ending.error is not None:
            self.failures.say(job_id, kind, attempt, max_attempts, ending)

    def record_unrun(self, piece: Piece, index: int, body: Body, cancelled: set[tuple[int, int]]) -> None:
        """Record an attempt that no handler can run: unreadable, cancelled before its start, or of no known kind."""
        if isinstance(body, Unreadable):
            ending = self.unreadable(body)
            self._say(body.job_id, body.kind, 0, 1, ending)
            self.record(piece, index, body.job_id, body.run_lease, body.kind, ending)
            return
        job_id, kind, lease = body[0], body[1], body[4]
        ending = self.cancelled_before_start() if (job_id, lease) in cancelled else self.unknown_kind(kind)
        self._say(job_id, kind, body[3], body[5], ending)
        self.record(piece, index, job_id, lease, kind, ending)

    def settle(self, piece: Piece, index: int, job: Job[Any], task: Task, ending: Ending) -> bool:
        """Record how a handler's attempt ended, with what comes of it; True where the page may say that it completed.

        A value that the handler returned and nobody keeps is noted.
        A completion with follow-ups may not: should this process die before the finalizer has them, it is to run again.
        """
        staged: Sequence[Sealed] = ()
        owned = False
        if ending.dropped is not None:
            self.dropped.setdefault(task.kind, (ending.dropped, job.id))
        if task.kind in self.owned:
            from .owning import ruled

            ending, owned = ruled(task, job, ending, self._rng)
            if owned:
                piece.owned.append(index)
        if ending.token is not None:
            ending = self._checked_park(job, task, ending)
        elif (token := getattr(job, "_left", None)) is not None:
            self._note_left(job, token, ending)
        if (staging := job._staging) is not None:
            staged = staging.close()
            if ending.outcome is not Outcome.COMPLETED:
                if staged and ending.outcome is Outcome.PARK:
                    self._note_dropped(job, len(staged))
                staged = ()
            elif staging.problem is not None:  # swallowed or not: what was to be staged is not there
                staged, ending = (), Ending(Outcome.FAIL, error=describe_error(staging.problem))
        progress = self._last_word(job) if self.words else None
        if isinstance(job, Attempt):
            job._piece = None  # a thread that the handler left behind has nothing more to say
        if ending.outcome is Outcome.COMPLETED:
            job._progress = None  # what has completed makes none: its specs see none
        if task.kind in self.watched:
            ending, staged = self._with_specs(job, task, ending, staged)
            if self.hooked:
                # Of a lost one hooks hear in another way: what they are to hear here is that it has completed itself.
                told = COMPLETED if owned and ending.outcome is Outcome.LOST else ending
                self._keep_news(piece, index, job, told)
        follow_ups = b"[%s]" % b",".join(sealed.text for sealed in staged) if staged else b""
        if not (owned and ending.outcome is Outcome.LOST):  # most likely it has completed itself
            self._say(job.id, job.kind, job.attempt, job.max_attempts, ending)
        self.record(piece, index, job.id, job.run_lease, job.kind, ending, follow_ups, progress)
        return ending.outcome is Outcome.COMPLETED and not follow_ups

    def _checked_park(self, job: Job[Any], task: Task, ending: Ending) -> Ending:
        """Return the ending, or a failed attempt where the token is not the newest of this attempt, or was answered."""
        token = ending.token
        assert token is not None
        problem: AwaError
        if token.attempt != (job.id, job.run_lease):
            problem = CallbackNotFound(f"{_CANNOT_WAIT}: it is of another attempt")
        elif token.id != getattr(job, "_newest", (0, ""))[1]:
            problem = CallbackNotFound(f"{_CANNOT_WAIT}: a newer callback has taken its place")
        elif (
            token.spent
        ):  # the database has the answer still, and would give it a second time, to the next run
            problem = TransitionRefused(f"{_CANNOT_WAIT}: it was answered, and its payload given")
        else:
            return ending
        error = describe_error(problem)
        return Ending(Outcome.RETRY, retry_delay_s(task.backoff, job.attempt, self._rng), error)

    def _note_dropped(self, job: Job[Any], count: int) -> None:
        self.follow_ups_dropped += count
        _log.warning(
            "job %s, kind %s, waits for a callback: the %s follow-ups that it had staged are dropped",
            job.id, job.kind, count,
        )  # fmt: skip

    def _note_left(self, job: Job[Any], token: CallbackToken | str, ending: Ending) -> None:
        """Say once for a kind that an answer will find nobody: most likely a word was forgotten."""
        if ending.outcome is not Outcome.COMPLETED or job.kind in self._told_of:
            return
        self._told_of.add(job.kind)
        _log.warning(
            "job %s, kind %s, is completed, but %s (said once)", job.id, job.kind, left_behind(token)
        )

    def _last_word(self, job: Job[Any]) -> dict[str, Any] | None:
        """Return what the attempt has said of its progress, if anything, and take it off the reporter's list."""
        if self._reporter is None or not isinstance(job, Attempt):
            return None
        return self._reporter.settle(job)

    def _with_specs(
        self, job: Job[Any], task: Task, ending: Ending, staged: Sequence[Sealed]
    ) -> tuple[Ending, Sequence[Sealed]]:
        """Return the ending and its follow-ups, those of the app's specs first."""
        from awa_pool import specs  # 1 MiB that a worker without specs can do without

        event = specs.event_of(ending, job.attempt, job.max_attempts, datetime.now(UTC))
        if event is None:
            return ending, staged
        try:
            return ending, (*specs.evaluate(self.registry, event, job, task.args_type), *staged)
        except specs.SpecFailed as failed:
            self.spec_failures.note(job.kind, event.trigger, failed)
            ended = specs.without_specs(
                ending, failed, job.attempt, job.max_attempts, task.backoff, self._rng
            )
            return ended, ()

    def _keep_news(self, piece: Piece, index: int, job: Job[Any], ending: Ending) -> None:
        """Keep what hooks are to hear once this ending is committed."""
        from awa_pool import hooks, specs

        told: list[JobEvent] = []
        if job.kind == OWED:
            if ending.outcome in (Outcome.COMPLETED, Outcome.CANCEL):  # done with, or given up
                told = getattr(job, "_told", [])
        elif job.kind in self.hooked:
            event = specs.event_of(ending, job.attempt, job.max_attempts, datetime.now(UTC))
            ran_s = monotonic() - job._began_s if isinstance(job, Attempt) else 0.0
            news = None if event is None else hooks.job_event(event, job, ran_s)
            told = [] if news is None else [news]
        if told:
            piece.told = [*(piece.told or ()), *((index, event) for event in told)]

    @staticmethod
    def record(
        piece: Piece,
        index: int,
        job_id: int,
        run_lease: int,
        kind: str,
        ending: Ending,
        follow_ups: bytes = b"",
        progress: dict[str, Any] | None = None,
    ) -> None:
        """Put an ending into its piece, to go out with the next flush."""
        if ending.outcome is Outcome.COMPLETED and not follow_ups:
            piece.done[kind] = piece.done.get(kind, 0) | 1 << index
        else:
            if follow_ups:
                piece.staged[index] = follow_ups
            item: list[Any] = [
                index,
                job_id,
                run_lease,
                kind,
                str(ending.outcome),
                ending.delay_s,
                ending.error,
            ]
            if progress is not None or ending.token is not None:
                item.append(progress)
            if ending.token is not None:
                item.append(ending.token.id)
            piece.others.append(item)

    @staticmethod
    def time(piece: Piece, kind: str, took_s: float) -> None:
        """Add a duration to the piece's timings."""
        figures = piece.timings.get(kind)
        if figures is None:
            piece.timings[kind] = [1, took_s, took_s]
            return
        figures[0] += 1
        figures[1] += took_s
        figures[2] = max(figures[2], took_s)
