"""Judges a bout by what its handler and both sides have noted, and by what the database says of its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .app import AGAIN, ANSWERED, RETURNED
from .ledger import HANDLER

DONE, GONE, REFUSED = "done", "CallbackNotFound", "TransitionRefused"
HANDLER_WON = "handler"


@dataclass(frozen=True, slots=True)
class End:
    """What the database says of a bout's job; see races_ends.sql."""

    places: int
    state: str
    reason: str | None
    answer: str | None
    marks: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What was noted: of the handler in order, and of each side by its verb (`resume`) or verb and turn (`resume 2`)."""

    handler: list[str]
    sides: dict[str, str]


def seen(lines: Sequence[tuple[str, str]]) -> Seen:
    """Sort the lines of a bout."""
    return Seen(
        [what for who, what in lines if who == HANDLER], {w: what for w, what in lines if w != HANDLER}
    )


def _is(
    found: Seen, end: End, handler: Sequence[str], state: str, marks: int, **more: str | None
) -> str | None:
    """Say what of it is not as it has to be; None if all is."""
    wanted = End(1, state, more.get("reason"), more.get("answer"), marks)
    if end != wanted:
        return f"ended as {end}, not {wanted}"
    return (
        None
        if sorted(found.handler) == sorted(handler)
        else f"the handler saw {found.handler}, not {list(handler)}"
    )


def _after(verb: str, side: str, found: Seen, end: End) -> str | None:
    """The job after that side, which answers by this verb, has won alone."""
    match verb:
        case "resume":
            return _is(found, end, [f"{ANSWERED} {side}"], "completed", 1)
        case "complete":
            return _is(found, end, ["LeaseLost"], "completed", 0, answer=side)
        case "fail":
            return _is(found, end, ["LeaseLost"], "failed", 0, reason="callback_failed")
        case "retry":
            return _is(found, end, ["LeaseLost", AGAIN], "completed", 0)
    raise ValueError(verb)


def timeout(found: Seen, end: End) -> tuple[str, str | None]:
    """Resume against timeout: the winner, and the flaw if there is one."""
    match found.sides:
        case {"resume": "done"}:
            return "resume", _after("resume", "resume", found, end)
        case {"resume": "CallbackNotFound"}:
            return "timeout", _is(found, end, ["CallbackTimeout"], "failed", 0, reason="callback_timeout")
    return "", f"the sides were told {found.sides}"


def entry(found: Seen, end: End) -> tuple[str, str | None]:
    """Resume against wait entry: the answer is never lost."""
    if found.sides != {"resume": DONE}:
        return "", f"the sides were told {found.sides}"
    return "resume", _after("resume", "resume", found, end)


def leaving(found: Seen, end: End) -> tuple[str, str | None]:
    """Complete against the handler's return: its follow-ups are there if it won, and only then."""
    match found.sides:
        case {"complete": "done"}:
            return "complete", _is(found, end, [RETURNED], "completed", 0, answer="complete")
        case {"complete": "CallbackNotFound"}:
            return HANDLER_WON, _is(found, end, [RETURNED], "completed", 1)
    return "", f"the sides were told {found.sides}"


def two(found: Seen, end: End) -> tuple[str, str | None]:
    """Two answers at once: one is taken, the other refused."""
    winners = [side for side, what in found.sides.items() if what == DONE]
    losers = [side for side, what in found.sides.items() if what == GONE]
    if len(winners) != 1 or len(losers) != 1:
        return "", f"the sides were told {found.sides}"
    (side,) = winners
    return side, _after(side.split()[0], side, found, end)


def cancel(found: Seen, end: End) -> tuple[str, str | None]:
    """Cancel against resume: a job that was answered first may be cancelled all the same, while its handler runs."""
    told = (found.sides.get("resume"), found.sides.get("cancel"))
    if told == (DONE, REFUSED):
        return "resume", _after("resume", "resume", found, end)
    if told == (GONE, DONE):
        return "cancel", _is(found, end, ["JobCancelled"], "cancelled", 0, reason=end.reason)
    if told == (DONE, DONE):
        saw = (
            found.handler if found.handler in (["JobCancelled"], [f"{ANSWERED} resume"]) else ["JobCancelled"]
        )
        return "both", _is(found, end, saw, "cancelled", 0, reason=end.reason)
    return "", f"the sides were told {found.sides}"


JUDGES: Mapping[str, Callable[[Seen, End], tuple[str, str | None]]] = {
    "timeout": timeout, "entry": entry, "return": leaving, "two": two, "cancel": cancel,
}  # fmt: skip
