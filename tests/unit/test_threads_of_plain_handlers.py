"""What is raised in the threads of plain handlers that may wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from awa_pool import (
    DeadlineExceeded,
)
from awa_pool.worker.threads import ThreadReins


def run(body: Callable[[ThreadReins], object], reins: ThreadReins) -> BaseException | None:
    """Call `body` on a thread of its own, as a handler is; returns what it raised."""
    raised: list[BaseException | None] = []

    def call() -> None:
        try:
            try:
                reins.begin()
                body(reins)
            finally:
                reins.end()
            raised.append(None)
        except BaseException as problem:  # noqa: BLE001
            raised.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20.0)
    return raised[0]


def compute(_: object = None) -> None:
    """Use the interpreter until somebody objects."""
    until_s = time.monotonic() + 20.0
    while time.monotonic() < until_s:
        pass


def test_a_deadline_that_passes_before_the_thread_begins_is_raised_as_it_begins() -> None:
    reins = ThreadReins()
    reins.exceed(1.0)
    assert type(run(compute, reins)) is DeadlineExceeded


def test_a_deadline_is_raised_once_in_a_thread_that_computes_and_never_after_its_end() -> None:
    reins = ThreadReins()

    def cleans_up(_: ThreadReins) -> None:
        threading.Timer(0.05, reins.exceed, [3.0]).start()
        try:
            compute()
        except DeadlineExceeded as problem:
            assert str(problem) == "the deadline of 3 s has passed"
        with reins:
            pass

    assert run(cleans_up, reins) is None
    reins.exceed(1.0)
    reins = ThreadReins()
    assert run(lambda _: None, reins) is None
    reins.exceed(1.0)
    assert reins.late


def test_our_own_code_on_a_thread_is_not_broken_and_tells_on_the_way_out() -> None:
    reins = ThreadReins()
    seen: list[str] = []

    def handler(_: ThreadReins) -> None:
        with reins, reins:
            reins.exceed(1.0)
            seen.append("whole")
        seen.append("too far")

    assert type(run(handler, reins)) is DeadlineExceeded and seen == ["whole"]

    reins = ThreadReins()
    ended: list[object] = []

    def answered_meanwhile(_: ThreadReins) -> None:
        with reins:
            reins.hold(lambda problem: ended.append(problem) or False)  # it has its answer already
            reins.exceed(1.0)

    assert type(run(answered_meanwhile, reins)) is DeadlineExceeded and len(ended) == 1
