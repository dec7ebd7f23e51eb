"""Runs sync handlers on the main thread, one after the other; the hot loop of the whole pool.

What can be done per chunk is not done per job; names used per job are local.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from awa_pool.faults import reach
from awa_pool.job import Job
from awa_pool.page.layout import PLACE, Phase
from awa_pool.page.writing import LanePage
from awa_pool.registry import Task

from .bodies import Unreadable
from .endings import Endings, leave_out_our_frame
from .events import Piece
from .limits import Alarm, nearest_limit_s
from .output import Tags
from .process import leave_if_forked
from .quota import Quota

LONG_SLICE_S = 0.1
"""A slice may go on for so long while its jobs are of one kind and prove short: at 5 ms a job, sending each result
by itself cost the worker 112 µs a job in wake-ups of the sockets' threads, a fifth of that in groups."""
SHORT_JOB_S = 0.01
SLOW_KIND_S = 0.05  # a kind whose last job took longer than this is named in the process title

_HANDLER = int(Phase.HANDLER)

Title = Callable[[str | None], None]
"""Shows what runs now, or (None) that nothing does."""


class SyncExecutor:
    """The one place where sync handlers are called."""

    def __init__(
        self,
        endings: Endings,
        page: LanePage,
        kind_numbers: dict[str, int],
        tags: Tags,
        is_cancelled: Callable[[int, int], bool],
        cancelled: set[tuple[int, int]],
        show_title: Title,
        alarm: Alarm,
        quota: Quota,
    ) -> None:
        self._endings = endings
        self._tasks = endings.registry.tasks
        self._page = page
        self._place_at = page.place_offset(0)
        self._kind_numbers = kind_numbers
        self._tags = tags
        self._is_cancelled = is_cancelled
        self._cancelled = cancelled
        self._show_title = show_title
        self._quota = quota if quota.most else None
        self._alarm = alarm
        self._slow_kinds: set[str] = set()
        self._titled = False
        self._version = 0

    def run(self, piece: Piece, slice_s: float) -> float | None:
        """Run attempts of `piece` in order until none is left or `slice_s` has passed; results go into the piece.

        Returns when the last of them started, None if none did; by then the page shows that nothing runs.

        What follows a short job of the same kind is taken to be short too, and may still start until LONG_SLICE_S.
        The page says of each attempt that it has started before its handler is called, and that it has completed
        right after. Never raises for what a handler does.
        """
        if piece.row < 0:
            piece.row = self._page.open_piece(piece.slot, piece.receipt_id, piece.nonce)
        words, completed_at = self._page.words, self._page.completed_word(piece.row)
        tasks, cancelled, tags = self._tasks, self._cancelled, self._tags
        indexes, bodies, done, time = piece.indexes, piece.bodies, piece.done, self._endings.time
        make_job, quota, settled = self._endings.job, self._quota, self._endings.settled
        said = self._endings.words
        at, count = piece.at, len(indexes)
        piece.running = 1
        began_s = monotonic()
        until_s, latest_s, last_s, last_kind = began_s + slice_s, began_s + LONG_SLICE_S, 0.0, ""
        started_s: float | None = None
        while at < count:
            index, body = indexes[at], bodies[at]
            if began_s >= until_s and (began_s >= latest_s or last_s > SHORT_JOB_S or body[1] != last_kind):
                break
            if quota is not None:
                if quota.exhausted:
                    break
                quota.sync_started += (piece.todo >> index) & 1
            at += 1
            bit = 1 << index
            if not piece.todo & bit:
                continue  # recalled, or handed over twice
            piece.todo ^= bit
            task = tasks.get(body[1])
            if (
                task is None
                or isinstance(body, Unreadable)
                or (cancelled and (body[0], body[4]) in cancelled)
            ):
                self._endings.record_unrun(piece, index, body, cancelled)
                continue
            extra = body[6]
            limit_s = task.deadline_s if extra is None else nearest_limit_s(extra, task)
            self._show_start(piece, index, body, began_s, limit_s)
            started_s = began_s
            job = make_job(piece, task, index, body, partial(self._is_cancelled, body[0], body[4]))
            if job is not None:
                tags.main_job = job
                reach("worker.started")
                if limit_s is None:
                    try:
                        result, raised = task.handler(job), None
                    except BaseException as problem:  # noqa: BLE001 (exit too ends the attempt, never the worker)
                        result, raised = None, problem
                else:
                    job.deadline_s = limit_s
                    result, raised = self._alarm.call(task.handler, job, limit_s)
                leave_if_forked()
                if (
                    result is None
                    and raised is None
                    and job._staging is None
                    and body[1] not in settled
                    and not said
                ):
                    piece.completed = words[completed_at] = piece.completed | bit
                    done[job.kind] = done.get(job.kind, 0) | bit
                else:
                    late = limit_s is not None and self._alarm.rang
                    self._settle(piece, index, job, task, result, raised, late=late)
                    result = raised = None
                tags.main_job = None
            else:
                self._page.mark_ended(piece.row, bit)
            ended_s = monotonic()
            last_s, last_kind = ended_s - began_s, task.kind
            time(piece, last_kind, last_s)
            if last_s > SLOW_KIND_S:
                self._slow_kinds.add(last_kind)
            began_s = ended_s
            if len(piece.others) > len(piece.staged):
                break  # the page cannot hold an error or a delay: it is sent before what comes next may kill us
        piece.at, piece.running = at, 0
        self._page.set_phase(0, Phase.IDLE)
        return started_s

    def rest(self) -> None:
        """Show that nothing runs."""
        self._page.set_phase(0, Phase.IDLE)
        if self._titled:
            self._titled = False
            self._show_title(None)

    def _show_start(
        self, piece: Piece, index: int, body: list[Any], now_s: float, limit_s: float | None
    ) -> None:
        page = self._page
        piece.started |= 1 << index
        page.words[page.started_word(piece.row)] = piece.started
        self._version = version = self._version + 1
        job_id, kind, lease = body[0], body[1], body[4]
        number = self._kind_numbers.get(kind, -1)
        at = self._place_at
        receipt_id, nonce = piece.receipt_id, piece.nonce
        PLACE.pack_into(
            page.buffer,
            at,
            version,
            receipt_id,
            nonce,
            index,
            job_id,
            lease,
            number,
            _HANDLER,
            now_s,
            0.0 if limit_s is None else now_s + limit_s,
            version,
        )
        if limit_s is not None:
            page.count_deadline()
        if self._slow_kinds:
            slow = kind in self._slow_kinds
            self._slow_kinds.discard(kind)  # it has to be slow again to be named again
            if slow or self._titled:
                self._titled = slow
                self._show_title(kind if slow else None)

    def _settle(
        self,
        piece: Piece,
        index: int,
        job: Job[Any],
        task: Task,
        result: object,
        raised: BaseException | None,
        *,
        late: bool,
    ) -> None:
        """Record any ending but the plain one."""
        if task.is_async and raised is None:  # handed to this lane all the same: run it here
            try:
                result = asyncio.run(result)  # type: ignore[arg-type]
            except BaseException as problem:  # noqa: BLE001 (user code)
                result, raised = None, problem
        if raised is not None:
            leave_out_our_frame(raised)
        ending = self._endings.of_handler(task, job.attempt, result, raised, late=late)
        if self._endings.settle(piece, index, job, task, ending):
            piece.completed |= 1 << index
            self._page.words[self._page.completed_word(piece.row)] = piece.completed
        else:
            self._page.mark_ended(piece.row, 1 << index)
