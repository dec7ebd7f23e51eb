"""From a command line to an exit status: every refusal is one line on standard error.

Without a command the pool itself is meant, so `awa-pool shop.jobs:client --workers 8` and `awa-pool status` live
side by side: two command sets, chosen by the first word.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from awa_pool.errors import AwaError, ConfigError

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
STATUSES = (
    ("0", "done; a pool has drained or was stopped and stored everything"),
    (
        "1",
        "failed: the job or action was refused, the database or a process gave up, or results could not be stored",
    ),
    ("2", "refused at once: a flag, app, address, queue, schema or folder is wrong; the line says which"),
    ("130, 143", "cut short by a second Ctrl-C or SIGTERM"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (the process's own by default) and return its exit status."""
    if sys.platform == "win32":
        return _refuse("awa-pool needs Linux or macOS: its processes talk over Unix sockets", REFUSED)
    words = list(sys.argv[1:] if arguments is None else arguments)
    from .commands import run_words  # after the platform check, and not at import: typer costs 100 ms

    try:
        return run_words(words)
    except ConfigError as error:
        return _refuse(str(error), REFUSED)
    except AwaError as error:
        return _refuse(str(error), _status_of(error))
    except KeyboardInterrupt:
        return INTERRUPTED
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
        return _refuse(usage(), REFUSED)


def _status_of(error: AwaError) -> int:
    from awa_pool.errors import SchemaMismatch, ValidationError

    return REFUSED if isinstance(error, SchemaMismatch | ValidationError) else FAILED


def _refuse(message: str, status: int) -> int:
    print(f"awa-pool: {' '.join(message.split())}", file=sys.stderr)
    return status
