"""What the supervisor adds to the metrics: living workers, restarts, queues."""

from __future__ import annotations

from awa_pool.metrics import Figures, Gauge

from .events import DISPATCHER, FINALIZER, MAINTENANCE
from .snapshot import PoolSnapshot

_STATES = ("empty", "starting", "booting", "idle", "busy", "stopped", "stopping")


def gauges(snapshot: PoolSnapshot | None, figures: Figures) -> list[Gauge]:
    """Return everything that is true only now; counts of restarts among them, as they are the supervisor's own."""
    if snapshot is None:
        return []
    states = dict.fromkeys(_STATES, 0)
    for worker in snapshot.workers:
        states[worker.state] = states.get(worker.state, 0) + 1
    in_flight = figures.newest(DISPATCHER).get("in_flight") or {}
    held = figures.newest(FINALIZER)
    queues = snapshot.queues
    ring = figures.newest(MAINTENANCE).get("ring") or {}
    return [
        Gauge(
            name="awa_pool_workers", about="Worker places by state", labels=("state",),
            values={(state,): float(count) for state, count in states.items()},
        ),
        Gauge(
            name="awa_pool_process_restarts", about="Processes replaced, by role", labels=("role",), counts_up=True,
            values={(role,): float(count) for role, count in snapshot.restarts.items()},
        ),
        Gauge(
            name="awa_pool_limit_kills", about="Workers killed for one of their attempts, by reason", labels=("reason",),
            counts_up=True, values={(reason,): float(count) for reason, count in snapshot.killed.items()},
        ),
        Gauge(
            name="awa_pool_worker_memory_bytes", about="Resident memory of each worker's place", labels=("worker",),
            values={(str(worker.number),): float(worker.rss_bytes) for worker in snapshot.workers if worker.pid},
        ),
        Gauge(
            name="awa_pool_in_flight", about="Attempts claimed by this host and not yet closed", labels=("queue",),
            values={(str(queue),): float(jobs) for queue, jobs in in_flight.items()},
        ),
        Gauge(
            name="awa_pool_results_held", about="Results not yet stored", labels=(),
            values={(): float(held.get("held_jobs") or 0)},
        ),
        Gauge(
            name="awa_pool_waiting_handlers", about="Handlers of this host that wait for callbacks", labels=(),
            values={(): float(held.get("callback_waiting") or 0)},
        ),
        Gauge(
            name="awa_pool_database_up", about="1 while the supervisor's connection works", labels=(),
            values={(): float(snapshot.database == "up")},
        ),
        Gauge(
            name="awa_pool_queue_depth", about="Jobs by queue and state (counts are capped)", labels=("queue", "state"),
            values={
                (queue.queue, state): float(getattr(queue, state) or 0)
                for queue in queues
                for state in ("available", "running", "waiting", "scheduled", "retryable", "dead")
            },
        ),
        Gauge(
            name="awa_pool_queue_lag_seconds", about="Age of the oldest available job", labels=("queue",),
            values={(queue.queue,): float(queue.oldest_available_s or 0.0) for queue in queues},
        ),
        Gauge(
            name="awa_pool_queue_paused", about="1 while a queue is paused", labels=("queue",),
            values={(queue.queue,): float(queue.paused) for queue in queues},
        ),
        Gauge(
            name="awa_pool_ring_slots", about="Slots of the ring by state, as the leader saw them", labels=("state",),
            values={(str(state),): float(slots) for state, slots in (ring.get("states") or {}).items()},
        ),
        Gauge(
            name="awa_pool_ring_held_slots", about="Slots that cannot move on, by what holds them back", labels=("by",),
            values={(str(by),): float(slots) for by, slots in (ring.get("held") or {}).items()},
        ),
        Gauge(
            name="awa_pool_ring_held_seconds", about="For how long at most it has held one back", labels=("by",),
            values={(str(by),): float(held_s) for by, held_s in (ring.get("held_s") or {}).items()},
        ),
    ]  # fmt: skip
