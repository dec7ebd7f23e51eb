"""How the user's app comes into a worker: imported by name, or by value when it was defined in `__main__`."""

from __future__ import annotations

import base64
import importlib
import traceback
from collections.abc import Mapping
from typing import Any, Protocol

import dill

from awa_pool.errors import ConfigError
from awa_pool.registry import Registry


class App(Protocol):
    """What an app is to a worker: anything with a registry (a Client)."""

    @property
    def registry(self) -> Registry: ...


def pack_app(app: Any) -> str:
    """Return an app of `__main__` as text: functions and classes defined there go along by value.

    Errors: ConfigError naming what cannot be sent.
    """
    try:
        return base64.b64encode(dill.dumps(app, recurse=True)).decode()
    except Exception as error:  # whatever the objects that handlers refer to raise
        raise ConfigError(
            f"the app is defined in __main__ and cannot be sent to workers ({type(error).__name__}: {error});"
            " move it to a module of its own"
        ) from error


def load_app(settings: Mapping[str, Any]) -> Registry:
    """Return the registry of the app that the settings name.

    Errors: ConfigError naming the app, the module and what went wrong in it, with the last lines of the traceback.
    """
    blob, name = settings.get("app_blob"), settings.get("app")
    if blob:
        try:
            return _registry(dill.loads(base64.b64decode(blob)), "the app of __main__")
        except Exception as error:  # user code runs while it is unpacked
            raise ConfigError(f"cannot load the app of __main__: {_describe(error)}") from error
    if not name:
        return Registry()
    return load_named(str(name))


def load_named(name: str) -> Registry:
    """Import `module:attribute` and return its registry. Errors: ConfigError, as for `load_app`."""
    module_name, _, attribute = name.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in (attribute or "client").split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # user code runs at import, and may even exit
        raise ConfigError(f"cannot load app {name!r}: {_describe(error)}") from error
    return _registry(target, f"app {name!r}")


def _registry(app: Any, what: str) -> Registry:
    registry = app if isinstance(app, Registry) else getattr(app, "registry", None)
    if not isinstance(registry, Registry):
        raise ConfigError(f"{what} is a {type(app).__name__}, not a Client")
    return registry


def _describe(error: BaseException) -> str:
    lines = traceback.format_tb(error.__traceback__)[-2:]
    return f"{type(error).__name__}: {error}\n{''.join(lines)}".rstrip()
