"""The models pass, and each way of breaking them is found: a checker that cannot fail proves nothing."""

from __future__ import annotations

import pytest
from models import in_handler_waits as waits
from models.checker import check
from models.key_order import Locks, all_committed
from models.key_order import State as LockState
from models.staged_follow_ups import LAWS, Model, Protocol, State


def test_staged_follow_ups_commit_with_the_completion_or_not_at_all() -> None:
    verdict = check(State(), Model(Protocol()).actions, LAWS)
    assert verdict.violation is None, str(verdict.violation)
    assert (
        verdict.states > 10_000
    )  # it went far: tries, rescues, second leases and released keys of both jobs


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        ("insert_before", "a follow-up exists only with the completion of the attempt that staged it"),
        ("insert_after", "a completion has its follow-up, or the key had a holder"),
        ("no_guard", "only the current lease completes"),
        ("drained", "a completion has its follow-up, or the key had a holder"),
        ("batched", "a completion has its follow-up, or the key had a holder"),
        ("unlocked", "a completion has its follow-up, or the key had a holder"),
    ],
)
def test_a_broken_protocol_is_caught(broken: str, law: str) -> None:
    violation = check(State(), Model(Protocol(**{broken: True})).actions, LAWS).violation
    assert violation is not None
    assert violation.law == law, str(violation)


def test_locks_in_one_order_never_wait_in_a_circle() -> None:
    verdict = check(LockState(), Locks().actions, {}, may_end=all_committed)
    assert verdict.violation is None, str(verdict.violation)


@pytest.mark.parametrize("broken", ["sorted_keys", "keys_first"])
def test_locks_in_two_orders_are_caught_waiting_in_a_circle(broken: str) -> None:
    violation = check(LockState(), Locks(**{broken: False}).actions, {}, may_end=all_committed).violation
    assert violation is not None
    assert violation.law == "nothing can go on"


def test_a_handler_that_waits_gets_its_answer_once_or_is_told_how_its_attempt_ended() -> None:
    verdict = check(
        waits.State(),
        waits.Model(waits.Waits()).actions,
        waits.LAWS,
        goal=waits.told_or_undecided,
        is_fault=waits.is_fault,
    )
    assert verdict.violation is None, str(verdict.violation)
    assert (
        verdict.states > 100_000
    )  # two callbacks, two answers, two runs, and finalizers that die at any moment


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (
            "spends_early",
            "an accepted answer is kept until it is delivered, or its attempt has ended otherwise",
        ),
        ("expires_answered", "a callback is decided once"),
        ("wakes_early", "what is delivered has been accepted"),
        ("unlocked", "an accepted answer is kept until it is delivered, or its attempt has ended otherwise"),
        ("any_token", "an older callback is not answered"),
        ("unnumbered", "a token brings its own answer"),
        ("said_once", "the goal is out of reach"),
        ("unspent", "an answer is delivered once"),
        ("unguarded", "an attempt ends once, and neither runs nor waits after it"),
        (
            "forgets_answers",
            "an accepted answer is kept until it is delivered, or its attempt has ended otherwise",
        ),
    ],
)
def test_a_broken_wait_is_caught(broken: str, law: str) -> None:
    violation = check(
        waits.State(),
        waits.Model(waits.Waits(**{broken: True})).actions,
        waits.LAWS,
        goal=waits.told_or_undecided,
        is_fault=waits.is_fault,
    ).violation
    assert violation is not None
    assert violation.law == law, str(violation)
