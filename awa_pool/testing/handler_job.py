"""A job for unit tests of a handler: no database, no pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import orjson

from awa_pool import validation as gate
from awa_pool.callbacks import PAYLOAD_BYTES
from awa_pool.completing import Completing, Completion
from awa_pool.errors import JobCancelled, StagingError
from awa_pool.job import Job
from awa_pool.registry import Registry, Task
from awa_pool.requests import InsertRequest, options_of
from awa_pool.states import Outcome
from awa_pool.tokens import ANSWER, CallbackToken, checked_rules, checked_timeout_s
from awa_pool.tracing import TRACEPARENT
from awa_pool.worker.events import Piece
from awa_pool.worker.leasing import check_declared, refuse_staging
from awa_pool.worker.waiting import check_token, check_waits

from . import attempts
from .results import StagedJob, WorkResult, jobs_of, outcome_of, staged_jobs, told_of

if TYPE_CHECKING:
    from awa_pool.declarations import Declarations
    from awa_pool.follow_ups import StagingBuffer

A = TypeVar("A")


class HandlerJob(Job[A]):
    """What a handler sees of an attempt, made by hand.

    The args have gone through JSON, as in a worker. `staged` tells what the handler has staged, with the limits and the
    validation that a worker has; `problem` the staging error that has poisoned the attempt. `run` calls the handler and
    ends the attempt as a worker would. `callbacks` are the tokens of the callbacks that it has registered, in order;
    `answers` what its waits come to.
    """

    __slots__ = ("_answers", "_completion", "_missing", "_registry", "_task", "callbacks", "cancelled")

    def __init__(
        self,
        args: A,
        *,
        kind: str | None = None,
        client: Declarations | None = None,
        id: int = 1,
        attempt: int = 1,
        max_attempts: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        deadline: float | timedelta | None = None,
        metadata: dict[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        ordering_key: str | None = None,
        snoozes: int = 0,
        run_lease: int | None = None,
        progress: dict[str, Any] | None = None,
        traceparent: str | None = None,
        cancelled: bool = False,
        resumed: tuple[int, Any] | None = None,
        answers: Sequence[Any] = (),
    ) -> None:
        """Validate as an insert does. `client`: the app, whose tasks give the defaults, and those of what is staged.

        `progress`: what an attempt before this one has said: percent, message, metadata. `traceparent`: the trace that whoever put the job in was part of. `cancelled`: what `is_cancelled()` says; it may
        be changed while the handler runs.
        `resumed`: the answer, number and payload, with which the job goes on after it was parked. `answers`: what
        `wait_for_callback` returns, one after the other; an exception among them, such as CallbackTimeout(), is raised.
        Errors: ValidationError naming the field; DecodeError where the args type does not take its own JSON.
        """
        registry = Registry() if client is None else client.registry
        request = InsertRequest(
            args=args, kind=kind, queue=queue, priority=priority, max_attempts=max_attempts, tags=tags,
            metadata=metadata, ordering_key=ordering_key, deadline=deadline,
        )  # fmt: skip
        options = options_of(registry, request)
        gate.checked_int(attempt, (1, options.max_attempts), "attempt")
        stored = orjson.loads(gate.args_json(args))
        task = registry.tasks.get(options.kind) or attempts.task_with(
            registry, options.kind, type(args), _no_handler
        )
        extra: dict[str, Any] = {
            "metadata": orjson.loads(options.metadata or b"{}"),
            "tags": options.tags,
            "snoozes": snoozes,
            "ordering_key": options.ordering_key,
            "progress": None if progress is None else orjson.loads(gate.args_json(progress)),
        }
        if traceparent is not None:
            extra["metadata"][TRACEPARENT] = traceparent
        if resumed is not None:
            number, payload = gate.checked_int(resumed[0], (1, 1 << 31), "resumed"), resumed[1]
            text = gate.exact_json(payload, "resumed", PAYLOAD_BYTES)
            extra["metadata"][ANSWER] = {"number": number, "payload": orjson.loads(text)}
        super().__init__(
            registry.decode_args(task, stored), id, options.kind, attempt, options.max_attempts, options.queue,
            options.priority, attempt + snoozes if run_lease is None else run_lease, extra,
            lambda: self.cancelled,
        )  # fmt: skip
        own_s = options.deadline_s
        self.deadline_s = own_s if own_s is not None else task.deadline_s
        self.cancelled = cancelled
        self.callbacks: list[CallbackToken] = []
        self._answers = [_answer(answer, number) for number, answer in enumerate(answers)]
        self._missing: AssertionError | None = None  # the first wait for which the test had no answer
        self._task: Task | None = registry.tasks.get(options.kind)
        self._registry = registry
        self._completion = Completion()

    @property
    def completed(self) -> bool:
        """A block of `job.completing` has come to its end: what its transaction holds counts once that is committed."""
        return self._completion.ran

    @property
    def staged(self) -> list[StagedJob]:
        """What the handler has staged so far, in order. Exists in the end exactly if the attempt completes."""
        return [] if self._staging is None else staged_jobs(self._staging.staged)

    @property
    def problem(self) -> StagingError | None:
        """The first failed staging: the attempt cannot complete any more, also where the handler swallowed it."""
        return self._completion.problem if self._staging is None else self._staging.problem

    def run(self, handler: Callable[[Any], Any] | None = None) -> WorkResult:
        """Call the handler (by default the one registered in `client`), and end the attempt as a worker would.

        Specs of the app are evaluated too. Errors: AssertionError when the handler waited and no answer was left, whatever it made of
        that; TypeError when there is no handler, or an async one is called from within an event loop: `await` it yourself
        there, and look at `staged`.
        """
        registry = attempts.view_of(self._registry)
        if handler is not None:
            registry = attempts.view_of(
                self._registry, attempts.task_with(registry, self.kind, type(self.args), handler)
            )
        task = registry.tasks.get(self.kind)
        if task is None:
            raise TypeError(f"no handler of kind {self.kind!r} is known: give it, or client=")
        attempts.refuse_a_running_loop(task, "await the handler yourself, and look at job.staged")
        self._task = task
        self._missing = None
        result, raised = attempts.call(task, self)
        if self._missing is not None:  # the test's mistake, and no outcome that it may have expected
            raise self._missing
        endings = attempts.endings_of(registry)
        ending = endings.of_handler(task, self.attempt, result, raised)
        piece = Piece(self.queue, self.priority, 0, 1, 1, [0], [], 0)
        endings.settle(piece, 0, self, task, ending)
        outcome, delay_s, error = piece.others[0][4:7] if piece.others else ("completed", None, None)
        if (
            piece.owned and outcome == Outcome.LOST
        ):  # no database says whether it was committed: it is taken to be
            outcome, delay_s, error = Outcome.COMPLETED, None, None
        return WorkResult(
            outcome=outcome_of(outcome, self.attempt, self.max_attempts),
            job=self,
            delay_s=delay_s,
            exception=raised,
            staged=tuple(jobs_of(piece.staged.get(0, b""))),
            **told_of(error),
        )

    def register_callback(
        self,
        timeout_seconds: float | timedelta,
        *,
        filter: str | None = None,
        on_complete: str | None = None,
        on_fail: str | None = None,
        transform: str | None = None,
    ) -> CallbackToken:
        """Note a callback with a random id in `callbacks`, its expressions checked and kept in the token's `rules`.

        Nobody can answer it. In an async handler it is to be awaited.
        """
        timeout_s = checked_timeout_s(timeout_seconds)
        rules = checked_rules(filter, on_complete, on_fail, transform)
        number = 1 + (
            self.callbacks[-1].number if self.callbacks else self.resumed.number if self.resumed else 0
        )
        self._newest = (number, str(uuid4()))
        token = CallbackToken((self.id, self.run_lease), timeout_s, (self._newest[1], number), rules=rules)
        self.callbacks.append(token)
        return token

    def wait_for_callback(self, token: CallbackToken) -> Any:
        """Return, or raise, the next of the `answers`; in an async handler it is to be awaited. Errors as in a worker; AssertionError when none is left."""
        if self._task.is_async if self._task is not None else attempts.loop_runs():
            return self._answer_later(token)
        if self._task is not None:
            check_waits(self.kind, self._task)
        return self._next_answer(token)

    async def _answer_later(self, token: CallbackToken) -> Any:
        return self._next_answer(token)

    def _next_answer(self, token: CallbackToken) -> Any:
        check_token(self, token)
        if self.cancelled:
            raise JobCancelled("the job was cancelled")
        if not self._answers:
            missing = AssertionError(
                f"the handler waits for callback #{token.number}, and no answer is left: give HandlerJob answers=[…]"
            )
            self._missing = self._missing or missing
            raise missing
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        token.spent = True
        return answer

    def completing(self, conn: Any) -> Completing:
        """Let the block's rows commit at its end, by `conn.transaction()`; no job is completed, as there is none.

        `conn`: a real connection, to any database, or a stand-in such as `unittest.mock.MagicMock()`. Errors: TransitionRefused.
        """
        check_declared(self.kind, self._registry.tasks.get(self.kind))
        return Completing(conn, self._completion, None)

    def _open_staging(self) -> StagingBuffer:
        from awa_pool.follow_ups import StagingBuffer

        task = self._registry.tasks.get(self.kind)
        if task is not None and task.caller_completes:
            raise refuse_staging(self)
        return StagingBuffer(self._registry, self.id, self.metadata.get(TRACEPARENT))


def _no_handler(job: Any) -> None:
    return None


def _answer(given: Any, number: int) -> Any:
    """Return an answer as it comes out of the database."""
    if isinstance(given, BaseException):
        return given
    return orjson.loads(gate.exact_json(given, f"answers[{number}]", PAYLOAD_BYTES))
