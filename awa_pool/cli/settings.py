"""`awa-pool config`: each setting, its value and where it came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from awa_pool.config.layers import load
from awa_pool.config.settings import SETTINGS, PoolConfig
from awa_pool.units import write_duration

from . import render
from .options import App, DataDir, Dsn, Embedded, Json, Schema

ADDRESSES = ("dsn", "listen_dsn")


NOT_SHOWN = "(set; not shown, it may hold a password)"


def settings(
    as_json: Json = False, app: App = None, dsn: Dsn = None, schema: Schema = None, embedded: Embedded = None,
    data_dir: DataDir = None,
) -> None:  # fmt: skip
    """Show each setting, its value and where it came from."""
    given = {"app": app, "dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir}
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    if as_json:
        for name, source in sources.items():
            render.print_json(
                {"setting": _as_written(name), "field": name, "value": _value(config, name), "source": source}
            )
        return
    rows = [(_as_written(name), _setting(config, name), source) for name, source in sources.items()]
    render.console().print(render.table(("setting", "value", "source"), rows, text=("value", "source")))


def _as_written(name: str) -> str:
    """Return a setting's name as pyproject.toml and, but for case and prefix, flag and variable have it."""
    return SETTINGS[name].key.replace("_", "-")


def _value(config: PoolConfig, name: str) -> Any:
    """Return a setting's value for programs: null where nothing is set, numbers in the unit that the field's name ends with."""
    value = getattr(config, name)
    if name in ADDRESSES and value is not None:
        return NOT_SHOWN
    return [queue._asdict() for queue in value] if name == "queues" else value


def _setting(config: PoolConfig, name: str) -> str:
    value = getattr(config, name)
    if name in ADDRESSES and value is not None:
        return NOT_SHOWN
    if name == "queues":
        return ", ".join(q.name if q.max is None else f"{q.name}:{q.max}" for q in value) or "–"
    if name.endswith("_s"):
        return write_duration(value)
    if name.endswith("_bytes"):
        return render.size(value)
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
