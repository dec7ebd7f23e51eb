"""The pool's figures for Prometheus, fed only from what its processes say (`Stats`) and the supervisor sees.

No files, no shared memory. Counters never go back: what dead incarnations last said is kept in one sum per role, the
living are added to it. Labels are kinds, outcomes, queues and roles, each bounded (`MOST_LABELS`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_LABELS = 500
OTHER = "(other)"
_Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counter:
    """A figure that only grows: where it stands in a role's figures, and how it is called outside.

    `labels` name the levels of nested dictionaries in order.
    """

    role: str
    figure: str
    name: str
    about: str
    labels: tuple[str, ...] = ()


COUNTERS = (
    Counter(
        "finalizer", "ended", "awa_pool_attempts", "Attempts ended, by kind and outcome", ("kind", "outcome")
    ),
    Counter("finalizer", "stale", "awa_pool_stale_results", "Results that came too late and wrote nothing"),
    Counter("finalizer", "follow_ups", "awa_pool_follow_ups", "Jobs put in with the end of another"),
    Counter(
        "finalizer",
        "follow_ups_skipped",
        "awa_pool_follow_ups_skipped",
        "Follow-ups whose key another job held",
    ),
    Counter(
        "finalizer", "staged_refused", "awa_pool_follow_ups_refused", "Ends whose follow-ups were not taken"
    ),
    Counter(
        "worker",
        "specs_failed",
        "awa_pool_follow_up_functions_failed",
        "Registered functions that raised or made no valid job, by outcome",
        ("outcome",),
    ),
    Counter(
        "worker",
        "owed_given_up",
        "awa_pool_owed_outcomes_given_up",
        "Owed outcomes whose functions failed at the last try",
    ),
    Counter(
        "worker",
        "follow_ups_dropped",
        "awa_pool_follow_ups_dropped",
        "Follow-ups staged by attempts that parked",
    ),
    Counter(
        "finalizer",
        "callbacks_registered",
        "awa_pool_callbacks_registered",
        "Callbacks that handlers registered",
    ),
    Counter(
        "finalizer",
        "attempts_leased",
        "awa_pool_leased_attempts",
        "Attempts whose handlers began to complete them",
    ),
    Counter(
        "finalizer",
        "callback_waits",
        "awa_pool_callback_waits",
        "Waits of handlers for callbacks that ended, by how",
        ("end",),
    ),
    Counter(
        "finalizer",
        "callback_wait_seconds",
        "awa_pool_callback_wait_seconds",
        "Time that those waits took",
    ),
    Counter(
        "finalizer",
        "callback_news",
        "awa_pool_callback_news",
        "Callbacks answered or timed out anywhere, as this host heard, by how",
        ("word",),
    ),
    Counter("finalizer", "flushes", "awa_pool_flushes", "Batches of results written"),
    Counter("finalizer", "flushed_jobs", "awa_pool_flushed_attempts", "Attempts in those batches"),
    Counter("finalizer", "flush_seconds", "awa_pool_flush_seconds", "Time those batches took"),
    Counter(
        "finalizer", "retries", "awa_pool_flush_retries", "Writes tried again after a conflict or outage"
    ),
    Counter("dispatcher", "claims", "awa_pool_claims", "Claims made"),
    Counter("dispatcher", "claimed_jobs", "awa_pool_claimed_jobs", "Jobs claimed"),
    Counter("dispatcher", "claim_seconds", "awa_pool_claim_seconds", "Time the claims took"),
    Counter("dispatcher", "recalled_jobs", "awa_pool_recalled_jobs", "Jobs taken back from busy workers"),
    Counter("dispatcher", "lost_jobs", "awa_pool_lost_attempts", "Attempts lost with their worker"),
    Counter(
        "dispatcher", "healed_jobs", "awa_pool_healed_attempts", "Attempts nobody held, ended by the audit"
    ),
    Counter("dispatcher", "run_jobs", "awa_pool_handler_runs", "Handlers run, by kind", ("kind",)),
    Counter(
        "dispatcher", "run_seconds", "awa_pool_handler_seconds", "Time handlers took, by kind", ("kind",)
    ),
    Counter("maintenance", "promoted", "awa_pool_promoted_jobs", "Due jobs made available by this host"),
    Counter(
        "maintenance", "rescued", "awa_pool_rescued_attempts", "Attempts of silent hosts rescued by this host"
    ),
    Counter(
        "maintenance", "expired", "awa_pool_expired_callbacks", "Callbacks timed out, ended by this host"
    ),
    Counter("maintenance", "errors", "awa_pool_maintenance_errors", "Housekeeping steps that failed"),
    Counter("maintenance", "runs", "awa_pool_maintenance_runs", "Housekeeping steps, by branch", ("branch",)),
)


class Figures:
    """What every incarnation said last; written by the supervisor's loop, read by the endpoint's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[str, tuple[str, _Tree]] = {}
        self._dead: dict[str, _Tree] = {}

    def take(self, role: str, incarnation: str, figures: Mapping[str, Any]) -> None:
        """Note the newest figures of a living incarnation."""
        with self._lock:
            self._living[incarnation] = (role, dict(figures))

    def bury(self, incarnation: str) -> None:
        """Keep what a dead incarnation had counted."""
        with self._lock:
            found = self._living.pop(incarnation, None)
            if found is not None:
                role, figures = found
                counted = {counter.figure for counter in COUNTERS if counter.role == role}
                kept = {name: value for name, value in figures.items() if name in counted}
                self._dead[role] = _added(self._dead.get(role, {}), kept)

    def newest(self, role: str) -> _Tree:
        """Return the figures of that role's living process, the gauges included; empty when there is none."""
        with self._lock:
            return next((figures for known, figures in self._living.values() if known == role), {})

    def total(self, role: str) -> _Tree:
        """Return the sum over all incarnations of a role, dead and living."""
        with self._lock:
            total = self._dead.get(role, {})
            for known, figures in self._living.values():
                if known == role:
                    total = _added(total, figures)
            return total

    def ended(self) -> dict[str, int]:
        """Return attempts by outcome over all kinds."""
        sums: dict[str, int] = {}
        for outcomes in self.total("finalizer").get("ended", {}).values():
            for outcome, count in outcomes.items():
                sums[outcome] = sums.get(outcome, 0) + count
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A figure of this moment: `values` maps label values to numbers."""

    name: str
    about: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]
    counts_up: bool = False  # rendered as a counter


class Exporter:
    """Renders everything in the exposition format.

    `gauges` adds what the supervisor sees (workers, restarts, queues) at the moment of asking.
    """

    def __init__(self, figures: Figures, gauges: Callable[[], list[Gauge]]) -> None:
        self._figures = figures
        self._gauges = gauges
        self._registry: Any = None

    def collect(self) -> Iterator[Any]:
        """Yield metric families, for the registry."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals = {role: self._figures.total(role) for role in dict.fromkeys(c.role for c in COUNTERS)}
        for counter in COUNTERS:
            family = CounterMetricFamily(counter.name, counter.about, labels=counter.labels)
            for labels, value in _bounded(
                _leaves(totals[counter.role].get(counter.figure), len(counter.labels))
            ):
                family.add_metric(labels, value)
            yield family
        for gauge in self._gauges():
            make = CounterMetricFamily if gauge.counts_up else GaugeMetricFamily
            now = make(gauge.name, gauge.about, labels=gauge.labels)
            for labels, value in _bounded(gauge.values.items()):
                now.add_metric(labels, value)
            yield now

    def render(self) -> tuple[bytes, str]:
        """Return `(body, content type)`. The library is loaded at the first scrape."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

        if self._registry is None:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(self)
            self._registry = registry
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def _added(left: _Tree, right: Mapping[str, Any]) -> _Tree:
    """Return the sum of two trees of numbers; what is no number is taken from the right."""
    out = dict(left)
    for name, value in right.items():
        before = out.get(name)
        if isinstance(value, Mapping):
            out[name] = _added(before if isinstance(before, dict) else {}, value)
        elif _is_number(value) and _is_number(before):
            out[name] = before + value
        else:
            out[name] = value
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaves(tree: Any, depth: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """Walk a tree of that depth; what has another shape is left out. A lone figure not yet counted is 0."""
    if depth == 0:
        yield (), float(tree) if _is_number(tree) else 0.0
    elif isinstance(tree, Mapping):
        for name, below in tree.items():
            for labels, value in _leaves(below, depth - 1):
                yield (str(name), *labels), value


def _bounded(rows: Any) -> list[tuple[tuple[str, ...], float]]:
    """Keep the first `MOST_LABELS` rows; the rest are summed under a first label of their own."""
    kept: dict[tuple[str, ...], float] = {}
    for labels, value in rows:
        if labels not in kept and len(kept) >= MOST_LABELS and labels:
            labels = (OTHER, *labels[1:])
        kept[labels] = kept.get(labels, 0.0) + value
    return list(kept.items())
