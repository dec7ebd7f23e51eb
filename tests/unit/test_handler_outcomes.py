"""Whatever a handler returns or raises becomes one recorded outcome."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from datetime import timedelta
from unittest.mock import Mock

import pytest

from awa_pool.errors import DecodeError, TerminalError, TransitionRefused, ValidationError
from awa_pool.job import Job
from awa_pool.outcomes import (
    BACKOFF_CAP_S,
    ERROR_TEXT_BYTES,
    MAX_DELAY_S,
    MIN_DELAY_S,
    Backoff,
    Cancel,
    Ending,
    RetryAfter,
    Snooze,
    WaitForCallback,
    clean_text,
    default_backoff_s,
    describe_error,
    error_line,
    resolve_outcome,
)
from awa_pool.states import Outcome


def resolve(
    result: object = None, raised: BaseException | None = None, attempt: int = 1, backoff: Backoff = None
) -> Ending:
    return resolve_outcome(result, raised, attempt=attempt, backoff=backoff, rng=random.Random(7))


def raise_and_catch(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as problem:  # noqa: BLE001
        return problem


def test_none_completes_and_so_does_anything_unrecognised_with_its_type_named():
    assert resolve(None) == Ending(Outcome.COMPLETED)
    for value, name in [
        (5, "int"),
        (lambda: 1, "function"),
        ((i for i in ()), "generator"),
        (int, "type"),
    ]:
        assert resolve(value) == Ending(Outcome.COMPLETED, dropped=name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (RetryAfter, "the handler returned the class RetryAfter itself: call it, `return RetryAfter(…)`"),
        (Snooze, "call it, `return Snooze(…)`"),
        (Cancel, "call it, `return Cancel(…)`"),
        (WaitForCallback, "call it, `return WaitForCallback(…)`"),
        (TerminalError, "the handler returned the class TerminalError: raise it, `raise TerminalError(…)`"),
        (KeyboardInterrupt, "raise it"),
        (ValueError("no card"), "`raise` it (after ValueError: no card)"),
        (TerminalError("no card"), "`raise` it (after TerminalError: no card)"),
    ],
)
def test_a_returned_class_or_exception_is_a_failed_attempt_that_says_what_to_write(
    value: object, text: str
) -> None:
    ending = resolve(value)
    assert ending.outcome is Outcome.RETRY and ending.dropped is None
    assert ending.error is not None and ending.error["type"] == "TypeError" and text in ending.error["error"]


class Contrary(Exception):
    """Raises at everything that is asked of it."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no class")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    __cause__ = __traceback__ = __context__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class Silent(Cancel, RetryAfter):
    """An answer that never learnt what to say."""

    def __init__(self) -> None:
        pass


def test_answers_and_errors_of_the_strangest_making_are_outcomes_all_the_same():
    assert resolve(Contrary()).outcome is resolve(Contrary).outcome is Outcome.RETRY
    contrary = resolve(raised=Contrary())
    assert contrary.outcome is Outcome.RETRY and contrary.error is not None
    assert contrary.error["type"].endswith("Contrary")
    silent = resolve(Silent())
    assert silent.outcome is Outcome.RETRY and silent.error is not None
    for answer, text in [
        (Cancel(object()), "<object object"),
        (Cancel(5), "5"),
        (RetryAfter(1, {"a": 1}), "{'a': 1}"),
    ]:
        ending = resolve(answer)
        assert ending.error is not None and ending.error["error"].startswith(text)
    altered = Snooze(1)
    altered.seconds = float("nan")
    assert resolve(altered).outcome is Outcome.RETRY
    chained = raise_and_catch(lambda: ValueError("outer"))
    chained.__cause__ = Contrary()
    assert resolve(raised=chained).outcome is Outcome.RETRY


def test_an_answer_means_the_same_returned_and_raised():
    assert resolve(Snooze(3)) == resolve(raised=Snooze(3)) == Ending(Outcome.SNOOZE, 3.0)
    assert resolve(RetryAfter(timedelta(minutes=1))) == resolve(raised=RetryAfter(60))
    assert resolve(RetryAfter(60)).outcome is Outcome.RETRY
    cancelled = resolve(Cancel("no longer wanted"))
    assert cancelled.outcome is Outcome.CANCEL
    assert cancelled.error == {"error": "no longer wanted", "type": "Cancel"}


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "5", None, MAX_DELAY_S + 1, 10**400])
def test_a_delay_that_is_none_is_refused_where_it_is_written(bad):
    """Distilled 30."""
    for answer in (RetryAfter, Snooze):
        with pytest.raises(ValidationError, match=answer.__name__):
            answer(bad)


def test_a_delay_of_nothing_is_lifted_to_the_floor():
    assert resolve(Snooze(0)).delay_s == resolve(RetryAfter(0)).delay_s == MIN_DELAY_S


def test_an_exception_is_retried_with_type_message_and_traceback():
    ending = resolve(raised=raise_and_catch(lambda: KeyError("wrong")))
    assert ending.outcome is Outcome.RETRY
    assert ending.error is not None
    assert ending.error["type"] == "KeyError"
    assert ending.error["error"] == "'wrong'"
    assert "raise_and_catch" in ending.error["traceback"]
    assert 2.0 <= (ending.delay_s or 0) <= 2.5


def test_a_terminal_error_fails_at_once():
    assert resolve(raised=TerminalError("never")).outcome is Outcome.FAIL
    assert resolve(raised=DecodeError("x", path="args.n")).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (SystemExit(0), "the handler called exit with 0"),
        (SystemExit("bye"), "the handler called exit with 'bye'"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_an_exit_is_a_failed_attempt_never_a_success(raised, text):
    ending = resolve(raised=raised)
    assert ending.outcome is Outcome.RETRY
    assert ending.error is not None
    assert ending.error["error"] == text


def test_an_exception_that_cannot_be_described_is_survived():
    class Rude(Exception):
        def __str__(self) -> str:
            raise SystemExit

    class Odd(Exception):
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]  # noqa: PLE0307

    assert "while it was described" in (resolve(raised=Rude()).error or {})["error"]
    assert resolve(raised=Odd()).outcome is Outcome.RETRY


def test_error_text_is_bounded_and_clean():
    ending = resolve(raised=raise_and_catch(lambda: ValueError("é\0\ud800" * 100_000)))
    assert ending.error is not None
    assert sum(len(part.encode()) for part in ending.error.values()) <= ERROR_TEXT_BYTES
    assert "\0" not in "".join(ending.error.values())


def test_a_cause_is_named():
    def chained() -> BaseException:
        error = ValueError("second")
        error.__cause__ = OSError("first")
        return error

    assert (resolve(raised=chained()).error or {})["error"] == "second (after OSError: first)"


@pytest.mark.parametrize(
    ("text", "cause", "told"),
    [
        ("no such file", OSError("no such file"), "no such file"),
        ("cannot read: OSError: no such file", OSError("no such file"), "cannot read: OSError: no such file"),
        ("cannot read: no such file", OSError("no such file"), "cannot read: no such file (after OSError)"),
        ("cannot read", OSError(), "cannot read (after OSError)"),
    ],
)
def test_a_cause_that_says_the_same_again_is_left_out(text: str, cause: BaseException, told: str) -> None:
    error = ValueError(text)
    error.__cause__ = cause
    assert describe_error(error)["error"] == told


def test_what_stands_behind_a_cause_that_says_the_same_is_named() -> None:
    error, same = ValueError("refused"), OSError("refused")
    error.__cause__, same.__cause__ = same, KeyError("host")
    assert describe_error(error)["error"] == "refused (after KeyError: 'host')"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ({"type": "ValueError", "error": "no card\n"}, "ValueError: no card"),
        ({"type": "KeyError", "error": "KeyError"}, "KeyError"),
        ({"type": "KeyError", "error": ""}, "KeyError"),
        ({"type": "KeyError", "error": "KeyError: 5"}, "KeyError: 5"),
        ({"error": "by hand"}, "by hand"),
        ({"seen": 1}, "{'seen': 1}"),
    ],
)
def test_the_line_of_an_error_names_its_type_once(error: dict[str, object], line: str) -> None:
    assert error_line(error) == line


def test_clean_text_keeps_the_end_where_asked():
    assert clean_text("abc" * 100, 20, keep_end=True).endswith("abc")
    assert clean_text("abc" * 100, 20).startswith("abc")
    assert len(clean_text("é" * 100, 21).encode()) <= 21


def test_the_default_back_off_doubles_to_a_day_and_no_power_is_too_large():
    """B122."""
    rng = random.Random(1)
    assert 4 <= default_backoff_s(2, rng) <= 5
    assert default_backoff_s(16, rng) <= 2**16 * 1.25
    assert default_backoff_s(10**9, rng) == BACKOFF_CAP_S


def test_a_task_back_off_is_used_and_a_broken_one_costs_no_retry():
    """B122."""
    error = ValueError("x")
    assert resolve(raised=error, backoff=7.0).delay_s == 7.0
    assert resolve(raised=error, attempt=3, backoff=lambda attempt: attempt * 10.0).delay_s == 30.0
    overflow = resolve(raised=error, attempt=1000, backoff=lambda attempt: 5.0**attempt)
    assert overflow.outcome is Outcome.RETRY
    assert overflow.delay_s == BACKOFF_CAP_S
    assert "OverflowError" in (overflow.error or {})["backoff"]
    for leaves in (SystemExit, KeyboardInterrupt, GeneratorExit, type("Odd", (BaseException,), {})):
        left = resolve(raised=error, backoff=Mock(side_effect=leaves))
        assert left.outcome is Outcome.RETRY and left.delay_s >= 2, (
            "the worker goes on, the job is tried again"
        )
        assert leaves.__name__ in (left.error or {})["backoff"]
    assert resolve(raised=error, backoff=lambda attempt: "soon").delay_s is not None  # type: ignore[arg-type, return-value]


def test_a_job_shows_what_its_body_holds():
    job = Job(
        {"n": 1}, 9, "k", 2, 5, extra={"tags": ["a"], "metadata": {"m": 1}, "snoozes": 3, "ordering_key": "o"}
    )
    assert (job.tags, job.metadata, job.snoozes, job.ordering_key) == (("a",), {"m": 1}, 3, "o")
    assert not job.is_cancelled()
    assert Job(None, 1, "k", is_cancelled=lambda: True).is_cancelled()
    assert "n" not in repr(job).replace("kind", "")
    assert not hasattr(job, "__dict__")


def test_errors_of_this_package_go_by_their_bare_names_and_others_by_their_modules() -> None:
    assert describe_error(TransitionRefused("no"))["type"] == "TransitionRefused"
    assert describe_error(ValueError("no"))["type"] == "ValueError"
    assert describe_error(subprocess.SubprocessError("no"))["type"] == "subprocess.SubprocessError"
