"""Statements on dead jobs and on a queue's settings, and the steps of actions on many of them.

A plan of steps is a generator: it yields a `Call` and is sent its answer, so that both clients and the command line run
the same steps, each on a connection of its own kind. Each step is a transaction; what is done stays done when one that
follows fails, and the same plan begun anew goes on with the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

from awa_pool.dead_letters import BulkResult, DeadCount, DeadFilter, DeadJob, QueueSettings

from .calls import Call, Rows

Steps = Generator[Call[Any], Any, BulkResult]
BATCH_JOBS = 500
ABSENT = "it is not in the dead letter queue"
UNFIT = f"{ABSENT}, or does not fit the filter"


def list_dead(chosen: DeadFilter, limit: int, cursor: tuple[datetime, int] | None) -> Call[list[DeadJob]]:
    """Dead jobs, the newest death first."""
    at, last = cursor or (None, None)
    return Call("list_dead", {**chosen.fields(), "from_at": at, "from_id": last, "limit": limit}, _dead_jobs)


def count_dead(chosen: DeadFilter) -> Call[DeadCount]:
    """How many dead jobs a filter takes in."""
    return Call("count_dead", {"ids": _listed(chosen.ids), **chosen.fields()}, _count)


def count_ended(state: str, chosen: DeadFilter) -> Call[DeadCount]:
    """How many failed or cancelled jobs of the history a filter takes in."""
    return Call("count_ended", {"state": state, **chosen.fields()}, _count)


def move_to_dead(job_id: int, why: str) -> Call[str]:
    """Move one job into the dead letter queue -> its new state."""
    return Call("move_to_dead", {"job_id": job_id, "why": why}, lambda rows: str(rows[0][0]))


def prune_dead(retention_s: float, limit: int) -> Call[str]:
    """Delete dead jobs that are older than their queue keeps them -> what was done."""
    return Call("prune_dead", {"retention_s": retention_s, "limit": limit}, lambda rows: str(rows[0][0]))


def set_queue(queue: str, settings: dict[str, Any]) -> Call[QueueSettings]:
    """Change the settings of a queue that are given -> all of them."""
    params = {"queue": queue, "settings": json.dumps(settings)}
    return Call("set_queue", params, lambda rows: QueueSettings(*rows[0]))


def retry_dead(
    chosen: DeadFilter, result: BulkResult, *, run_at: datetime | None = None, priority: int | None = None,
    queue: str | None = None,
) -> Steps:  # fmt: skip
    """Plan a retry of dead jobs; `result` grows while the steps run."""
    more = {"run_at": run_at, "new_priority": priority, "new_queue": queue}
    return _through_the_dead("retry_dead", chosen, more, result)


def purge_dead(chosen: DeadFilter, result: BulkResult) -> Steps:
    """Plan a purge of dead jobs; `result` grows while the steps run."""
    return _through_the_dead("purge_dead", chosen, {}, result)


def move_many_to_dead(chosen: DeadFilter, state: str, why: str, result: BulkResult) -> Steps:
    """Plan a move of the jobs with these ids, or of jobs of the history in `state`; `result` grows while the steps run."""
    if chosen.ids is not None:
        for at in range(0, len(chosen.ids), BATCH_JOBS):
            part = list(chosen.ids[at : at + BATCH_JOBS])
            _tell(result, (yield _paged("move_ids_to_dead", {"ids": part, "why": why})))
        return result
    chosen = chosen.until((yield _time()))
    params = {**chosen.fields(), "state": state, "why": why, "from_id": None, "limit": BATCH_JOBS}
    while True:
        page = yield _paged("move_ended_to_dead", params)
        _tell(result, page)
        if len(page) < BATCH_JOBS:
            return result
        params = {**params, "from_id": page[-1][0]}


def _through_the_dead(query: str, chosen: DeadFilter, more: dict[str, Any], result: BulkResult) -> Steps:
    params = {**chosen.fields(), **more, "ids": None, "from_at": None, "from_id": None, "limit": BATCH_JOBS}
    if chosen.ids is not None:
        for at in range(0, len(chosen.ids), BATCH_JOBS):
            part = chosen.ids[at : at + BATCH_JOBS]
            page = yield _paged(query, {**params, "ids": list(part)})
            _tell(result, page)
            met = {row[0] for row in page}
            for job_id in part:
                if job_id not in met:
                    result.refuse(job_id, ABSENT if chosen == DeadFilter(ids=chosen.ids) else UNFIT)
        return result
    # What dies again while this goes on stays dead, or the plan would never end.
    params["before"] = chosen.until((yield _time())).before
    while True:
        page = yield _paged(query, params)
        _tell(result, page)
        if len(page) < BATCH_JOBS:
            return result
        job_id, died_at, *_ = page[-1]
        params = {**params, "from_at": died_at, "from_id": job_id}


def _tell(result: BulkResult, page: Rows) -> None:
    for job_id, _, status, detail in page:
        if status == "done":
            result.done += 1
        else:
            result.refuse(job_id, detail)


def _time() -> Call[datetime]:
    return Call("database_time", {}, _only)


def _paged(query: str, params: dict[str, Any]) -> Call[Rows]:
    return Call(query, params, _as_they_are)


def _only(rows: Rows) -> Any:
    return rows[0][0]


def _as_they_are(rows: Rows) -> Rows:
    return rows


def _listed(ids: tuple[int, ...] | None) -> list[int] | None:
    return None if ids is None else list(ids)


def _dead_jobs(rows: Rows) -> list[DeadJob]:
    return [
        dead._replace(
            created_at=dead.created_at and dead.created_at.astimezone(UTC),
            died_at=dead.died_at.astimezone(UTC),
            tags=dead.tags or [],
        )
        for dead in (DeadJob(*row) for row in rows)
    ]


def _count(rows: Rows) -> DeadCount:
    jobs, reasons, at = rows[0]
    return DeadCount(jobs, json.loads(reasons) if reasons else {}, at)


def run_steps(steps: Steps, run: Callable[[Call[Any]], Any]) -> BulkResult:
    """Run a plan to its end with `run` for each of its calls."""
    answer = None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration as end:
            result: BulkResult = end.value
            return result
        answer = run(call)
