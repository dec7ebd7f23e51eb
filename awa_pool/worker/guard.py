"""Keeps a pool from being started where it would start again and again.

Children never import the parent's `__main__`: what is defined there travels by value. But a handler's own
multiprocessing children do import it, and an app module that starts a pool while it is imported would start one in
each worker. So both are refused at once, with the cure in the message.
"""

from __future__ import annotations

import ast
import sys
from types import FrameType

from awa_pool.errors import ConfigError

_in_child = False


def mark_child() -> None:
    """Remember that this process belongs to a pool: no second pool may start here."""
    global _in_child
    _in_child = True


def check_may_run() -> None:
    """Refuse to start a pool from where it must not be started; call it first thing in `client.run`.

    Errors: ConfigError says what to change.
    """
    if _in_child:
        raise ConfigError(
            "client.run() was called while a worker process imported the app: put the call under"
            ' `if __name__ == "__main__":`, so that importing the module starts no pool'
        )
    frame = _main_module_frame()
    if frame is None:
        return
    path = frame.f_code.co_filename
    if _is_guarded(path, frame.f_lineno):
        return
    raise ConfigError(
        f"{path}, line {frame.f_lineno}: the pool is started at the top level of the script. Put it under"
        ' `if __name__ == "__main__":`, because processes that import the script would each start another pool'
    )


def _main_module_frame() -> FrameType | None:
    """Return the running top-level frame of the script, None in a notebook, a shell, `-c` or an embedding program."""
    main = sys.modules.get("__main__")
    if main is None or getattr(main, "__file__", None) is None:
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is main.__dict__:
            return frame
        frame = frame.f_back
    return None


def _is_guarded(path: str, line: int) -> bool:
    """Say whether that line of the file stands under a test of `__name__`; unreadable files count as guarded."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        and node.lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(tree)
    )
