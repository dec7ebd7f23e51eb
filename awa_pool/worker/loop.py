"""The main thread of a worker: runs sync attempts, and between them minds its sockets and the control pipe."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

from awa_pool.control import ControlPipe
from awa_pool.errors import AwaError
from awa_pool.faults import reach
from awa_pool.messages import REPLACED, ActorReplaced, Stats, Stop, StopNow, Worn
from awa_pool.wire import Poller

from .asynchronous import AsyncLane
from .core import LaneCore
from .endings import Endings
from .events import Draining, FinalizerReplaced, Flush, Piece, Tick
from .lane import Lane
from .output import finish_lines
from .quota import Quota
from .registering import Registrar
from .sync import SyncExecutor

SLICE_S = 0.002  # results are sent and mail is read at least this often while jobs are short
STATS_S = 1.0
_WAIT_S = 0.5  # upper bound of a wait with nothing due
_LOOK_S = 0.001  # how often `job.is_cancelled()` really looks


class WorkerLoop:
    """Runs until it is told to stop, or the supervisor is gone; `run` returns the exit status."""

    def __init__(
        self,
        pipe: ControlPipe,
        role: str,
        incarnation: str,
        quota: Quota,
        endings: Endings,
        registrar: Registrar,
    ) -> None:
        self._pipe = pipe
        self._role = role
        self._incarnation = incarnation
        self._poller = Poller([pipe])
        self._lane: Lane | None = None
        self._executor: SyncExecutor | None = None
        self._async: AsyncLane | None = None
        self._piece: Piece | None = None
        self._thread = threading.get_ident()
        self._next_stats_s = 0.0
        self._next_look_s = 0.0
        self._drained_by_s: float | None = None
        self._stopped_now = False
        self._quota = quota if quota.most else None
        self._worn = False
        self._endings = endings
        self._registrar = registrar

    def add_sync(self, lane: Lane, executor: SyncExecutor) -> None:
        """Take the sync lane in; made by this thread."""
        self._lane, self._executor = lane, executor
        self._poller.add(lane.dispatcher)
        self._poller.add(lane.finalizer)

    def add_async(self, lane: AsyncLane) -> None:
        """Take the async lane in, started."""
        self._async = lane

    @property
    def orphaned(self) -> bool:
        """The supervisor is gone."""
        return self._pipe.closed

    def run(self) -> bool:
        """Work until drained (True), or until told to end at once or left alone (False)."""
        if self._lane is not None:
            self._lane.greet()
        while True:
            now_s = monotonic()
            self._mind_pipe(now_s)
            if self._stopped_now or self._pipe.closed:
                return False
            if self._drained_by_s is not None and (self._settled(now_s) or now_s >= self._drained_by_s):
                return True
            if self._quota is not None:
                self._mind_quota(self._quota, now_s)
            if not self._work(now_s):
                self._rest(now_s)

    def close(self) -> bool:
        """Close the lanes' sockets; what is queued has a moment to leave. False when a lane would not stop: its
        sockets are in use, and the context has to be left alone."""
        if self._lane is not None:
            self._poller.remove(self._lane.dispatcher)
            self._poller.remove(self._lane.finalizer)
            self._lane.close()
        return self._async is None or self._async.close(1.0)

    def is_cancelled(self, job_id: int, run_lease: int) -> bool:
        """Answer `job.is_cancelled()`. On the main thread it reads the mail first, which would else wait for the
        end of the job; other threads must not touch the sockets and see what was read so far."""
        if self._lane is None:
            return False
        if threading.get_ident() == self._thread:
            now_s = monotonic()
            if now_s >= self._next_look_s:
                self._next_look_s = now_s + _LOOK_S
                self._lane.pump(now_s)
                self._mind_pipe(now_s)
        return (job_id, run_lease) in self._lane.core.cancelled

    def _settled(self, now_s: float) -> bool:
        """Say whether a draining worker has nothing left to do. Jobs that were on the way when the drain began
        are given back first."""
        if self._async is not None and self._async.alive and not self._async.settled:
            return False
        lane = self._lane
        return lane is None or (lane.core.settled and not lane.pump(now_s))

    def _work(self, now_s: float) -> bool:
        """Take in mail and run a slice; False when there was nothing to run."""
        lane, executor = self._lane, self._executor
        if lane is None or executor is None:
            return False
        lane.pump(now_s)
        piece = self._piece
        if piece is None or not piece.todo:
            self._piece = piece = lane.core.take() if lane.may_start else None
            if piece is None:
                return False
            reach("worker.taken")
        lane.core.started_s = executor.run(piece, SLICE_S) or lane.core.started_s
        reach("worker.ran")
        now_s = monotonic()
        lane.pump(now_s)  # first, so that the results can say whether more is in hand
        lane.step(Flush(piece), now_s)
        reach("worker.sent")
        lane.publish()
        return True

    def _rest(self, now_s: float) -> None:
        """Wait for mail, for the supervisor, or for the next thing due."""
        if self._executor is not None:
            self._executor.rest()
        if self._lane is not None:
            self._lane.core.started_s = None
        finish_lines()
        due_s = min(self._next_stats_s, self._drained_by_s or now_s + _WAIT_S)
        if self._lane is not None:
            resend_s = self._lane.core.next_due_s()
            if resend_s is not None:
                due_s = min(due_s, resend_s)
        if self._drained_by_s is not None and self._async is not None:
            # The other lane says by a flag only that it is settled; its waits may take days.
            due_s = min(due_s, now_s + (0.25 if self._async.core.anything_waits else 0.01))
        elif self._quota is not None and self._async is not None and not self._worn:
            due_s = min(due_s, now_s + 0.05)  # nor does it say how much it has started
        self._poller.wait(max(0.0, min(due_s - now_s, _WAIT_S)))
        if self._lane is not None:
            self._lane.step(Tick(), monotonic())

    def _mind_pipe(self, now_s: float) -> None:
        while (message := self._pipe.receive()) is not None:
            match message:
                case StopNow():
                    self._stopped_now = True
                    self._registrar.stopping(at_once=True)
                case Stop(drain_s, reason):
                    self._drained_by_s = now_s + drain_s
                    if reason != REPLACED:  # one that makes room for another keeps its waits until they end
                        self._registrar.stopping(drain_s)
                    self._tell_lanes_to_drain(now_s)
                case ActorReplaced("finalizer"):
                    self._greet_finalizer(now_s)
                case ActorReplaced("dispatcher"):
                    self._greet_dispatcher()
                case _:
                    pass  # meant for another role: nothing of ours depends on it
        if now_s >= self._next_stats_s:
            self._next_stats_s = now_s + STATS_S
            self.tell_figures()
            if self._endings.failures is not None:
                self._endings.failures.flush()

    def _mind_quota(self, quota: Quota, now_s: float) -> None:
        """Ask for a successor in time; start nothing more once all has been started that may be."""
        if not self._worn and (quota.exhausted or quota.nearly_exhausted(now_s)):
            self._worn = True
            self._pipe.send(Worn(self._incarnation, quota.sync_started + quota.async_started))
        if quota.exhausted and self._lane is not None and not self._lane.core.draining:
            self._lane.step(Draining(), now_s)

    def _tell_lanes_to_drain(self, now_s: float) -> None:
        if self._lane is not None:
            self._lane.step(Draining(), now_s)
        if self._async is not None:
            self._async.post(Draining())

    def _greet_finalizer(self, now_s: float) -> None:
        self._registrar.say_again()
        if self._lane is not None:
            self._lane.step(FinalizerReplaced(), now_s)
        if self._async is not None:
            self._async.finalizer_replaced()

    def _greet_dispatcher(self) -> None:
        if self._lane is not None:
            self._lane.greet()
        if self._async is not None:
            self._async.greet()

    def tell_figures(self) -> None:
        """Say how far this worker has come; once more before it ends, so that nothing it noted is lost."""
        self._pipe.send(Stats(self._role, self._incarnation, self._figures()))

    def _figures(self) -> dict[str, Any]:
        cores: list[LaneCore] = [] if self._lane is None else [self._lane.core]
        if self._async is not None:
            if not self._async.alive:
                raise AwaError("the thread of the async lane has ended")
            cores.append(self._async.core)
        return {
            "jobs": sum(core.jobs_done for core in cores),
            "unacknowledged": sum(core.unacknowledged_jobs for core in cores),
            "malformed": self._lane.malformed if self._lane is not None else 0,
            "dropped": self._endings.dropped,
            "follow_ups_dropped": self._endings.follow_ups_dropped,
            **self._endings.spec_failures.figures(),
        }
