"""The layers that a config is merged from, and which of them each value came from."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from awa_pool.errors import ConfigError

from .settings import BY_KEY, PREFIX, SETTINGS, WITH_UNIT, PoolConfig, read_setting, variable_of


def read_pyproject(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest pyproject.toml at or above `start` that has `[tool.awa-pool]`, with that table."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not readable as TOML ({error})") from None
        table = document.get("tool", {}).get("awa-pool")
        if table is not None:
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: [tool.awa-pool] must be a table")
            return path, table
    return None


def load(
    given: Mapping[str, object], *, environ: Mapping[str, str], start: Path, in_python: bool = False
) -> tuple[PoolConfig, dict[str, str]]:
    """Merge the layers into a config, and say for each field where its value came from.

    `given` holds `PoolConfig` field names (with or without the unit suffix) of only what was set, None meaning
    not set; `in_python` words errors as keyword arguments instead of flags. A source is `default`, a flag, a
    variable or `path [tool.awa-pool] key`.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(SETTINGS, "default")
    found = read_pyproject(start)
    if found is not None:
        _from_file(*found, values, sources)
    _from_environ(environ, values, sources)
    for name, value in given.items():
        setting = SETTINGS.get(name) or BY_KEY.get(name)
        if setting is None:
            raise ConfigError(f"{name}: no such setting{_near(name)}")
        if value is not None:
            label = name if in_python else setting.flag
            values[setting.name], sources[setting.name] = read_setting(setting, label, value), label
    return PoolConfig(**values), sources


def _from_file(path: Path, table: dict[str, Any], values: dict[str, Any], sources: dict[str, str]) -> None:
    for written, value in table.items():
        label = f"{path} [tool.awa-pool] {written}"
        setting = BY_KEY.get(written.replace("-", "_"))
        if setting is None:
            raise ConfigError(f"{label}: no such setting{_near(written)}")
        if not setting.in_file:
            raise ConfigError(
                f"{label}: an address may hold a password; write it as {variable_of(setting.name)}"
            )
        if setting.name in values:
            raise ConfigError(
                f"{label}: {sources[setting.name].rpartition(' ')[2]} says the same; leave one of them out"
            )
        if setting.name in WITH_UNIT and not isinstance(value, str):
            raise ConfigError(f'{label}: {value!r} has no unit; write a text such as "25s" or "512MiB"')
        values[setting.name], sources[setting.name] = read_setting(setting, label, value), label


def _from_environ(environ: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]) -> None:
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or not text:
            continue
        key = variable.removeprefix(PREFIX).lower()
        setting = BY_KEY.get(key)
        if setting is not None:
            values[setting.name], sources[setting.name] = read_setting(setting, variable, text), variable
        elif near := difflib.get_close_matches(key, BY_KEY, 1, 0.6 if len(key) <= 4 else 0.8):
            # Only what looks like a slip: orchestrators put variables of their own behind the same prefix.
            raise ConfigError(f"{variable}: no such setting; write {PREFIX}{near[0].upper()}")


def _near(written: str) -> str:
    near = difflib.get_close_matches(written.replace("-", "_"), BY_KEY, 1)
    return f"; did you mean {near[0].replace('_', '-')}?" if near else ""
