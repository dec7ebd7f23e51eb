"""`finalize_with_retry`: what to do when the database did not take a flush.

A deadlock, a serialization failure or a lost connection: the same finish again in a new transaction, at most three
times, after 10, 20 and 40 ms with jitter. The guard makes a repeat of what did commit harmless: it replays as stale.
A lock not to be had in time goes back into the queue, and no attempt is used. When the third retry has failed too, a
lost connection means that the database is down, and results wait for it; any other error, at once or then, is one
item's fault: the batch is halved until the culprit stands alone, and that attempt is failed with the error.
"""

from __future__ import annotations

from dataclasses import dataclass

from awa_pool.events import Trouble

RETRIES_S = (0.010, 0.020, 0.040)
GATHER_S = 0.005
GATHER_MOST_S = 0.02
"""Between the beginnings of two calls for handlers that ask about callbacks, and so long at most after the first has ended: what comes
meanwhile shares the next. One for a single handler costs the database ten times what it costs among twenty."""
REQUEUE_S = 0.020
REQUEUE_MAX_S = 1.0
WAIT_S = 0.1
WAIT_MAX_S = 1.0


def gathers_until_s(asked_s: float, now_s: float) -> float:
    """Return when the next call may begin, after one that has been answered now: at half the time, calls keep up with what comes."""
    return max(asked_s + GATHER_S, now_s + min(now_s - asked_s, GATHER_MOST_S))


@dataclass(frozen=True, slots=True)
class Again:
    """Send the same batch again after so long."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put the units back, each to come again after so long."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Split:
    """Halve the batch; a single unit is the culprit."""


def finalize_with_retry(trouble: Trouble, tries: int, draw: float) -> Again | Requeue | Split:
    """Decide about a batch that has failed `tries` times in a row (≥ 1); `draw` is uniform in [0, 1)."""
    match trouble:
        case Trouble.REFUSED:
            return Split()
        case Trouble.LOCKED:
            return Requeue(_jittered(min(REQUEUE_S * 2 ** min(tries - 1, 10), REQUEUE_MAX_S), draw))
        case Trouble.CONFLICT if tries > len(RETRIES_S):
            return Split()
        case Trouble.AWAY if tries > len(RETRIES_S):
            return Again(_jittered(min(WAIT_S * 2 ** min(tries - 4, 10), WAIT_MAX_S), draw))
    return Again(_jittered(RETRIES_S[tries - 1], draw))


def _jittered(pause_s: float, draw: float) -> float:
    return pause_s * (0.75 + draw / 2)
