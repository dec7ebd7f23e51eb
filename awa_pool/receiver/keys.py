"""Where the receiver's secrets come from: a file, or a variable; never a flag, which everybody on the host can read."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from awa_pool.errors import ConfigError

from .signing import checked_secrets

SECRET_VARIABLE = "AWA_POOL_CALLBACK_SECRET"
_MOST_BYTES = 4096
_log = logging.getLogger(__name__)


def found_secrets(file: str | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets, one a line or parted by blanks or commas: of the file if one is named, else of the variable; none is ().

    Warns of a file that everybody on the host may read, or others than its owner change. Errors: ConfigError naming the place, never the text.
    """
    if file is not None:
        place, text = f"--secret-file {file}", _read(file)
    else:
        place, text = SECRET_VARIABLE, environ.get(SECRET_VARIABLE, "")
    words = text.replace(",", " ").split()
    if file is not None and not words:
        raise ConfigError(
            f"{place}: the file is empty; write a secret into it, such as `openssl rand -hex 32` makes"
        )
    try:
        return checked_secrets(words)
    except ConfigError as problem:
        raise ConfigError(f"{place}: {problem}") from None


def _read(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
            mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "no such name"
        raise ConfigError(f"--secret-file {file}: cannot be read: {why}") from None
    if stat.S_ISREG(mode) and mode & 0o026:  # readable to a group is a way to share it
        _log.warning(
            "--secret-file %s: others may read or change it, and whoever knows a secret can answer: `chmod o-rwx,g-w %s`", file, file,
        )  # fmt: skip
    try:
        if len(raw) <= _MOST_BYTES:
            return raw.decode("ascii")
    except UnicodeDecodeError:
        pass
    raise ConfigError(f"--secret-file {file}: this is no file of secrets, one a line")
