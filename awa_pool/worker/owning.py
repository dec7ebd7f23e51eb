"""What becomes of attempts whose handlers complete them: by the time they return it is known to the database alone.

So the end that goes to the finalizer is the one for a completion that was not committed, marked as the handler's own: where the
guard finds that the attempt has completed, that was the outcome.
"""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING, Any

from awa_pool.outcomes import Ending, retry_delay_s
from awa_pool.states import Outcome

if TYPE_CHECKING:  # loaded by the first handler that completes its job
    from awa_pool.completing import Completion
    from awa_pool.job import Job
    from awa_pool.registry import Task

_log = logging.getLogger("awa_pool.worker")

NOT_COMPLETED = (
    "the handler returned without having completed its job, as its task declares it would: "
    "`with job.completing(conn): …`"
)
NOT_COMMITTED = "the handler returned, and the transaction in which it completed its job was not committed"


def ruled(task: Task, job: Job[Any], ending: Ending, rng: Random) -> tuple[Ending, bool]:
    """Return the ending of a handler that is to complete its job, and whether it may have done so."""
    completion: Completion | None = getattr(job, "_completion", None)
    if completion is None or not (completion.ran or completion.open):
        if ending.outcome is not Outcome.COMPLETED:
            return ending, False
        delay_s = retry_delay_s(task.backoff, job.attempt, rng)
        return Ending(Outcome.RETRY, delay_s, {"error": NOT_COMPLETED, "type": "NotCompleted"}), False
    if ending.outcome is not Outcome.COMPLETED:
        _note(job, ending, completion)
        if not completion.committed and ending.outcome is not Outcome.PARK:
            return ending, True
    # As lost, for specs and hooks to hear of it through the database: it is seldom so.
    delay_s = retry_delay_s(task.backoff, job.attempt, rng)
    return Ending(Outcome.LOST, delay_s, {"error": NOT_COMMITTED, "type": "NotCommitted"}), True


def _note(job: Job[Any], ending: Ending, completion: Completion) -> None:
    """Log what a handler came to after it had completed its job: type and place, never a text, which may quote args."""
    error = ending.error or {}
    what = error.get("type") or str(ending.outcome)
    counts = "it counts for nothing" if completion.committed else "it counts if that was not committed"
    _log.log(
        logging.ERROR if completion.committed else logging.WARNING,
        "job %s, kind %s, was completed in a transaction of its handler, which then ended with %s: %s\n%s",
        job.id, job.kind, what, counts, error.get("traceback", ""),
    )  # fmt: skip
