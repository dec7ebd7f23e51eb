"""The queue's own jobs, of kind `awa:outcome`: an attempt has ended without its handler (a dead process, a rescue, a cancel by
hand), and the app registered something for that.

Such a job was put in with the outcome, so the duty to evaluate it cannot be lost. Its handler calls the app's specs and
stages what they return: those follow-ups commit with the end of this job, exactly once. Hooks are told after that.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from awa_pool.errors import DecodeError
from awa_pool.job import Job
from awa_pool.outcomes import Cancel
from awa_pool.registry import Registry, Task
from awa_pool.states import Trigger

from .spec_failures import SpecFailures

if TYPE_CHECKING:
    from awa_pool.specs import Event

    from .attempt import Attempt

KIND = "awa:outcome"


def outcome_task(registry: Registry, failures: SpecFailures) -> Task:
    """Return the task that evaluates owed outcomes by an app's registry; `failures` hears of specs that fail."""

    def evaluate(job: Attempt) -> object:
        try:
            _evaluate(registry, failures, job)
        except Exception as problem:
            if job.attempt < job.max_attempts:
                raise
            failures.note_given_up(job.args.get("id"), job.attempt, getattr(problem, "cause", problem))
            return Cancel(f"follow_up_failed: {problem}")
        return None

    return Task(kind=KIND, args_type=dict, handler=evaluate, is_async=False, max_attempts=3)


def _evaluate(registry: Registry, failures: SpecFailures, job: Attempt) -> None:
    from awa_pool import specs

    facts = job.args
    task = registry.tasks.get(facts["kind"])
    args_type = dict if task is None else task.args_type
    try:
        args = facts["args"] if task is None else registry.decode_args(task, facts["args"])
    except DecodeError:
        args = facts["args"]  # a spec that hears of an end may still be told which
    extra = {name: facts.get(name) for name in ("metadata", "tags", "snoozes", "ordering_key", "progress")}
    ended: Job[Any] = Job(
        args, facts["id"], facts["kind"], facts["attempt"], facts["max_attempts"], facts["queue"],
        facts["priority"], facts["run_lease"], extra,
    )  # fmt: skip
    events = [event_from(facts, Trigger(name)) for name in facts["outcomes"]]
    if registry.triggers.hooks(ended.kind, args_type):
        from awa_pool.hooks import job_event

        job._told = [told for event in events if (told := job_event(event, ended)) is not None]
    for event in () if facts.get("specs_told") else events:
        try:
            job.follow_ups().add(specs.evaluate(registry, event, ended, args_type))
        except specs.SpecFailed as failed:
            failures.note(ended.kind, event.trigger, failed)
            raise


def event_from(facts: dict[str, Any], trigger: Trigger) -> Event:
    """Return what specs are told, from the args of an owed outcome."""
    from awa_pool.specs import Event

    at = facts.get("next_run_at")
    reason = facts.get("cause") if trigger is Trigger.RESCUED else facts.get("reason")
    return Event(
        trigger,
        facts.get("error"),
        facts["attempt"],
        None if at is None else datetime.fromisoformat(at),
        reason,
    )
