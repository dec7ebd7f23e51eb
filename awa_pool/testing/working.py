"""Work jobs in this process: claimed from the client's database, ended through the finalizer's code and SQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, overload

import orjson

from awa_pool.client import AsyncClient, Client
from awa_pool.hooks import JobEvent
from awa_pool.job import Job
from awa_pool.registry import Registry, Task
from awa_pool.states import Outcome, State
from awa_pool.store import housekeeping, inspecting
from awa_pool.store import statements as do
from awa_pool.store.databases import bring_forward
from awa_pool.worker.bodies import Body, Unreadable, parse_chunk
from awa_pool.worker.events import Piece
from awa_pool.worker.limits import nearest_limit_s

from . import attempts, finalizing
from .registering import ClientRegistrar
from .results import NO_JOB, STALE, WorkResult, jobs_of, outcome_of, told_of
from .steps import Handle, Pause, Steps, Tell, drive

AnyClient = Client | AsyncClient
MOST_JOBS = 1000
_BATCH = 50
_BYTES = 64 << 20
_PROMOTE = 1000
_BUSY_TRIES = 100
_BUSY_S = 0.01


@overload
def work_one(
    client: Client, what: Any = None, handler: Callable[[Any], Any] | None = None, *, queue: str | None = None
) -> WorkResult: ...
@overload
def work_one(
    client: AsyncClient,
    what: Any = None,
    handler: Callable[[Any], Any] | None = None,
    *,
    queue: str | None = None,
) -> Coroutine[Any, Any, WorkResult]: ...
def work_one(
    client: Client | AsyncClient,
    what: Any = None,
    handler: Callable[[Any], Any] | None = None,
    *,
    queue: str | None = None,
) -> WorkResult | Coroutine[Any, Any, WorkResult]:
    """Claim one available job, run its handler here, and write its end as a pool would; returns what happened.

    `what` is an args type or the name of a kind; without it the next job of `queue`, or of the app's queues. `handler`
    stands in for the registered one. Due jobs are made available first; specs and hooks of the app are called. With an AsyncClient the result is to be awaited,
    and async handlers run on the running loop.
    Not done here: deadlines are told (`job.deadline_s`), not enforced; process hooks do not run.
    Errors: TypeError, before anything is claimed, when nothing says which job or how to run it.
    """
    view = attempts.view_of(client.registry)
    kind = None if what is None else attempts.kind_named(view, what)
    if handler is not None:
        if kind is None:
            raise TypeError("a handler of a test's own needs the args type, or the kind, of its job")
        args_type = what if isinstance(what, type) else dict
        view = attempts.view_of(client.registry, attempts.task_with(view, kind, args_type, handler))
    elif kind is not None and kind not in view.tasks:
        raise TypeError(f"no handler of kind {kind!r} is registered in this client: give it")
    return drive(client, _work_one(view, kind, _queues(view, kind, queue), client))


@overload
def drain(
    client: Client, *, queue: str | None = None, later: bool = False, most: int = MOST_JOBS
) -> list[WorkResult]: ...
@overload
def drain(
    client: AsyncClient, *, queue: str | None = None, later: bool = False, most: int = MOST_JOBS
) -> Coroutine[Any, Any, list[WorkResult]]: ...
def drain(
    client: Client | AsyncClient, *, queue: str | None = None, later: bool = False, most: int = MOST_JOBS
) -> list[WorkResult] | Coroutine[Any, Any, list[WorkResult]]:
    """Work every available job, and those they put in, until none is left; returns what happened, in order.

    Of `queue`, or of all queues that the app's tasks name, as a pool would. With `later` also what is scheduled or waits
    for a retry, as if its time had come.
    Errors: AssertionError when `most` jobs have been worked and there are more.
    """
    view = attempts.view_of(client.registry)
    queues = _queues(view, None, queue)
    return drive(client, _drain(view, queues, later, most, client))


def _queues(registry: Registry, kind: str | None, queue: str | None) -> list[str]:
    if queue is not None:
        return [queue]
    if kind is not None:
        return []  # wherever there is one
    if not (queues := registry.queues()):
        raise TypeError("this client has no tasks: give an args type and a handler, or a queue")
    return queues


class _Claimed(NamedTuple):
    """One attempt, or why there is none; `others` were claimed on the way and are not wanted."""

    receipt: do.ClaimedReceipt | None
    why: str = ""


def _work_one(
    registry: Registry, kind: str | None, queues: list[str], client: AnyClient
) -> Steps[WorkResult]:
    yield housekeeping.promote(_PROMOTE)
    if not queues:
        rows = yield inspecting.list_jobs("available", None, kind, 1000, None, with_args=False)
        if not rows:
            return WorkResult(outcome=NO_JOB, error=f"no job of kind {kind!r} is available")
        queues = [rows[-1].queue]
    return (yield from _work_next(registry, kind, queues, client))


def _drain(
    registry: Registry, queues: list[str], later: bool, most: int, client: AnyClient
) -> Steps[list[WorkResult]]:
    done: list[WorkResult] = []
    yield housekeeping.promote(_PROMOTE)
    while True:
        worked = yield from _work_next(registry, None, queues, client)
        if not worked and later:
            yield bring_forward(queues)
            yield housekeeping.promote(_PROMOTE)
            worked = yield from _work_next(registry, None, queues, client)
        if not worked:
            return done
        done.append(worked)
        if len(done) == most:
            left = yield inspecting.work_left(queues)
            if left.available:
                last = ", ".join(sorted({each.job.kind for each in done[-10:] if each.job}))
                raise AssertionError(
                    f"{most} jobs have been worked and {left.available} more are available (the last were of kind "
                    f"{last}): does one put itself in again? most= allows more"
                )


def _work_next(
    registry: Registry, kind: str | None, queues: list[str], client: AnyClient
) -> Steps[WorkResult]:
    runtime_id = str(uuid.uuid4())
    claimed = yield from _claim(kind, queues, runtime_id)
    if claimed.receipt is None:
        return WorkResult(outcome=NO_JOB, error=claimed.why)
    receipt = claimed.receipt
    (body,) = parse_chunk(receipt.bodies[0].encode(), 1)
    piece = Piece(
        receipt.queue, receipt.priority, receipt.slot, receipt.receipt_id, receipt.nonce, [0], [body], 0
    )
    try:
        job, raised = yield from _run(registry, piece, body, client)
    except BaseException:
        yield do.finish(orjson.dumps([_given_back(receipt)]))
        raise
    sent = attempts.Sent(piece)
    written = yield from finalizing.finish(sent.message, sent.payload, runtime_id)
    if written.word is not None and (events := sent.acknowledged(written.word)):
        yield Tell(registry, events)
    return _result(written, job, raised, sent.payload)


def _claim(kind: str | None, queues: list[str], runtime_id: str) -> Steps[_Claimed]:
    """Claim the next job, of that kind; what had to be claimed on the way goes back, no attempt used."""
    unwanted: list[do.ClaimedReceipt] = []
    wanted: do.ClaimedReceipt | None = None
    why, take, busy = "", 1, 0
    while wanted is None:
        # A receipt for each job: what is not wanted can go back alone.
        claimed = yield do.claim(queues, [take] * len(queues), take, _BYTES, 1, runtime_id, 1, False)
        for receipt in claimed.receipts:
            if wanted is None and kind in (None, receipt.kinds[0]):
                wanted = receipt
            else:
                unwanted.append(receipt)
        if not claimed.receipts:
            if "busy" in claimed.notes.values() and busy < _BUSY_TRIES:
                busy += 1
                yield Pause(_BUSY_S)
                continue
            why = _why(kind, claimed.notes)
            break
        take = _BATCH
    if unwanted:
        yield do.finish(orjson.dumps([_given_back(receipt) for receipt in unwanted]))
    return _Claimed(wanted, why)


def _why(kind: str | None, notes: dict[str, str]) -> str:
    said = ", ".join(f"queue {queue!r} is {note}" for queue, note in notes.items())
    return said if kind is None else f"no job of kind {kind!r} can be claimed: {said}"


def _given_back(receipt: do.ClaimedReceipt) -> dict[str, Any]:
    body = orjson.loads(receipt.bodies[0])
    return {
        "slot": receipt.slot, "receipt_id": receipt.receipt_id, "nonce": receipt.nonce, "index": 0,
        "job_id": body[0], "run_lease": body[4], "outcome": Outcome.RETURN.value,
    }  # fmt: skip


def _run(
    registry: Registry, piece: Piece, body: Body, client: AnyClient
) -> Steps[tuple[Job[Any] | None, BaseException | None]]:
    """Run the attempt; how it ended lies in the piece, as in a worker."""
    begun: list[JobEvent] = []
    endings = attempts.endings_of(registry, begun.extend, ClientRegistrar(client))
    task: Task | None = registry.tasks.get(body[1])
    if task is None or isinstance(body, Unreadable):
        endings.record_unrun(piece, 0, body, set())
        return _bare_job(piece, body), None
    if isinstance(client, Client):
        attempts.refuse_a_running_loop(task, "use an AsyncClient and await work_one(…)")
    job = endings.job(piece, task, 0, body, lambda: False)
    if job is None:
        return _bare_job(piece, body), None
    job.deadline_s = task.deadline_s if body[6] is None else nearest_limit_s(body[6], task)
    if begun:
        yield Tell(registry, begun)
    result, raised = yield Handle(task, job)
    ending = endings.of_handler(task, job.attempt, result, raised)
    endings.settle(piece, 0, job, task, ending)
    return job, raised


def _bare_job(piece: Piece, body: Body) -> Job[Any] | None:
    """Return the job that no handler could be given, with its args as they are stored."""
    if isinstance(body, Unreadable):
        return None
    return Job(body[2], body[0], body[1], body[3], body[5], piece.queue, piece.priority, body[4], body[6])


def _result(
    written: finalizing.Written,
    job: Job[Any] | None,
    raised: BaseException | None,
    payload: Sequence[bytes],
) -> WorkResult:
    values = written.values or {"outcome": Outcome.COMPLETED.value}
    attempt, most = (job.attempt, job.max_attempts) if job is not None else (1, 1)
    done = written.status == "done"
    if written.status == STALE and written.state == State.COMPLETED:  # by the handler, in its own transaction
        values, done = {"outcome": Outcome.COMPLETED.value}, True
    told = told_of(values.get("error"))
    if written.state in (State.FAILED, State.CANCELLED) and "reason" in values:
        told["reason"] = values["reason"]  # kept only with an end
    return WorkResult(
        outcome=outcome_of(values["outcome"], attempt, most) if done else STALE,
        job=job,
        state=State(written.state) if written.state else None,
        delay_s=values.get("delay_s"),
        exception=raised,
        staged=tuple(jobs_of(payload[0])) if written.follow_ups and payload else (),
        skipped=written.skipped,
        **told,
    )
