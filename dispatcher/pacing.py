"""How fast jobs go, and what follows: chunk per hand-over, jobs per claim, how often to look.

Pure arithmetic on figures that workers report per chunk: `[kind, count, total_s, longest_s]`.
"""

from __future__ import annotations

import math
from typing import Any

CHUNK_S = 0.005
"""A hand-over holds about this much work, so that nothing waits long behind its neighbours."""
FLOOR_S = 8e-6
"""What a worker needs at least per job, with an empty handler."""
UNKNOWN_S = 0.05
"""Assumed of a kind nobody has run yet: long enough that nothing is put behind it."""
LONGEST_NAP_S = 0.05
"""The loop may not look for so long while every lane is busy."""
MAX_CLAIM = 2000
_STEP = 0.5


class KindPace:
    """Mean and an estimate of the 95th percentile of one kind's handler time.

    The percentile walks in the logarithm: up 0.95 of a step for a sample above, down 0.05 for one below, which
    rests where one in twenty is above. A group counts as its longest job and the mean of the others.
    """

    __slots__ = ("mean_s", "p95_s")

    def __init__(self) -> None:
        self.mean_s = 0.0
        self.p95_s = 0.0

    def observe(self, count: int, total_s: float, longest_s: float) -> None:
        mean_s = max(total_s / count, FLOOR_S)
        longest_s = max(longest_s, mean_s)
        if not self.mean_s:
            self.mean_s, self.p95_s = mean_s, longest_s
            return
        self.mean_s += (mean_s - self.mean_s) * min(0.5, 0.05 * count)
        others_s = max((total_s - longest_s) / (count - 1), FLOOR_S) if count > 1 else longest_s
        move = 0.0
        for sample_s, weight in ((others_s, count - 1), (longest_s, 1)):
            move += weight * _STEP * (0.95 if sample_s > self.p95_s * 1.02 else -0.05)
        self.p95_s = min(max(self.p95_s * math.exp(max(-1.0, min(1.0, move))), self.mean_s), longest_s * 4)


class QueuePace:
    """Typical time per job of a queue, as a moving geometric mean: one long job does not make a queue long."""

    __slots__ = ("_log",)

    def __init__(self) -> None:
        self._log: float | None = None

    def observe(self, count: int, total_s: float) -> None:
        value = math.log(max(total_s / count, FLOOR_S))
        self._log = value if self._log is None else self._log + (value - self._log) * min(0.3, 0.03 * count)

    @property
    def mean_s(self) -> float | None:
        return None if self._log is None else math.exp(self._log)


class Pacing:
    """Paces of all kinds and queues, and of claims."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindPace] = {}
        self.queues: dict[str, QueuePace] = {}
        self.overall = QueuePace()
        self.claim_s = 0.005
        self.run_jobs: dict[str, int] = {}
        self.run_seconds: dict[str, float] = {}

    def observe(self, queue: str, timings: list[Any]) -> bool:
        """Take the timings of one `AttemptsRan`; False if they are malformed (then nothing is taken)."""
        for timing in timings:
            if not _well_formed(timing):
                return False
        for kind, count, total_s, longest_s in timings:
            pace = self.kinds.get(kind)
            if pace is None:
                if len(self.kinds) >= 1000:
                    continue  # kinds are an app's names; a thousand is somebody making them up
                pace = self.kinds[kind] = KindPace()
            pace.observe(count, total_s, longest_s)
            self.run_jobs[kind] = self.run_jobs.get(kind, 0) + count
            self.run_seconds[kind] = self.run_seconds.get(kind, 0.0) + total_s
            self.overall.observe(count, total_s)
            if queue:
                self.queues.setdefault(queue, QueuePace()).observe(count, total_s)
        return True

    def claimed(self, took_s: float) -> None:
        self.claim_s += (min(max(took_s, 0.0), 0.25) - self.claim_s) * 0.2

    def cost_s(self, kind: str) -> float:
        """What a job of this kind is taken to need."""
        pace = self.kinds.get(kind)
        return UNKNOWN_S if pace is None else max(pace.p95_s, FLOOR_S)

    def knows(self, kind: str) -> bool:
        """Jobs of this kind have run."""
        return kind in self.kinds

    def chunk(self, kind: str) -> int:
        """Jobs of this kind per hand-over: 1 to 63."""
        return max(1, min(63, int(CHUNK_S / self.cost_s(kind))))

    def ahead(self, queue: str, slots: int, idle: int) -> int:
        """Jobs of the queue that `slots` can take up during the next claims, at least one for each idle one."""
        pace = self.queues.get(queue)
        mean_s = pace.mean_s if pace else None
        if mean_s is None:
            return max(1, idle)
        horizon_s = min(max(4 * self.claim_s, 0.4), 0.5)
        return max(1, idle, min(MAX_CLAIM, int(slots / mean_s * horizon_s)))

    def low_water(self, slots: int) -> int:
        """Stock at which the next claim has to start so that no lane runs dry during it; 0 under long jobs."""
        mean_s = self.overall.mean_s
        if mean_s is None:
            return 0
        eaten = slots / mean_s * self.claim_s * 1.5 + slots / max(mean_s, CHUNK_S) * LONGEST_NAP_S
        return min(MAX_CLAIM, math.ceil(eaten)) if eaten > 0.05 else 0

    def receipt_size(self) -> int:
        """Jobs per receipt: full ones for short jobs; long ones end one by one and hold no slot open together."""
        mean_s = self.overall.mean_s
        return 16 if mean_s is None else max(1, min(63, int(0.3 / mean_s)))


def _well_formed(timing: Any) -> bool:
    return (
        isinstance(timing, list)
        and len(timing) == 4
        and isinstance(timing[0], str)
        and type(timing[1]) is int
        and 0 < timing[1] <= 63
        and all(isinstance(s, float | int) and 0 <= s < 1e9 for s in timing[2:])
    )


class Poll:
    """When to look at the database again: at once while it gives, else 50 ms rising to the poll interval."""

    FIRST_S = 0.05
    BUSY_S = 0.005

    def __init__(self, longest_s: float) -> None:
        self._longest_s = max(longest_s, self.BUSY_S)
        self._pause_s = 0.0
        self.due_s = 0.0

    def found(self, now_s: float) -> None:
        self._pause_s, self.due_s = 0.0, now_s

    def nothing(self, now_s: float) -> None:
        self._pause_s = min(max(self._pause_s * 1.5, self.FIRST_S), self._longest_s)
        self.due_s = now_s + self._pause_s

    def busy(self, now_s: float) -> None:
        """Another claimer has the lane: it is not empty, so look again soon."""
        self._pause_s = min(max(self._pause_s * 1.5, self.BUSY_S), self.FIRST_S)
        self.due_s = now_s + self._pause_s

    def failed(self, now_s: float, away: bool) -> None:
        self._pause_s = min(max(self._pause_s * 2, 0.1), 1.0 if away else 5.0)
        self.due_s = now_s + self._pause_s

    def at_once(self) -> None:
        self.due_s = 0.0
