"""`job.completing` in a worker: the attempt is moved to leases through the finalizer before its handler's block begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from awa_pool.completing import Completing, Completion, Doors, Identity
from awa_pool.errors import AwaError, LeaseLost, StagingError, StoreRefused, TransitionRefused
from awa_pool.messages import AttemptLeased, LeaseAttempt

from .asking import Request
from .registering import STOPPING_S
from .reporting import identity_of

if TYPE_CHECKING:
    from awa_pool.job import Job
    from awa_pool.registry import Task

    from .attempt import Attempt
    from .registering import Registrar


INSIDE_S = 10.0


class Leasing(Request):
    """An attempt that is to be moved to leases."""

    expects = AttemptLeased
    cut_short = "the pool stops, and the database does not answer"
    __slots__ = ()

    def ends_s(self, stopping_s: float, look_s: float) -> float:
        return max(stopping_s, self.asked_s) + STOPPING_S

    def result(self) -> None:
        """Return once it is moved, or raise what stood in the way."""
        match self.outcome:
            case AttemptLeased(_, "done"):
                return
            case AttemptLeased(_, "stale"):
                raise LeaseLost("the attempt has ended: its job was cancelled, rescued or answered meanwhile")
            case AttemptLeased(_, _, error):
                raise StoreRefused(f"the attempt could not be moved to leases: {error}")
            case AwaError() as problem:
                raise problem
        raise LeaseLost("nobody has answered")


class LeasingInside(Leasing):
    """The same, asked inside a transaction of the handler's: behind a pooler with few connections, handlers that hold them all while
    they wait for the finalizer would wait for ever, as it gets none."""

    most_s = INSIDE_S
    __slots__ = ()


def leasing(inside: bool, wake: Callable[[], object], number: int, identity: list[int]) -> Leasing:
    """Make the request to move an attempt; `inside`: asked in an open transaction."""
    return (LeasingInside if inside else Leasing)(number, LeaseAttempt(number, *identity), wake, monotonic())


def completing(job: Attempt, registrar: Registrar, task: Task | None, conn: Any) -> Completing:
    """Return the block in which the handler completes its job. Errors: TransitionRefused."""
    check_declared(job.kind, task)
    doors = Doors(
        registrar.schema,
        partial(_identity, job),
        partial(registrar.lease, job),
        partial(registrar.lease_async, job),
    )
    return Completing(conn, completion_of(job), doors)


def check_declared(kind: str, task: Task | None) -> None:
    """Refuse kinds that were not declared to complete themselves. Errors: TransitionRefused."""
    if task is None or not task.caller_completes:
        raise TransitionRefused(
            f"the handler of {kind!r} was not declared to complete its jobs: declare it with caller_completes=True"
        )


def completion_of(job: Job[Any]) -> Completion:
    """Return what the attempt has done to complete itself."""
    found: Completion | None = getattr(job, "_completion", None)
    if found is None:
        found = job._completion = Completion()  # type: ignore[attr-defined]
    return found


def refuse_staging(job: Job[Any]) -> StagingError:
    """Return what to raise where the handler of such a kind stages; from then on it cannot complete either."""
    problem = StagingError.Invalid(
        f"the handler of {job.kind!r} completes its jobs itself, so nothing can be staged: put jobs in with "
        "client.insert(…, conn=conn) in the block of job.completing",
        path="job",
    )
    completion_of(job).problem = problem
    return problem


def _identity(job: Attempt) -> Identity | None:
    found = identity_of(job)
    if found is None:
        return None
    _, receipt_id, nonce, index, job_id, run_lease = found
    return {
        "receipt_id": receipt_id, "nonce": nonce, "index": index, "job_id": job_id, "run_lease": run_lease,
    }  # fmt: skip
