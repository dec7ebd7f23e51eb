"""Names of the events that the dispatcher logs, and how they name jobs."""

from __future__ import annotations

RECOVERED = "dispatcher.recovered"
DRAINING = "dispatcher.draining"
DRAINED = "dispatcher.drained"
LANE_READY = "lane.ready"
LANE_GONE = "lane.gone"
JOBS_RECALLED = "jobs.recalled"
JOBS_RETURNED = "jobs.returned"
JOBS_ADRIFT = "jobs.adrift"
JOB_CANCELLED = "job.cancelled"
ATTEMPT_CLOSED = "attempt.closed"  # cancelled unheard, or rescued: it still ran here
STORE_AWAY = "store.away"
STORE_BACK = "store.back"
STORE_REFUSED = "store.refused"
MALFORMED = "message.malformed"
LISTENER_DEAF = "listener.deaf"
LISTENER_LOST = "listener.lost"
LISTENER_BACK = "listener.back"

MOST_IDS = 10


def some_of(job_ids: list[int]) -> str:
    """Return the lowest of these ids for people to look up, and that there are more."""
    shown = ", ".join(map(str, sorted(job_ids)[:MOST_IDS]))
    return f"{shown}, …" if len(job_ids) > MOST_IDS else shown
