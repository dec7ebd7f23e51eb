"""Tests of handlers: alone, without a database (`HandlerJob`), or with one, through the pool's own code (`work_one`, `drain`).

`awa_pool.testing.plugin` gives pytest a throw-away database. docs/testing.md shows all of it. Workers never import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asserting import assert_enqueued as assert_enqueued
    from .asserting import refute_enqueued as refute_enqueued
    from .handler_job import HandlerJob as HandlerJob
    from .results import StagedJob as StagedJob
    from .results import WorkResult as WorkResult
    from .working import drain as drain
    from .working import work_one as work_one

_HOMES = {
    "asserting": ("assert_enqueued", "refute_enqueued"),
    "handler_job": ("HandlerJob",),
    "results": ("StagedJob", "WorkResult"),
    "working": ("drain", "work_one"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (each name is loaded at its first use: pytest imports this at every start)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'awa_pool.testing' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(f"awa_pool.testing.{home}"), name)
    return value
