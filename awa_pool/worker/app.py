"""How the user's app comes into a worker: imported by name, or by value when it was defined in `__main__`."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from typing import Any, Protocol

import dill

from awa_pool.errors import ConfigError, RegistrationError
from awa_pool.registry import Registry

from .loading import load_named, registry_of

MAIN = "the app of __main__"


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

    Errors: ConfigError in one line naming the app, the module and what went wrong in it, or another schema than the
    pool's.
    """
    blob, name = settings.get("app_blob"), settings.get("app")
    if blob:
        what = MAIN
        try:
            app: Any = dill.loads(base64.b64decode(blob))
        except Exception as error:  # user code runs while it is unpacked
            raise ConfigError(f"cannot load {what}: {type(error).__name__}: {error}") from error
        registry = registry_of(app)
        if registry is None:
            raise ConfigError(f"{what} is a {type(app).__name__}, not a Client")
    elif name:
        what = title_of(settings)
        app = load_named(str(name))
        registry = registry_of(app)
        assert registry is not None  # load_named refuses what has none
    else:
        return Registry()
    _refuse_another_schema(app, settings.get("schema"), what)
    if getattr(app, "dsn", "") is None and isinstance(settings.get("dsn"), str):
        app.dsn = settings["dsn"]  # handlers put jobs in where this pool takes them from
    return registry


def check_tasks(registry: Registry, what: str) -> None:
    """Refuse an app with which each job that a pool claims would fail for good.

    Errors: ConfigError, of one without tasks, or with an annotation of args that nothing resolves.
    """
    if not registry.tasks:
        raise ConfigError(
            f"{what} declares no task: import the modules that declare its tasks (@client.task(…)) in the one that is named"
        )
    try:
        registry.resolve()
    except RegistrationError as problem:
        raise ConfigError(f"{what}: {problem}") from None


def title_of(settings: Mapping[str, Any]) -> str:
    """Return how errors call the app that the settings name; "" where they name none."""
    if settings.get("app_blob"):
        return MAIN
    return f"app {str(settings['app'])!r}" if settings.get("app") else ""


def _refuse_another_schema(app: Any, schema: object, what: str) -> None:
    """Jobs that handlers put in through the app's own Client would never be seen by this pool."""
    own = getattr(app, "schema", None)
    if isinstance(own, str) and schema is not None and own != schema:
        raise ConfigError(
            f"{what}: its Client is for schema {own!r}, this pool for {schema!r}; "
            f"start the pool with --schema {shlex.quote(own)}, or leave the Client's schema out"
        )
