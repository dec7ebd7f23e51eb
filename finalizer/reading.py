"""From messages to units; everything that is not exactly of its form is left out and counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson

from awa_pool.messages import AttemptsEnded, AwaitCallback, EndAttempts, LeaseAttempt, RegisterCallback
from awa_pool.states import Outcome

from .flush import Item, Part, Result
from .staged import StagedEnd

_OUTCOMES = frozenset(outcome.value for outcome in Outcome)
_BIGINT = 1 << 63
_NAMES_OF_ATTEMPT = ("slot", "receipt_id", "nonce", "index", "job_id", "run_lease")
LONGEST_DELAY_S = 366 * 86400.0 * 100


Units = tuple[list[Part], list[Item], list[StagedEnd], Result, int]


def read_results(peer: bytes, message: AttemptsEnded, payload: Sequence[bytes] = ()) -> Units:
    """The units of a worker's message, and how many entries could not be read.

    An attempt that staged follow-ups which did not come along counts as one of those: it must not end without them.
    """
    bad = 0
    kinds: list[tuple[str, int]] = []
    mask = 0
    named = 0 <= message.slot < 1 << 15 and is_bigint(message.receipt_id) and is_bigint(message.nonce)
    for entry in message.completed if named else ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and is_mask(entry[1]):
            kinds.append((entry[0], entry[1] & ~mask))
            mask |= entry[1]
        else:
            bad += 1
    items: list[Item] = []
    ends: list[StagedEnd] = []
    indexes = [index for index in message.staged if type(index) is int]
    staged = dict(zip(indexes, payload, strict=False))
    missing = set(indexes[len(payload) :])
    for entry in message.others if named else ():
        kind = (
            entry[3]
            if isinstance(entry, list) and len(entry) in (7, 8, 9) and isinstance(entry[3], str)
            else None
        )
        values = (
            None
            if kind is None
            else read_item([message.slot, message.receipt_id, message.nonce, *entry[:3], *entry[4:7]])
        )
        if values is not None and len(entry) > 7 and isinstance(entry[7], dict):
            values["progress"] = entry[7]
        if values is not None and values["index"] in message.owned:
            values["owned"] = True
        parks = values is not None and values["outcome"] == Outcome.PARK
        if values is not None and parks and len(entry) == 9 and isinstance(entry[8], str):
            values["callback_id"] = entry[8]
        if values is None or kind is None or values["index"] in missing or parks != ("callback_id" in values):
            bad += 1
        elif parks or values["index"] in staged:
            ends.append(StagedEnd(values, kind, staged.get(values["index"], b"[]"), None))
        else:
            # Of a handler's own completion the worker hears at once: that lane has nothing else to gather.
            items.append(Item(values, kind, None, urgent="owned" in values))
    size_bytes = 100 + (len(orjson.dumps(message.others)) if message.others else 0)
    size_bytes += sum(len(end.follow_ups) for end in ends)
    jobs = mask.bit_count() + len(items) + len(ends)
    result = Result(peer, message.seq, jobs, size_bytes, receipt_id=message.receipt_id)
    parts = [Part(message.slot, message.receipt_id, message.nonce, mask, kinds, result)] if mask else []
    for item in items:
        item.result = result
    for end in ends:
        end.result = result
    result.left = len(parts) + len(items) + len(ends)
    return parts, items, ends, result, bad + (not named)


def read_endings(message: EndAttempts) -> tuple[list[Part], list[Item], int]:
    """The units of the dispatcher's message, urgent: others may be waiting for these jobs."""
    parts: dict[tuple[int, int, int], dict[str, int]] = {}
    items: list[Item] = []
    bad = 0
    for entry in message.items:
        kind = (
            entry[9]
            if isinstance(entry, list) and len(entry) in (10, 12) and isinstance(entry[9], str)
            else None
        )
        values = None if kind is None else read_item(entry[:9])
        if values is None or kind is None:
            bad += 1
        elif values["outcome"] == Outcome.COMPLETED:
            kinds = parts.setdefault((values["slot"], values["receipt_id"], values["nonce"]), {})
            kinds[kind] = kinds.get(kind, 0) | 1 << values["index"]
        else:
            known = entry[10:] if all(type(number) is int for number in entry[10:]) else ()
            items.append(Item(values, kind, None, True, *known))
    return [_part(key, kinds) for key, kinds in parts.items()], items, bad


def _part(key: tuple[int, int, int], kinds: dict[str, int]) -> Part:
    mask = 0
    for some in kinds.values():
        mask |= some
    return Part(*key, mask, list(kinds.items()), None, urgent=True)


def read_item(entry: list[Any]) -> dict[str, Any] | None:
    """`[slot, receipt_id, nonce, index, job_id, run_lease, outcome, delay_s, error]` as `finish` takes it, or None."""
    if len(entry) != 9:
        return None
    slot, receipt_id, nonce, index, job_id, run_lease, outcome, delay_s, error = entry
    if not all(is_bigint(value) for value in (slot, receipt_id, nonce, index, job_id, run_lease)):
        return None
    if not (0 <= slot < 1 << 15 and 0 <= index < 63) or outcome not in _OUTCOMES:
        return None
    values = {
        "slot": slot,
        "receipt_id": receipt_id,
        "nonce": nonce,
        "index": index,
        "job_id": job_id,
        "run_lease": run_lease,
        "outcome": outcome,
    }
    if (
        isinstance(delay_s, int | float)
        and not isinstance(delay_s, bool)
        and math.isfinite(delay_s)
        and delay_s >= 0
    ):
        values["delay_s"] = min(float(delay_s), LONGEST_DELAY_S)
    if isinstance(error, dict):
        values["error"] = error
        if outcome == Outcome.CANCEL and isinstance(error.get("error"), str):
            values["reason"] = error["error"]
    return values


def named_attempt(message: LeaseAttempt | RegisterCallback | AwaitCallback) -> dict[str, Any] | None:
    """Return the attempt that a message names, as an item for the database; None if it names none."""
    item = {name: getattr(message, name) for name in _NAMES_OF_ATTEMPT}
    fits = all(map(is_bigint, item.values())) and 0 <= message.slot < 1 << 15 and 0 <= message.index < 63
    return item if fits else None


def is_bigint(value: Any) -> bool:
    return type(value) is int and -_BIGINT <= value < _BIGINT


def is_mask(value: Any) -> bool:
    return type(value) is int and 0 < value < _BIGINT
