"""Dead letters as a client names and sees them: which jobs are meant, what they look like, what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, Unpack

from . import validation as gate
from .body import INT64
from .errors import ValidationError

REASON_CHARS = 1000
MOST_REFUSED = 10_000  # that are kept with their reason; all are counted
ENDED_STATES = ("failed", "cancelled")
EMPTY_FILTER = (
    "name the jobs by their ids or by kind, queue, tag, reason, before or after; all=True takes every one"
)


class DeadJob(NamedTuple):
    """A dead job as a list shows it; `args_preview` and `error` are cut by the database, `Client.get_job` has it whole."""

    id: int
    kind: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime | None
    died_at: datetime
    reason: str | None
    error: str
    args_preview: str
    args_bytes: int
    tags: list[str]

    @property
    def cursor(self) -> tuple[datetime, int]:
        """Where the next page starts, for `list_dead(cursor=…)`."""
        return self.died_at, self.id


class Which(TypedDict, total=False):
    """The keywords that say which jobs are meant: all that fit everything given; `after` is included, `before` is not."""

    kind: str | None
    queue: str | None
    tag: str | None
    reason: str | None
    after: datetime | None
    before: datetime | None


class DeadCount(NamedTuple):
    """How many jobs a filter takes in, by reason, at an instant of the database's clock."""

    jobs: int
    reasons: dict[str, int]
    counted_at: datetime


class Refused(NamedTuple):
    """A job that stayed where it was, and why."""

    job_id: int
    why: str


@dataclass(slots=True)
class BulkResult:
    """What became of many jobs; `refused` holds the first ten thousand, `refused_jobs` counts all."""

    done: int = 0
    refused_jobs: int = 0
    refused: list[Refused] = field(default_factory=list)

    def refuse(self, job_id: int, why: str) -> None:
        """Note a job that stayed where it was."""
        self.refused_jobs += 1
        if len(self.refused) < MOST_REFUSED:
            self.refused.append(Refused(job_id, why))


class QueueSettings(NamedTuple):
    """What a queue was told; `deadline_s` and `dlq_retention_s` are None where it has none of its own."""

    queue: str
    paused_at: datetime | None
    deadline_s: float | None
    dlq: bool
    dlq_retention_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which jobs are meant: all that fit everything that is set. `after` is included, `before` is not."""

    ids: tuple[int, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    tag: str | None = None
    reason: str | None = None
    after: datetime | None = None
    before: datetime | None = None

    def fields(self) -> dict[str, Any]:
        """Return the parameters of a statement that takes a filter."""
        return {
            "kind": self.kind, "queue": self.queue, "tag": self.tag, "reason": self.reason,
            "after": self.after, "before": self.before,
        }  # fmt: skip

    def until(self, instant: datetime) -> DeadFilter:
        """Return the filter without what dies from that instant on."""
        return replace(self, before=instant if self.before is None else min(instant, self.before))


def filter_of(ids: int | Iterable[int] | None = None, **which: Unpack[Which]) -> DeadFilter:
    """Check a filter's parts. Errors: ValidationError."""
    kind, queue, tag, reason = (which.get(name) for name in ("kind", "queue", "tag", "reason"))
    if unknown := which.keys() - Which.__annotations__.keys():
        raise TypeError(f"there is no filter {', '.join(sorted(unknown))}")
    return DeadFilter(
        ids=None if ids is None else _ids(ids),
        kind=None if kind is None else gate.checked_kind(kind),
        queue=None if queue is None else gate.checked_queue(queue),
        tag=None if tag is None else gate.checked_name(tag, "tag"),
        reason=None if reason is None else checked_reason(reason),
        after=_instant(which.get("after"), "after"),
        before=_instant(which.get("before"), "before"),
    )


def bulk_filter(
    ids: int | Iterable[int] | None = None, *, all: bool = False, **which: Unpack[Which]
) -> DeadFilter:
    """Check the filter of an action on many jobs: one that names nothing needs `all`. Errors: ValidationError."""
    found = filter_of(ids, **which)
    named = found != DeadFilter()
    if not named and all is not True:
        raise ValidationError(EMPTY_FILTER, path="filter")
    if named and all:
        raise ValidationError("all=True takes every job: leave it out, or the filter", path="all")
    return found


def checked_reason(value: Any) -> str:
    """Return why a job is dead, as it is stored: a text of 1 to 1000 characters."""
    if not isinstance(value, str) or not 1 <= len(value) <= REASON_CHARS:
        raise ValidationError(f"expected a text of 1 to {REASON_CHARS} characters", path="reason")
    gate.check_text(value, "reason")
    return value


def checked_cursor(value: Any) -> tuple[datetime, int] | None:
    """Return the cursor of a page: the `cursor` of a `DeadJob`, or None for the first page."""
    if value is None:
        return None
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], datetime):
        raise ValidationError("expected the cursor of the last job seen", path="cursor")
    at = _instant(value[0], "cursor")
    assert at is not None
    return at, gate.checked_int(value[1], INT64, "cursor")


def _ids(ids: int | Iterable[int]) -> tuple[int, ...]:
    several = [ids] if isinstance(ids, int) else ids
    if isinstance(several, str | bytes) or not isinstance(several, Iterable):
        raise ValidationError(f"expected a job's id or several, got {type(ids).__name__}", path="job_ids")
    checked = (gate.checked_int(each, INT64, f"job_ids[{at}]") for at, each in enumerate(several))
    return tuple(dict.fromkeys(checked))


def _instant(value: Any, path: str) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.utcoffset() is None):
        raise ValidationError("expected a datetime with a zone", path=path)
    return value
