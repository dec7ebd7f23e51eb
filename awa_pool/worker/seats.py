"""Who sits where in the async lane: which attempts hold a slot, and which wait for a callback and have given theirs away.

A lane starts an attempt while fewer than `capacity` hold a slot. One that waits gives its slot away, unless `most_waiting` have
done so; one that goes on takes a slot, whether one is free or not. Used by the lane's thread alone, but for `Seat` and `show`.

A crash costs no attempt of those that the page shows waiting. So a handler that goes on must not be shown so for one step of
its code, or it could crash again and again for nothing: its own thread writes the phase, the lane's thread learns of it later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from awa_pool.page.layout import PLACE, Phase
from awa_pool.page.writing import LanePage

from .core import LaneCore
from .events import Piece

if TYPE_CHECKING:
    from .limits import Reins
    from .threads import ThreadReins

_log = logging.getLogger(__name__)


class Seat:
    """The place of one attempt, for as long as it runs."""

    __slots__ = ("bit", "given", "left", "piece", "place", "reins", "seats")
    reins: Reins | ThreadReins

    def __init__(self, seats: Seats, piece: Piece, bit: int, place: int) -> None:
        self.seats = seats
        self.piece = piece
        self.bit = bit
        self.place = place
        self.given = False
        self.left = False

    def begins_to_wait(self) -> None:
        """Its handler waits from now on. From any thread."""
        self.seats.show(self, Phase.WAITING if self.reins.in_handler() else Phase.ASIDE)
        self.seats.post(partial(self.seats.give_away, self))

    def goes_on(self) -> None:
        """Its handler waits no more. From any thread; the page shows it before the handler's next step."""
        self.seats.show(self, Phase.HANDLER)
        self.seats.post(partial(self.seats.take_back, self))


class Seats:
    """The places on the page, and the slots."""

    def __init__(
        self,
        core: LaneCore,
        page: LanePage,
        worker: int,
        capacity: int,
        most_waiting: int,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """`post` has something called on the lane's thread, after what was posted before."""
        self.post = post
        self._core = core
        self._page = page
        self._worker = worker
        self._capacity = capacity
        self._most_waiting = most_waiting
        self._free = list(range(capacity + most_waiting - 1, -1, -1))  # the lowest first: readers look at few
        self._version = 0
        # Between a seat's end and its phase; entered again where the garbage collector closes a wait in between.
        self._showing = threading.RLock()
        self._held = 0
        self._given = 0
        self._warned = False

    @property
    def room(self) -> bool:
        """Another attempt may start."""
        return self._held < self._capacity

    def take(
        self, piece: Piece, index: int, body: list[Any], kind: int, now_s: float, limit_s: float | None
    ) -> Seat:
        """Seat an attempt that starts now, and show it on the page."""
        page, place = self._page, self._free.pop()
        piece.started |= 1 << index
        page.words[page.started_word(piece.row)] = piece.started
        page.use_place(place)
        self._version = version = self._version + 1
        PLACE.pack_into(
            page.buffer,
            page.place_offset(place),
            version,
            piece.receipt_id,
            piece.nonce,
            index,
            body[0],
            body[4],
            kind,
            int(Phase.HANDLER),
            now_s,
            0.0 if limit_s is None else now_s + limit_s,
            version,
        )
        if limit_s is not None:
            page.count_deadline()
        self._held += 1
        return Seat(self, piece, 1 << index, place)

    def leave(self, seat: Seat) -> None:
        """The attempt has ended."""
        if seat.given:
            self.take_back(seat)
        self._held -= 1
        with self._showing:
            seat.left = True
            self._page.set_phase(seat.place, Phase.IDLE)
        self._free.append(seat.place)

    def show(self, seat: Seat, phase: Phase) -> None:
        """Show what an attempt does, unless it has ended and its place is another's. From any thread."""
        with self._showing:
            if not seat.left:
                self._page.set_phase(seat.place, phase)

    def give_away(self, seat: Seat) -> None:
        """Let others have the slot of an attempt that waits."""
        if seat.left or seat.given:
            return
        if self._given >= self._most_waiting:
            self._warn()
            return
        seat.given = True
        self._given += 1
        self._held -= 1
        self._core.waits(seat.piece, seat.bit)

    def take_back(self, seat: Seat) -> None:
        """Let an attempt go on that has waited; it may be one more than there are slots."""
        if seat.given and not seat.left:
            seat.given = False
            self._given -= 1
            self._held += 1
            self._core.goes_on(seat.piece, seat.bit)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s handlers of worker %s wait for callbacks, as many as may give their slots away: those that wait beyond them "
                "keep theirs, and other jobs of this worker wait with them; raise --max-waiting, or park jobs that wait long "
                "(return WaitForCallback(token))",
                self._given, self._worker,
            )  # fmt: skip
