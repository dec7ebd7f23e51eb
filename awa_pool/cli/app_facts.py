"""Ask an app for its own database address and its queues, in a process of its own.

The supervisor never imports user code: an import may hang, exit, or start threads. A short-lived child does it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from awa_pool.config.layers import load
from awa_pool.errors import ConfigError

IMPORT_DEADLINE_S = 60.0


def check_app_name(spec: str) -> None:
    """Refuse what is not MODULE:CLIENT. Errors: ConfigError saying what to write."""
    module, colon, attribute = spec.partition(":")
    names = [*module.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise ConfigError(f"{spec[:200]!r} is not an app; write MODULE:CLIENT, such as shop.jobs:client")


def app_dsn(spec: str) -> str | None:
    """Return the address that the app's Client was made with, None if it has none. Errors: as `_facts`."""
    dsn = _facts(spec)["dsn"]
    return str(dsn) if dsn else None


def declared_queues(app: str | None) -> list[str]:
    """Return the queues that the tasks of the app name, whether it is given here or elsewhere; [] without an app.

    Errors: as `_facts`.
    """
    config, _ = load({"app": app}, environ=os.environ, start=Path.cwd())
    return [str(queue) for queue in _facts(config.app)["queues"]] if config.app else []


def _facts(spec: str) -> dict[str, Any]:
    """Import the app in a child and return what it said.

    Errors: ConfigError naming the app and what is wrong with it, an import error with its place.
    """
    check_app_name(spec)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as answers:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "awa_pool.cli.app_probe", spec, str(writer)],
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
                timeout=IMPORT_DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(
                f"app {spec!r}: its import did not end within {IMPORT_DEADLINE_S:g} s"
            ) from None
        finally:
            os.close(writer)
        answer = answers.read()
    if not answer:
        raise ConfigError(f"app {spec!r}: its import ended the process with status {done.returncode}")
    facts: dict[str, Any] = json.loads(answer)
    if "error" in facts:
        raise ConfigError(str(facts["error"]))
    return facts


def _has_descriptor() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError):
        return False
    return True


def _import_path() -> list[str]:
    """Return what the app is found on: this process's own path, the working directory first."""
    return list(dict.fromkeys([str(Path.cwd()), *(path for path in sys.path if path)]))
