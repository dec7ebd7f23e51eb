"""What the others have to hear of a child that has come in the place of another, or has died. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from awa_pool.messages import ActorReplaced, WorkerGone

from .events import DISPATCHER, FINALIZER, MAINTENANCE, WORKER, ChildExited, Command, Tell
from .places import Child, Life

REMEMBER_GONE_S = 60.0
_LISTENERS = {DISPATCHER: (WORKER, FINALIZER), FINALIZER: (WORKER, DISPATCHER), MAINTENANCE: ()}


class News:
    """Remembers the recent deaths of workers, for a dispatcher that is away when they happen."""

    def __init__(self) -> None:
        self._gone: deque[tuple[float, WorkerGone]] = deque()

    def introduce(self, child: Child, children: Iterable[Child]) -> list[Command]:
        """Tell everybody who speaks to that actor that it is a new one; give a dispatcher the recent deaths."""
        out: list[Command] = [
            Tell(other.incarnation, ActorReplaced(child.role))
            for other in children
            if other is not child
            and other.life is not Life.UNINSTRUCTED
            and other.role in _LISTENERS[child.role]
        ]
        if child.role == DISPATCHER:
            out += [Tell(child.incarnation, account) for _, account in self._gone]
        return out

    def died(self, child: Child, event: ChildExited, dispatcher: Child | None, now_s: float) -> list[Command]:
        """Tell the dispatcher what a dead worker had started; it may be away, so the news is kept."""
        if event.account is None or child.disowned:
            return []
        account = replace(event.account, charged=child.charged)
        if child.cut:
            # Cut by the shutdown: nothing counts as started, so that no attempt is used up.
            uncounted = [[receipt, completed, completed] for receipt, _, completed in account.started]
            account = replace(account, started=uncounted, charged=[])
        self._gone.append((now_s, account))
        known = dispatcher is not None and dispatcher.life in (Life.READY, Life.STOPPING)
        return [Tell(dispatcher.incarnation, account)] if dispatcher is not None and known else []

    def age(self, now_s: float) -> None:
        """Forget deaths that every dispatcher has long heard of."""
        while self._gone and self._gone[0][0] < now_s - REMEMBER_GONE_S:
            self._gone.popleft()

    def clear(self) -> None:
        """Forget everything: the attempts of those who died belong to others now."""
        self._gone.clear()
