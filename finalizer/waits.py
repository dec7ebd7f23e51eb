"""The waits of this host's handlers for their callbacks, in one table: no handler that waits costs a query of its own.

A wait is asked about when it begins and when news of its callback come; besides, all are asked about again from time to
time, in batches: seldom while news come, often while they do not. One call is under way at most, what comes meanwhile
joins the next. Who waits says so again until answered, and the database answers the same twice: nothing here has to
outlive this process, and a lost answer is asked for again. Of a wait that was given up the database is told once, in the
next call: its attempt runs again, and no time-out ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from awa_pool.events import Trouble
from awa_pool.messages import AwaitCallback, CallbackAnswered, CallbackNews, ForgetCallback

from .events import Send, WaitForCallbacks, WaitRow
from .reading import is_bigint, named_attempt
from .retry import GATHER_S, REQUEUE_S, gathers_until_s

POLL_S = 5.0
"""So often all waits are asked about while news come: for what a lost notice, or a lost message, would hide."""
POLL_DEAF_S = 0.25
"""The same while nobody here hears what the database notifies."""
FORGOTTEN_S = 60.0
"""A wait that was not said again for so long is nobody's: they are said again every 10 s."""
AGAIN_S = 0.2
MOST_ITEMS = 500
MOST_HELD = 100_000
WORDS = frozenset(("resumed", "completed", "failed", "retried", "expired"))
Said = AwaitCallback | ForgetCallback | CallbackNews
Key = tuple[bytes, int]


@dataclass(slots=True, eq=False)
class _Wait:
    peer: bytes
    request: int
    item: dict[str, Any]
    callback_id: str
    began_s: float
    said_s: float
    stirred: bool = True
    """It is to be asked about, once more if it is being asked about."""

    gone: bool = False
    """Nobody waits: the database is to be told."""

    @property
    def key(self) -> Key:
        return self.peer, self.request


class Waits:
    """The table: what to ask the database, and what to tell those who wait."""

    def __init__(self) -> None:
        self._waits: dict[Key, _Wait] = {}
        self._of_callback: dict[str, set[Key]] = {}
        self._due: dict[Key, None] = {}  # in the order in which they came to be due
        self._gone: dict[Key, _Wait] = {}
        self._flying: list[_Wait] = []
        self._hearing = False
        self._poll_s = 0.0
        self._not_before_s = 0.0  # after a failure
        self._gathers_until_s = 0.0
        self._asked_s = 0.0
        self._most = MOST_ITEMS
        self.ends: dict[str, int] = {}
        self.heard: dict[str, int] = {}
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self._waits)

    def figures(self) -> dict[str, Any]:
        return {
            "callback_waiting": len(self._waits),
            "callback_waits": self.ends,
            "callback_wait_seconds": self.seconds,
            "callback_news": self.heard,
        }

    # --- what is said --------------------------------------------------------------------------------------

    def take(self, peer: bytes, message: Said, now_s: float) -> bool:
        """Take what a worker or the dispatcher says; False when it cannot be read."""
        match message:
            case AwaitCallback():
                return self._begin(peer, message, now_s)
            case ForgetCallback(request):
                self._give_up((peer, request))
            case CallbackNews(callback_id, word):
                if word not in WORDS:
                    return False
                self.heard[word] = self.heard.get(word, 0) + 1
                for key in self._of_callback.get(callback_id, ()):
                    self._stir(self._waits[key])
        return True

    def hear(self, hearing: bool, now_s: float) -> None:
        """The dispatcher says whether its news can be relied upon; what it may have missed before is asked for at once."""
        if hearing != self._hearing:
            self._hearing = hearing
            self._poll_s = now_s if self._waits else 0.0

    def _begin(self, peer: bytes, message: AwaitCallback, now_s: float) -> bool:
        known = self._waits.get((peer, message.request))
        if known is not None:
            known.said_s = now_s
            return True
        item = _read(message)
        if item is None:
            return False
        if len(self._waits) < MOST_HELD:
            if not self._waits:
                self._poll_s = now_s + self._period_s
            wait = _Wait(peer, message.request, item, message.callback_id, now_s, now_s)
            self._waits[wait.key] = wait
            self._of_callback.setdefault(message.callback_id, set()).add(wait.key)
            self._due[wait.key] = None
        return True

    def _stir(self, wait: _Wait) -> None:
        wait.stirred = True
        if wait not in self._flying:
            self._due[wait.key] = None

    def _give_up(self, key: Key) -> None:
        wait = self._drop(key)
        if wait is not None and len(self._gone) < MOST_HELD:
            gone = _Wait(
                *key, {**wait.item, "gone": True}, wait.callback_id, wait.began_s, wait.said_s, gone=True
            )
            self._gone[key] = gone

    def _drop(self, key: Key) -> _Wait | None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            self._due.pop(key, None)
            keys = self._of_callback[wait.callback_id]
            keys.discard(key)
            if not keys:
                del self._of_callback[wait.callback_id]
        return wait

    # --- what is asked -------------------------------------------------------------------------------------

    @property
    def _period_s(self) -> float:
        return POLL_S if self._hearing else POLL_DEAF_S

    def due_s(self) -> float | None:
        """Return when `flush` has something to do; None: not before an answer or a message."""
        if self._flying or not (self._waits or self._gone):
            return None
        return self.gathers_until_s if self._due or self._gone else max(self._poll_s, self._not_before_s)

    @property
    def gathers_until_s(self) -> float:
        """Until then nothing is asked: what comes need not be read."""
        full = len(self._due) + len(self._gone) >= self._most
        return self._not_before_s if full else max(self._not_before_s, self._gathers_until_s)

    def flush(self, now_s: float) -> list[WaitForCallbacks]:
        """Start the call that is due."""
        if self._flying or now_s < self._not_before_s or not (self._waits or self._gone):
            return []
        if self._waits and now_s >= self._poll_s:
            self._poll_s = now_s + self._period_s
            for wait in [*self._waits.values()]:
                if now_s - wait.said_s > FORGOTTEN_S:
                    self._give_up(wait.key)
                else:
                    self._stir(wait)
        if now_s < self.gathers_until_s:
            return []
        self._take_those_gone()
        for key in list(self._due)[: self._most - len(self._flying)]:
            del self._due[key]
            wait = self._waits[key]
            wait.stirred = False
            self._flying.append(wait)
        if not self._flying:
            return []
        self._asked_s, self._gathers_until_s = now_s, now_s + GATHER_S
        return [WaitForCallbacks([wait.item for wait in self._flying])]

    def _take_those_gone(self) -> None:
        """Put them first: an attempt that waits again has its turn after its earlier wait."""
        for key in list(self._gone)[: self._most]:
            gone = self._gone.pop(key)
            if gone.callback_id not in self._of_callback:  # or it is waited for again
                self._flying.append(gone)

    # --- what is answered ----------------------------------------------------------------------------------

    def answered(self, rows: Sequence[WaitRow], now_s: float) -> Iterator[Send]:
        """Yield what those who wait are told; what another session holds is asked about again in a moment."""
        answers = {row.item: row for row in rows}
        flown, self._flying = self._flying, []
        self._gathers_until_s = gathers_until_s(self._asked_s, now_s)
        self._most = min(self._most * 2, MOST_ITEMS)
        for number, wait in enumerate(flown):
            row = answers.get(number)
            if wait.gone and (row is None or row.status == "busy"):
                self._gone[wait.key] = wait
                self._not_before_s = now_s + REQUEUE_S
            if wait.gone or wait.key not in self._waits:
                continue
            match "busy" if row is None else row.status:
                case "waiting":
                    if wait.stirred:
                        self._stir(wait)
                case "busy":
                    self._stir(wait)
                    self._not_before_s = now_s + REQUEUE_S
                case "invalid":
                    yield self._tell(wait, "failed", now_s, why="it cannot read this request")
                case status:
                    assert row is not None
                    payload = () if row.payload is None else (row.payload.encode(),)
                    yield self._tell(wait, status, now_s, row.number or 0, row.why or "", payload)

    def failed(self, trouble: Trouble, error: str, now_s: float) -> Iterator[Send]:
        """The call failed: it comes again, in halves if the database refuses it; yield what the one is told that stood alone."""
        flown, self._flying = self._flying, []
        if trouble is not Trouble.REFUSED:
            self._not_before_s = now_s + AGAIN_S
        elif len(flown) == 1:
            if not flown[0].gone and flown[0].key in self._waits:
                yield self._tell(flown[0], "failed", now_s, why=error)
            return
        else:
            self._most = max(1, len(flown) // 2)
        for wait in flown:
            if wait.gone:
                self._gone[wait.key] = wait
            elif wait.key in self._waits:
                self._stir(wait)

    def _tell(
        self,
        wait: _Wait,
        status: str,
        now_s: float,
        number: int = 0,
        why: str = "",
        payload: tuple[bytes, ...] = (),
    ) -> Send:
        self._drop(wait.key)
        end = {"stale": why or "lost", "failed": "error"}.get(status, status)
        self.ends[end] = self.ends.get(end, 0) + 1
        self.seconds += now_s - wait.began_s
        return Send(wait.peer, CallbackAnswered(wait.request, status, number, why), payload)


def _read(message: AwaitCallback) -> dict[str, Any] | None:
    item = named_attempt(message)
    return (
        None
        if item is None or not is_bigint(message.request)
        else {**item, "callback_id": message.callback_id}
    )
