"""Runs async handlers, and plain ones that wait: a thread with an event loop and sockets of its own, up to `capacity`
attempts at once, and beside them those that wait for callbacks.

Results go out as they come; those of one turn of the loop share a message. Everything here runs on the loop's thread;
the main thread speaks to it through `post` and the flags that say how far it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from awa_pool.errors import AwaError, LeaseLost
from awa_pool.job import Job
from awa_pool.page.writing import LanePage
from awa_pool.registry import Task

from .bodies import Unreadable
from .core import LaneCore
from .endings import Endings, leave_out_our_frame
from .events import Draining, Event, FinalizerReplaced, Flush, Piece, SayWaits, Tick
from .lane import Lane
from .limits import Reins, nearest_limit_s
from .output import Tags
from .process import leave_if_forked
from .quota import Quota
from .seats import Seat, Seats

if TYPE_CHECKING:  # loaded by the first plain handler that may wait
    from .registering import Registrar
    from .threads import ThreadReins, Threads

_START_S = 30.0
_TICK_S = 0.1  # resending, and a second look at sockets whose descriptors only tell of edges
_IDLE_TICK_S = 0.5  # the same with nothing in hand: ten looks a second cost each worker 0.2 % of a core

_SAY_WAITS_S = 0.02
"""Between two words on who waits, under load; one that goes on and waits again meanwhile is not worth one."""

_log = logging.getLogger(__name__)


class AsyncLane:
    """The async lane of a worker. `start` returns when its sockets are connected, or raises what went wrong."""

    def __init__(
        self,
        core: LaneCore,
        page: LanePage,
        kind_numbers: dict[str, int],
        endings: Endings,
        tags: Tags,
        settings: Mapping[str, Any],
        capacity: int,
        quota: Quota,
        registrar: Registrar,
    ) -> None:
        self._core = core
        self._quota = quota
        self._page = page
        self._kind_numbers = kind_numbers
        self._endings = endings
        self._tags = tags
        self._settings = settings
        self._registrar = registrar
        most_waiting = int(settings.get("max_waiting") or 0)
        self._seats = Seats(core, page, int(settings["worker"]), capacity, most_waiting, self._post)
        self._threads: Threads | None = None
        self._dirty: dict[int, Piece] = {}
        self._piece: Piece | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._live: dict[tuple[int, int], Reins | ThreadReins] = {}
        """(job_id, run_lease) of the handlers that run."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._lane: Lane
        self._loop: asyncio.AbstractEventLoop
        self._pump_due = False
        self._waits_said_s = 0.0
        self._waits_due = False
        self._context: contextvars.Context
        """That of no handler: what one has set in its own is not seen by those that start after it."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="awa-pool-async", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise AwaError(f"the thread of the async lane did not start within {_START_S:g} s")
        if self._failure is not None:
            raise self._failure

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def settled(self) -> bool:
        """It has heard of the drain, and nothing is left to run, to send or to be acknowledged (a moment ago: this is
        read from the main thread)."""
        return self._core.draining and self._core.settled

    @property
    def core(self) -> LaneCore:
        return self._core

    def post(self, event: Event | Callable[[], None]) -> None:
        """Have the lane take in an event, or call something, on its own thread."""
        self._loop.call_soon_threadsafe(self._posted, event)

    def greet(self) -> None:
        """Say hello to the dispatcher (again)."""
        self.post(lambda: self._lane.greet())

    def finalizer_replaced(self) -> None:
        """Send again what is not acknowledged."""
        self.post(FinalizerReplaced())

    def close(self, timeout_s: float) -> bool:
        """Stop the thread, which closes its sockets; False when a handler still blocks it after `timeout_s`."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    def _run(self) -> None:
        try:
            self._context = contextvars.copy_context()
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            self._lane = Lane(self._core, self._page, self._settings, "async", self._endings.tell)
            self._loop.add_reader(self._lane.dispatcher.fileno(), self._pump_soon)
            self._loop.add_reader(self._lane.finalizer.fileno(), self._pump_soon)
            self._lane.greet()
            self._loop.call_soon(self._tick)
        except BaseException as error:  # noqa: BLE001 (handed to the main thread)
            self._failure = error
            return
        finally:
            self._ready.set()
        while not self._closing:
            try:
                self._loop.run_forever()
                if not self._closing:
                    _log.warning("a handler stopped the loop of the async handlers: it goes on")
            except (
                SystemExit,
                KeyboardInterrupt,
            ) as error:  # from a callback or task that a handler left behind
                _log.warning("a background task raised %s: ignored", type(error).__name__)
        self._lane.close()

    def _tick(self) -> None:
        self._lane.step(Tick(), monotonic())
        self._pump()
        in_hand = not self._core.settled or self._core.next_due_s() is not None
        self._loop.call_later(_TICK_S if in_hand else _IDLE_TICK_S, self._tick)

    def _posted(self, event: Event | Callable[[], None]) -> None:
        if callable(event):
            event()
        else:
            self._lane.step(event, monotonic())
        self._pump_soon()

    def _post(self, call: Callable[[], None]) -> None:
        """Have something called on this lane's thread; at once where that is the calling one."""
        if threading.get_ident() == self._thread.ident:
            call()
            self._pump_soon()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has gone
                self._loop.call_soon_threadsafe(self._posted, call, context=self._context)

    def _pump_soon(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        """Send what has ended, take in what has come, start what there is room for."""
        self._pump_due = False
        now_s = monotonic()
        dirty, self._dirty = self._dirty, {}
        self._say_waits(now_s, at_once=bool(dirty))  # before the ends of those that have waited
        for piece in dirty.values():
            self._lane.step(Flush(piece), now_s)
        if dirty:
            self._lane.publish()
        took = self._lane.pump(now_s)
        for cancelled in self._core.cancelled:
            if (reins := self._live.get(cancelled)) is not None:
                reins.cancel()
        self._start_more(now_s)
        if took or dirty or self._dirty:
            self._pump_soon()  # sending and receiving may swallow the edge: look again until nothing comes

    def _say_waits(self, now_s: float, *, at_once: bool) -> None:
        """Tell the dispatcher who waits and who goes on: at once after a silence, else gathered for a moment."""
        if not self._core.waits_unsaid:
            return
        due_s = self._waits_said_s + _SAY_WAITS_S
        if at_once or now_s >= due_s:
            self._waits_said_s = now_s
            self._lane.step(SayWaits(), now_s)
        elif not self._waits_due:
            self._waits_due = True
            self._loop.call_later(due_s - now_s, self._waits_are_due, context=self._context)

    def _waits_are_due(self) -> None:
        self._waits_due = False
        self._pump_soon()

    def _start_more(self, now_s: float) -> None:
        while self._seats.room and not self._core.draining:
            if self._quota.exhausted:
                self._lane.step(Draining(), now_s)
                return
            piece = self._piece
            if piece is None or not piece.todo:
                if not self._lane.may_start or (piece := self._core.take()) is None:
                    self._piece = None
                    return
                self._piece = piece
                piece.row = self._page.open_piece(piece.slot, piece.receipt_id, piece.nonce)
            while piece.todo and self._seats.room and not self._quota.exhausted:
                self._start_next(piece, now_s)

    def _start_next(self, piece: Piece, now_s: float) -> None:
        index, body = piece.indexes[piece.at], piece.bodies[piece.at]
        piece.at += 1
        bit = 1 << index
        if not piece.todo & bit:
            return  # recalled, or handed over twice
        piece.todo ^= bit
        self._quota.async_started += 1
        self._dirty[id(piece)] = piece
        task = self._endings.registry.tasks.get(body[1])
        cancelled = self._core.cancelled
        if task is None or isinstance(body, Unreadable) or (cancelled and (body[0], body[4]) in cancelled):
            self._endings.record_unrun(piece, index, body, cancelled)
            return
        extra = body[6]
        limit_s = task.deadline_s if extra is None else nearest_limit_s(extra, task)
        seat = self._seats.take(piece, index, body, self._kind_numbers.get(body[1], -1), now_s, limit_s)
        piece.running += 1
        self._run_attempt(partial(self._attempt, piece, index, body, task, seat, now_s, limit_s))

    def _run_attempt(self, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Whatever task factory a handler has set.
        running = asyncio.Task(attempt(), loop=self._loop, context=self._context.copy())
        self._running.add(running)
        running.add_done_callback(partial(self._attempt_done, attempt))

    def _attempt_done(
        self, attempt: Callable[[], Coroutine[Any, Any, None]], done: asyncio.Task[None]
    ) -> None:
        self._running.discard(done)
        if done.cancelled():
            # An attempt catches what reaches it, so this one had not begun: a handler has cancelled all tasks.
            self._run_attempt(attempt)

    async def _attempt(
        self,
        piece: Piece,
        index: int,
        body: list[Any],
        task: Task,
        seat: Seat,
        began_s: float,
        limit_s: float | None,
    ) -> None:
        """Run one attempt to its end; whatever the handler does, it is recorded and the place freed."""
        job = self._endings.job(piece, task, index, body, partial(self._is_cancelled, body[0], body[4]))
        if job is not None:
            job.deadline_s, job._seat = limit_s, seat
            result, raised, late = await self._call(task, job, seat, limit_s)
            leave_if_forked()
            ending = self._endings.of_handler(task, job.attempt, result, raised, late=late)
            if (wait := getattr(job, "_wait", None)) is not None:
                self._registrar.end(
                    wait, LeaseLost("the handler has returned: its job waits for nothing more")
                )
            if self._endings.settle(piece, index, job, task, ending):
                piece.completed |= 1 << index
                self._page.words[self._page.completed_word(piece.row)] = piece.completed
            else:
                self._page.mark_ended(piece.row, 1 << index)
        else:
            self._page.mark_ended(piece.row, 1 << index)
        self._endings.time(piece, task.kind, monotonic() - began_s)
        piece.running -= 1
        self._seats.leave(seat)
        self._dirty[id(piece)] = piece
        self._pump_soon()

    async def _call(
        self, task: Task, job: Job[Any], seat: Seat, limit_s: float | None
    ) -> tuple[object, BaseException | None, bool]:
        """Return what the handler returned and raised, and whether its deadline had passed."""
        self._tags.task_job.set(job)
        key = (job.id, job.run_lease)
        reins = self._live[key] = seat.reins = self._reins_for(task)
        timer = None if limit_s is None else self._loop.call_later(limit_s, reins.exceed, limit_s)
        try:
            if not isinstance(reins, Reins):
                assert self._threads is not None
                return *(await self._threads.run(task, job, reins)), reins.late
            result = task.handler(job)
            return (await reins.drive(result) if task.is_async else result), None, reins.late
        except BaseException as problem:  # noqa: BLE001 (exit and cancellation too end the attempt, never the lane)
            leave_out_our_frame(problem)
            if task.is_async:
                leave_out_our_frame(problem)  # and the one that holds the reins
            return None, problem, reins.late
        finally:
            if timer is not None:
                timer.cancel()
            self._live.pop(key, None)
            self._core.cancelled.discard(key)

    def _reins_for(self, task: Task) -> Reins | ThreadReins:
        if task.waits:
            from .threads import ThreadReins, Threads

            if self._threads is None:
                self._threads = Threads(self._loop)
            return ThreadReins()
        mine = asyncio.current_task()
        assert mine is not None
        return Reins(mine)

    def _is_cancelled(self, job_id: int, run_lease: int) -> bool:
        return (job_id, run_lease) in self._core.cancelled
