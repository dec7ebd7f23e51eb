"""Import an app by name, and say in one line what is wrong when it is not there."""

from __future__ import annotations

import difflib
import importlib
import os
import traceback
from types import ModuleType
from typing import Any

from awa_pool.errors import ConfigError
from awa_pool.registry import Registry

_LONGEST_TEXT = 300
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def load_named(spec: str) -> Any:
    """Return the Client that MODULE:CLIENT names.

    Errors: ConfigError naming the missing module or attribute, what stands there instead of a Client, or the
    error and the line at which the import failed.
    """
    module_name, _, attribute = spec.partition(":")
    attribute = attribute or "client"
    module = _import(spec, module_name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            missing = f"module {module_name!r} has no {attribute!r}{_hint(module, attribute)}"
            raise ConfigError(f"app {spec!r}: {missing}") from None
        except Exception as error:  # a module's own __getattr__
            raise _failed(spec, error) from error
    if registry_of(found) is None:
        raise ConfigError(
            f"app {spec!r}: {attribute!r} is of type {type(found).__name__}, not an awa_pool.Client{_hint(module, '')}"
        )
    return found


def _import(spec: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"app {spec!r}: there is no module {error.name!r} in {os.getcwd()} or on the Python path"
            ) from None
        raise _failed(spec, error) from error
    except BaseException as error:  # user code runs at import: it may raise anything, and even exit
        raise _failed(spec, error) from error


def _failed(spec: str, error: BaseException) -> ConfigError:
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}, line {error.lineno}"
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_told(f.filename)]
        # Where we refuse what an app declares, the line to be mended is the one that declares it.
        frames = [f for f in frames if not f.filename.startswith(_OURS)] or frames
        place = (
            f"{frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}"
            if frames
            else "no line known"
        )
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:  # noqa: BLE001 (user code too)
        text = "<its text cannot be had>"
    return ConfigError(
        f"app {spec!r}: importing it raised {type(error).__name__}: {text[:_LONGEST_TEXT]} ({place})"
    )


def _is_told(filename: str) -> bool:
    """Leave out the import machinery and this very module: the line that matters is the user's or a library's."""
    return not filename.startswith("<frozen") and filename not in (__file__, importlib.__file__)


def registry_of(found: object) -> Registry | None:
    """Return the registry of a Client, or of what is one itself; None for anything else."""
    try:
        registry = found if isinstance(found, Registry) else getattr(found, "registry", None)
        return registry if isinstance(registry, Registry) else None
    except Exception:  # noqa: BLE001 (whatever else stands in the user's module may object to being asked)
        return None


def _hint(module: ModuleType, written: str) -> str:
    clients = sorted(name for name, value in vars(module).items() if registry_of(value) is not None)
    if clients:
        return f"; its Client is {', '.join(f'{module.__name__}:{name}' for name in clients)}"
    near = difflib.get_close_matches(written, vars(module), 1) if written else []
    return f"; did you mean {near[0]!r}?" if near else ""
