"""Faults on purpose, asked for by the variable AWA_POOL_FAULTS; for tests of a pool, of no use in service.

The text is words with a space between them:

- `seed=7`, `drop=0.01`, `double=0.01`, `late=0.01`, `late_s=0.2`, `reorder=0.01`: shares of all messages between the
  pool's processes that are lost, sent twice, sent so many seconds later, or sent after the one that follows them;
- `marks=FOLDER` and `dispatcher.claimed=kill` (or `stop`; `kill:3` at the third time): SIGKILL or SIGSTOP for the process
  that reaches this point first; it leaves its process id in a file of that name, and nobody ends there again.

Processes read the variable when they start. Unset, a point costs one comparison and a message another.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ConfigError

VARIABLE = "AWA_POOL_FAULTS"
POINTS = (
    "dispatcher.claimed",  # a claim has committed, its jobs are not on the books yet
    "dispatcher.handed",  # a piece has gone to a worker
    "worker.taken",  # a piece has come, nothing of it has started
    "worker.started",  # the page says that an attempt runs, its handler has not been called
    "worker.ran",  # handlers have returned and the page says so, no message has left
    "worker.sent",  # the results have left, nobody has acknowledged them
    "handler.leased",  # an attempt is in leases, its handler's own transaction has not begun
    "handler.completed",  # that transaction holds the completion, and is not committed
    "handler.committed",  # it is, and nobody knows
    "finalizer.heard",  # results have come and are not written
    "finalizer.committed",  # the database has them, neither worker nor dispatcher knows
    "maintenance.answered",  # a chore has committed, its leader has not read the answer
    "supervisor.beat",  # a heartbeat has committed
)
_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_SHARES = ("drop", "double", "late", "reorder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to go wrong; shares lie between 0 and 1 and add up to 1 at most."""

    seed: str = "0"
    drop: float = 0.0
    double: float = 0.0
    late: float = 0.0
    late_s: float = 0.2
    reorder: float = 0.0
    marks: str = ""
    points: dict[str, tuple[signal.Signals, int]] = field(default_factory=dict)
    """Signal, and at which time of reaching the point."""

    @property
    def disturbs_messages(self) -> bool:
        """Some message may be lost, doubled or moved."""
        return any((self.drop, self.double, self.late, self.reorder))


def read_plan(text: str) -> Plan:
    """Read what AWA_POOL_FAULTS holds. Errors: ConfigError naming the word that cannot be read."""
    given: dict[str, object] = {}
    points: dict[str, tuple[signal.Signals, int]] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name in POINTS:
            action, _, count = value.partition(":")
            if action not in _ACTIONS or not (count or "1").isdecimal():
                raise ConfigError(f"{VARIABLE}: {word!r} should be {name}=kill or stop, as in {name}=kill:3")
            points[name] = _ACTIONS[action], int(count or 1)
        elif name in ("seed", "marks"):
            given[name] = value
        elif name in (*_SHARES, "late_s"):
            given[name] = _number(word, value)
        else:
            raise ConfigError(
                f"{VARIABLE}: {word!r} is unknown; points are {', '.join(POINTS)}; others: seed, marks, late_s, "
                + ", ".join(_SHARES)
            )
    plan = Plan(**given, points=points)  # type: ignore[arg-type]
    if plan.drop + plan.double + plan.late + plan.reorder > 1:
        raise ConfigError(f"{VARIABLE}: drop, double, late and reorder add up to more than 1")
    if points and not plan.marks:
        raise ConfigError(f"{VARIABLE}: a point needs marks=FOLDER, so that it is reached once")
    return plan


def _number(word: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= (60 if word.startswith("late_s") else 1):
        raise ConfigError(
            f"{VARIABLE}: {word!r} should give a number from 0 to 1 (late_s: seconds, up to 60)"
        )
    return number


def _of_environment() -> tuple[Plan | None, ConfigError | None]:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None, None
    try:
        return read_plan(text), None
    except ConfigError as error:
        return None, error


PLAN, _FLAW = _of_environment()
_POINTS = PLAN.points if PLAN is not None and PLAN.points else None
_counts: dict[str, int] = {}


def warning() -> str | None:
    """Return what to warn of when a pool starts under faults, None without. Errors: ConfigError."""
    if _FLAW is not None:
        raise _FLAW
    if PLAN is None:
        return None
    if PLAN.points and not os.path.isdir(PLAN.marks):
        raise ConfigError(f"{VARIABLE}: marks={PLAN.marks} is no folder; make it first")
    return f"{VARIABLE} is set, for tests only: messages and processes of this pool are lost on purpose"


def reach(point: str) -> None:
    """Be killed or stopped here, if that was asked for."""
    if _POINTS is not None and point in _POINTS:
        _meet(point, *_POINTS[point])


def _meet(point: str, number: signal.Signals, at: int) -> None:
    _counts[point] = _counts.get(point, 0) + 1
    if _counts[point] != at or PLAN is None:
        return
    draft = Path(PLAN.marks, f"{point}.{os.getpid()}")
    draft.write_text(str(os.getpid()))
    try:
        os.link(draft, Path(PLAN.marks, point))  # whole, and by one process only
    except FileExistsError:
        return
    finally:
        draft.unlink()
    os.kill(os.getpid(), number)


class Courier:
    """Loses, doubles, delays and swaps the messages of one wire; `clock` gives seconds.

    What is held back leaves when the wire is used again after its time, so a wire at rest may hold it longer.
    """

    def __init__(self, plan: Plan, name: str, clock: Callable[[], float]) -> None:
        self._plan = plan
        self._rng = random.Random(f"{plan.seed} {name}")
        self._clock = clock
        self._held: list[tuple[float, list[bytes]]] = []
        self._swapped: list[bytes] | None = None

    def send(self, frames: list[bytes], transmit: Callable[[list[bytes]], bool]) -> bool:
        """Pass a message on, or not; what the wire itself says of it else True."""
        plan, draw = self._plan, self._rng.random()
        self.release(transmit)
        if draw < plan.drop:
            return True
        draw -= plan.drop
        if draw < plan.double:
            transmit(frames)
            return transmit(frames)
        draw -= plan.double
        if draw < plan.late:
            self._held.append((self._clock() + plan.late_s, frames))
            return True
        draw -= plan.late
        if draw < plan.reorder and self._swapped is None:
            self._swapped = frames
            return True
        sent = transmit(frames)
        swapped, self._swapped = self._swapped, None
        if swapped is not None:
            transmit(swapped)
        return sent

    def release(self, transmit: Callable[[list[bytes]], bool]) -> None:
        """Send what has been held back for long enough."""
        if self._held and self._held[0][0] <= self._clock():
            now_s = self._clock()
            due = [frames for due_s, frames in self._held if due_s <= now_s]
            self._held = [item for item in self._held if item[0] > now_s]
            for frames in due:
                transmit(frames)
