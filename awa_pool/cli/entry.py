"""From a command line to an exit status: every refusal is one line on standard error.

Without a command the pool itself is meant, so `awa-pool shop.jobs:client --workers 8` and `awa-pool status` live
side by side: two command sets, chosen by the first word.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from awa_pool.errors import AwaError, ConfigError
from awa_pool.visible import visible

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_stopped_by: list[int] = []
STATUSES = (
    ("0", "done; a pool has drained or was stopped and stored everything"),
    (
        "1",
        "failed: the job or action was refused, the database or a process gave up, or results could not be stored",
    ),
    ("2", "refused at once: a flag, app, address, queue or schema is wrong; the line says which"),
    ("130, 143", "cut short by Ctrl-C or SIGTERM; a pool only by a second one"),
)


class Stopped(BaseException):
    """A stop signal came: everything is left in order on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (the process's own by default) and return its exit status."""
    if sys.platform == "win32":
        return refuse("awa-pool needs Linux or macOS: its processes talk over Unix sockets", REFUSED)
    words = list(sys.argv[1:] if arguments is None else arguments)
    _fill_descriptors()
    try:
        with _stoppable():
            # Within, and not at import: it takes a while, and as process 1 a signal without a handler is lost.
            from .commands import run_words

            return run_words(words)
    except Stopped as stopped:
        # A pool that had not yet begun has nothing to store or to give back: stopped in good order.
        return OK if _is_pool(words) else 128 + stopped.number
    except ConfigError as error:
        return refuse(str(error), REFUSED)
    except AwaError as error:
        return refuse(str(error), _status_of(error))
    except KeyboardInterrupt:
        return OK if _is_pool(words) else INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): nothing is wrong, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        usage = getattr(
            error, "format_message", None
        )  # the command line library's own refusals, whoever ships it
        if usage is None:
            raise
        return refuse(usage(), REFUSED)


def _fill_descriptors() -> None:
    """Open /dev/null for each standard descriptor that is closed: the sockets of a process must not take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 (for as long as the process lives)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Turn stop signals into an exception, so that an embedded server is left and not abandoned.

    A running pool has its own way with signals; a signal that is ignored (`nohup`) stays so.
    """
    _stopped_by.clear()
    taken: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        usual = (signal.SIG_DFL, signal.default_int_handler)
        taken = {number: now for number in _STOP_SIGNALS if (now := signal.getsignal(number)) in usual}
    for number in taken:
        signal.signal(number, _stop)
    try:
        yield
    except Exception as error:
        if _stopped_by:  # what ran when it came has made another error of it: the making of a class does
            raise Stopped(_stopped_by[0]) from error
        raise
    finally:
        for number, before in taken.items():
            signal.signal(number, before)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not break off the tidying up
    _stopped_by.append(number)
    raise Stopped(number)


def raise_if_stopped() -> None:
    """Raise `Stopped` for a signal whose exception was swallowed: some imports and finalizers let none through."""
    if _stopped_by:
        raise Stopped(_stopped_by[0])


def _is_pool(words: Sequence[str]) -> bool:
    """Tell the pool itself from a named command: an app has a colon, and may stand in the environment."""
    return not words or words[0].startswith("-") or ":" in words[0]


def _status_of(error: AwaError) -> int:
    from awa_pool.errors import SchemaMismatch, ValidationError

    return REFUSED if isinstance(error, SchemaMismatch | ValidationError) else FAILED


def refuse(message: str, status: int) -> int:
    """Say in one line on standard error what is refused; returns the status."""
    print(f"awa-pool: {visible(' '.join(message.split()))}", file=sys.stderr)
    return status
