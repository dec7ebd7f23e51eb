"""The statements of maintenance; `calls` says what a `Call` is."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from .calls import Call, each, first, nothing, one


class Promoted(NamedTuple):
    """How many due jobs became available, and the seconds until the next is due (None: none)."""

    promoted: int
    next_due_s: float | None


class Rescued(NamedTuple):
    """A runtime whose attempts were ended for want of a heartbeat: how many, how many of them failed or were cancelled by that,
    and up to five of their jobs, those that failed first."""

    runtime_id: UUID
    attempts: int
    failed: int
    cancelled: int
    jobs: list[int]


class RebasePlan(NamedTuple):
    """What a rebase does (or did): `reason` None says that none is needed; `alive` names pools that beat just now."""

    reason: str | None
    unclaimed: int
    open_attempts: int
    top_job: int
    top_receipt: int
    alive: list[str]


def promote(limit: int) -> Call[Promoted]:
    """Make due jobs available."""
    return Call("promote", {"limit": limit}, first(Promoted))


def rescue_stale(stale_s: float, limit: int, connected_s: float | None = None) -> Call[list[Rescued]]:
    """End what runtimes without a heartbeat still hold; `connected_s`: so long the caller has had answers without a break."""
    return Call(
        "rescue_stale", {"stale_s": stale_s, "limit": limit, "connected_s": connected_s}, each(Rescued)
    )


def lead(name: str, holder: str | UUID, ttl_s: float) -> Call[bool]:
    """Take or renew the leadership -> whether the holder leads now."""
    return Call("lead", {"name": name, "holder": holder, "ttl_s": ttl_s}, one)


def step_down(name: str, holder: str | UUID) -> Call[None]:
    """Give the leadership up, if held."""
    return Call("step_down", {"name": name, "holder": holder}, nothing)


def rotate(min_age_s: float, max_bytes: int) -> Call[str | None]:
    """Seal the current slot and open the next free one -> what was done."""
    return Call("rotate", {"min_age_s": min_age_s, "max_bytes": max_bytes}, one)


def prune(retention_s: float, history_bytes: int) -> Call[str | None]:
    """Empty exhausted slots whose history is old or large enough -> what was done."""
    return Call("prune", {"retention_s": retention_s, "history_bytes": history_bytes}, one)


def move_open_attempts(limit: int) -> Call[str | None]:
    """Move what holds up the oldest slots out of the ring -> what was done."""
    return Call("move_open_attempts", {"limit": limit}, one)


def upkeep(name: str) -> Call[str | None]:
    """One of the steps without parameters: exhaust_slots, sweep, trim_cursors -> what was done."""
    return Call(name, {}, one)


def rebase_plan() -> Call[RebasePlan]:
    """What a rebase would do; reads the whole ring."""
    return Call("rebase_plan", {}, first(RebasePlan))


def rebase(force: bool) -> Call[RebasePlan]:
    """Make a restored or copied database this cluster's own -> what was done."""
    return Call("rebase", {"force": force}, first(RebasePlan))
