"""What running attempts say of their progress, on its way into the database: the newest of each, many in one call.

Nobody waits for it. What was not to be written in time is replaced by what comes next, and an attempt's last word goes
with its end.
"""

from __future__ import annotations

from typing import Any

from awa_pool.events import Trouble
from awa_pool.messages import AttemptProgress

from .events import KeepProgress
from .reading import is_bigint

LINGER_S = 0.05
AGAIN_S = 1.0
MOST_ITEMS = 500
MOST_HELD = 4096
Key = tuple[int, int, int]


class ProgressRoad:
    """One call under way at most."""

    def __init__(self) -> None:
        self._waiting: dict[Key, dict[str, Any]] = {}
        self._flying: dict[Key, dict[str, Any]] = {}
        self._due_s = 0.0
        self.written = 0

    def put(self, message: AttemptProgress, now_s: float) -> int:
        """Take what attempts say; returns how many entries could not be read."""
        bad = 0
        if not self._waiting:
            self._due_s = max(self._due_s, now_s + LINGER_S)
        for entry in message.items:
            item = _read(entry)
            if item is None:
                bad += 1
                continue
            key = _key(item)
            self._waiting.pop(key, None)  # to the end of the queue with it: an older word may not come back
            if len(self._waiting) < MOST_HELD:
                self._waiting[key] = item
        return bad

    def due_s(self) -> float | None:
        """Return when `flush` has something to do; None: not before an answer or a message."""
        return self._due_s if self._waiting and not self._flying else None

    def flush(self, now_s: float) -> list[KeepProgress]:
        """Start the call that is due."""
        due_s = self.due_s()
        if due_s is None or now_s < due_s:
            return []
        keys = list(self._waiting)[:MOST_ITEMS]
        self._flying = {key: self._waiting.pop(key) for key in keys}
        return [KeepProgress(list(self._flying.values()))]

    def kept(self, written: int) -> None:
        """The call was answered."""
        self.written += written
        self._flying = {}

    def failed(self, trouble: Trouble, now_s: float) -> None:
        """The call failed: it is tried again later, unless the database does not like what it says."""
        flown, self._flying = self._flying, {}
        if trouble is not Trouble.REFUSED:
            self._waiting = {**flown, **self._waiting}
        self._due_s = now_s + AGAIN_S


def _key(item: dict[str, Any]) -> Key:
    return item["receipt_id"], item["nonce"], item["index"]


def _read(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, list) or len(entry) != 7 or not isinstance(entry[6], dict):
        return None
    slot, receipt_id, nonce, index, job_id, run_lease, progress = entry
    if not all(is_bigint(value) for value in entry[:6]) or not (0 <= slot < 1 << 15 and 0 <= index < 63):
        return None
    return {
        "slot": slot, "receipt_id": receipt_id, "nonce": nonce, "index": index, "job_id": job_id,
        "run_lease": run_lease, "progress": progress,
    }  # fmt: skip
