"""A lane's books (`LaneCore`), page and sockets together: takes messages in, carries commands out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from awa_pool.page.writing import LanePage
from awa_pool.wire import Dealer

from .core import LaneCore
from .events import Arrived, Command, Event, ReleaseRow, SayWaits, TellHooks, ToDispatcher, ToFinalizer

if TYPE_CHECKING:
    from awa_pool.hooks import JobEvent


class Lane:
    """Used by one thread, which made it: its sockets belong to that thread."""

    def __init__(
        self,
        core: LaneCore,
        page: LanePage,
        settings: Mapping[str, Any],
        name: str,
        tell: Callable[[list[JobEvent]], None] | None = None,
    ) -> None:
        """`tell` is called with what hooks are to hear; it must not block."""
        identity = f"w{settings['worker']}-{settings['incarnation']}-{name}"
        self.core = core
        self.page = page
        self._tell = tell
        self.dispatcher = Dealer(str(settings["dispatcher_path"]), identity)
        self.finalizer = Dealer(str(settings["finalizer_path"]), identity)

    @property
    def may_start(self) -> bool:
        """Results are being acknowledged fast enough for more to start, and the journal has room for them."""
        return not self.page.full and not self.core.congested

    @property
    def malformed(self) -> int:
        return self.dispatcher.malformed + self.finalizer.malformed

    def greet(self) -> None:
        """Tell the dispatcher, a new or the first one, that this lane is here and what it holds."""
        self.dispatcher.send(self.core.greet())
        self.carry_out(self.core.step(SayWaits(), 0.0))

    def pump(self, now_s: float) -> bool:
        """Take in all messages that have come; True when there were any."""
        took = False
        for wire in (self.dispatcher, self.finalizer):
            while wire.has_mail():
                received = wire.receive()
                if received is None:
                    break
                took = True
                self.step(Arrived(received[1], received[2]), now_s)
        return took

    def step(self, event: Event, now_s: float) -> None:
        """Feed an event to the core and carry out what it commands."""
        self.carry_out(self.core.step(event, now_s))

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Send and release. Results that cannot be sent now stay in the core, which has them sent again."""
        for command in commands:
            match command:
                case ToFinalizer(message, payload):
                    self.finalizer.send(message, *payload)
                case ToDispatcher(message):
                    self.dispatcher.send(message)
                case ReleaseRow(row):
                    self.page.release_piece(row)
                case TellHooks(events):
                    if self._tell is not None:
                        self._tell(events)

    def publish(self) -> None:
        """Show on the page how many attempts this lane has ended."""
        self.page.set_jobs_done(self.core.jobs_done)

    def close(self) -> None:
        """Close the sockets; what is queued has a moment to leave."""
        self.dispatcher.close()
        self.finalizer.close()
