"""Rescue against resume, where a pool would add nothing: hosts of one attempt each that fall silent while it waits."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson

from awa_pool.store.callbacks import register_callbacks, wait_for_callbacks
from awa_pool.store.connection import connect

from .app import ANSWERED, QUEUE, Bout
from .judge import DONE, GONE, End, Seen
from .ledger import HANDLER, Pen
from .referee import Handicap, Sides, answer

STALE_S = 0.06
HANGS_S = 30.0
LOST = "lost"


class Hosts:
    """Plays one host after the other, and the leader that rescues them."""

    def __init__(self, dsn: str, handicap: Handicap, pen: Pen) -> None:
        self._sides = Sides(dsn)
        self._store, self._leader = connect(dsn, role="race"), connect(dsn, role="race")
        self._handicap = handicap
        self._pen = pen

    def close(self) -> None:
        self._sides.close()
        self._store.close()
        self._leader.close()

    def hold(self, number: int) -> None:
        """One bout: a host claims a job, its handler waits, the host falls silent; then an answer and the leader meet."""
        store = self._store
        self._sides.clients[0].insert(Bout(number), kind="bout", queue=QUEUE)
        runtime = str(uuid.uuid4())
        store.register_runtime(runtime, "host", 1, "{}")
        silent_s = time.monotonic() + STALE_S
        while not (receipts := store.claim([QUEUE], [1], 1, 1 << 20, 1, runtime, 1, False).receipts):
            time.sleep(0.001)
        receipt, body = receipts[0], orjson.loads(receipts[0].bodies[0])
        number = body[2]["number"]  # it may be a job that another host was to have
        attempt: dict[str, Any] = {
            "slot": receipt.slot, "receipt_id": receipt.receipt_id, "nonce": receipt.nonce, "index": 0,
            "job_id": receipt.job_ids[0], "run_lease": body[4],
        }  # fmt: skip
        callback_id = str(uuid.uuid4())
        store.run(
            register_callbacks(orjson.dumps([{**attempt, "timeout_s": 3600, "wanted_id": callback_id}]))
        )
        asked = orjson.dumps([{**attempt, "callback_id": callback_id}])
        store.run(wait_for_callbacks(asked))
        deeds = (
            answer(self._sides.clients[0], "resume", callback_id, "resume"),
            lambda: self._leader.rescue_stale(STALE_S, 100),
        )
        told = self._sides.start(silent_s + 0.001, self._handicap.next_s(), deeds)
        # To the database the host is silent, and yet its handler asks, and goes on as soon as it may.
        until_s = time.monotonic() + HANGS_S
        while (row := store.run(wait_for_callbacks(asked))[0]).status in ("busy", "waiting"):
            if time.monotonic() > until_s:
                break  # for the judge
            time.sleep(0.001)
        saw = row.status
        if saw == ANSWERED:
            while (
                end := store.finish(orjson.dumps([{**attempt, "outcome": "completed"}]))[0]
            ).status == "busy":
                time.sleep(0.001)
            saw = f"{ANSWERED} {row.payload}" if end.status == DONE else LOST
        self._pen.note(number, "resume", told[0].result())
        told[1].result()
        self._handicap.won(saw.startswith(ANSWERED))
        self._pen.note(number, HANDLER, saw)


def judge(found: Seen, end: End) -> tuple[str, str | None]:
    """A handler that could end its job was answered, and was not rescued; one that was rescued could not."""
    told, saw = found.sides.get("resume"), found.handler
    if saw == [f'{ANSWERED} "resume"'] and told == DONE:
        return "resume", None if (end.places, end.state) == (1, "completed") else f"ended as {end}"
    if saw in (["stale"], [LOST]) and told in (DONE, GONE):
        winner = "rescue" if told == GONE else "both"
        return winner, None if (end.places, end.state) == (1, "retryable") else f"ended as {end}"
    return "", f"the answer was told {told}, and the handler saw {saw}"
