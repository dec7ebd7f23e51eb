"""What the receiver counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from .signing import ACTIONS


class Figures:
    """Answers taken, by action, and requests refused, by status; of one receiver, since it was made."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "awa_pool_callback_answers",
            "Answers to callbacks that were taken, by action",
            ["action"],
            registry=self._registry,
        )
        self._refused = Counter(
            "awa_pool_callback_refusals",
            "Requests to the receiver that were refused, by status",
            ["status"],
            registry=self._registry,
        )
        for action in ACTIONS:
            self._answers.labels(action)

    def took(self, action: str) -> None:
        """Count an answer."""
        self._answers.labels(action).inc()

    def refused(self, status: int) -> None:
        """Count a refusal."""
        self._refused.labels(str(status)).inc()

    def render(self) -> tuple[bytes, str]:
        """Return `(body, content type)`."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
