"""What a pool can be told, from which place each value came, and which values are possible.

Layers, the later one wins: `[tool.awa-pool]` in pyproject.toml, `AWA_POOL_*` variables, what was given on the
command line (or to `client.run`). The database's address alone follows its own order, see `PoolConfig.dsn`.
Every refusal is one `ConfigError` line that names the flag, variable or key and says what to write instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ConfigError
from .units import parse_duration, parse_size

__all__ = [
    "SETTINGS",
    "PoolConfig",
    "QueueSpec",
    "Setting",
    "flag_of",
    "load",
    "parse_duration",
    "parse_queue",
    "parse_size",
    "read_pyproject",
    "variable_of",
]

_PREFIX = "AWA_POOL_"
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}
MIN_BEATS = 3  # heartbeats that must fit into one stale threshold


class QueueSpec(NamedTuple):
    """One queue to serve; `max` bounds its jobs in flight on this host, None leaves it free."""

    name: str
    max: int | None = None


def parse_queue(text: str) -> QueueSpec:
    """Read `name` or `name:max`; in a name with a colon the last one parts them. Errors: ConfigError saying what to write."""
    name, colon, limit = text.rpartition(":")
    if not colon:
        name, limit = text, ""
    if not name or name != name.strip() or len(name) > 200 or "\x00" in name:
        raise ConfigError(f"{text[:80]!r} is not a queue; write NAME or NAME:MAX, such as mail or mail:4")
    if not colon:
        return QueueSpec(name)
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:20]) <= 1_000_000):
        own = "" if limit.isdigit() else f"; where it belongs to the name, give the limit too: {text[:80]}:8"
        raise ConfigError(
            f"{text[:80]!r}: the part after the last ':' is the most jobs in flight; write a number from 1{own}"
        )
    return QueueSpec(name, int(limit))


# --- readers: text or typed value in, value out --------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ConfigError("write a text that is not empty")
    return value


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _YES or word in _NO:
        return word in _YES
    raise ConfigError(f"{value!r} is neither yes nor no; write true or false")


def _whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(f"{value!r} is not possible; write a whole number from {low} to {high}")
        return value

    return read


def _duration(low_s: float, high_s: float, example: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        seconds = parse_duration(value) if isinstance(value, str) else value
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not low_s <= seconds <= high_s
        ):
            bounds = f"{low_s:g}s to {high_s:g}s"
            raise ConfigError(f"{value!r} is not possible; write a duration of {bounds}, such as {example}")
        return float(seconds)

    return read


def _size(low: int, example: str) -> Callable[[object], int]:
    def read(value: object) -> int:
        size = parse_size(value) if isinstance(value, str) else value
        if not isinstance(size, int) or isinstance(size, bool) or not low <= size < 2**62:
            raise ConfigError(
                f"{value!r} is not possible; write a size of at least {low} bytes, such as {example}"
            )
        return size

    return read


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else value
        if word not in words:
            raise ConfigError(f"{value!r} is unknown; write one of {', '.join(words)}")
        return str(word)

    return read


def _queues(value: object) -> tuple[QueueSpec, ...]:
    """Read a comma-separated text, or a list of texts and specs; a queue named twice is refused."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ConfigError('write a list of queues, such as ["mail", "reports:2"]')
    specs: list[QueueSpec] = []
    for part in parts:
        if isinstance(part, QueueSpec):
            parse_queue(f"{part.name}:{1 if part.max is None else part.max}")  # its name may have a colon
            specs.append(part)
        elif isinstance(part, str):
            specs.append(parse_queue(part))
        else:
            raise ConfigError(f"{part!r} is not a queue; write NAME or NAME:MAX")
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"queue {name!r} is named twice; name each queue once")
    return tuple(specs)


def _schema(value: object) -> str:
    name = _text(value)
    if len(name.encode()) > 50 or name.startswith("pg_"):
        raise ConfigError(f"{name[:80]!r} cannot be a schema; write up to 50 bytes not starting with pg_")
    return name


# --- the settings ----------------------------------------------------------------------------------------------


def _setting(
    read: Callable[[object], Any],
    default: Any,
    about: str,
    *,
    flag: str = "",
    key: str = "",
    file: bool = True,
) -> Any:
    about_it = {"read": read, "about": about, "flag": flag, "key": key, "file": file}
    return field(default=default, repr=file, metadata=about_it)  # an address may hold a password: not in repr


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Everything a pool is told. Each field checks itself, then the cross-field rules; errors: ConfigError."""

    app: str | None = _setting(_text, None, "module:attribute of the Client whose tasks are run")
    dsn: str | None = _setting(
        _text, None, "address of the database; None: the app's own, then DATABASE_URL", file=False
    )
    schema: str = _setting(_schema, "awa_pool", "schema that holds the queue")
    listen_dsn: str | None = _setting(_text, None, "address for LISTEN, around a pooler", file=False)
    embedded: bool = _setting(_flag, False, "use the embedded server")
    data_dir: str | None = _setting(_text, None, "where the embedded server keeps its data")
    workers: int = _setting(_whole(1, 1024), os.cpu_count() or 1, "worker processes")
    concurrency: int = _setting(_whole(1, 10_000), 100, "async jobs that one worker runs at once")
    max_waiting: int = _setting(
        _whole(0, 10_000), 1000, "handlers of one worker that may wait for callbacks without holding a slot"
    )
    queues: tuple[QueueSpec, ...] = _setting(
        _queues, (), "queues to serve, NAME[:MAX]; none: those that the app's tasks name", flag="--queue"
    )
    drain: bool = _setting(_flag, False, "end when nothing is available or running")
    drain_timeout_s: float = _setting(
        _duration(0, 86_400, "25s"), 25.0, "how long running jobs may go on after a stop signal"
    )
    kill_grace_s: float = _setting(
        _duration(0, 86_400, "5s"),
        5.0,
        "from an attempt's deadline, or its cancel, to the kill of its worker",
    )
    start_method: str = _setting(_one_of("forkserver", "spawn"), "forkserver", "how workers are started")
    boot_timeout_s: float = _setting(
        _duration(1, 3600, "30s"), 30.0, "a process not ready after this is replaced"
    )
    poll_interval_s: float = _setting(
        _duration(0.01, 60, "1s"), 1.0, "longest pause between two looks at a queue"
    )
    listen: bool = _setting(
        _flag, True, "wake up on notifications; otherwise by polling only", flag="--listen"
    )
    retention_s: float = _setting(_duration(0, 3.2e9, "24h"), 86_400.0, "how long finished jobs are kept")
    history_bytes: int = _setting(
        _size(1 << 20, "1GiB"),
        1 << 30,
        "most room for finished jobs",
        flag="--history-size",
        key="history_size",
    )
    dlq_retention_s: float = _setting(
        _duration(1, 3.2e9, "30d"), 2_592_000.0, "how long dead jobs are kept, where their queue does not say"
    )
    max_jobs_per_worker: int = _setting(_whole(0, 2**53), 0, "replace a worker after so many jobs; 0: never")
    max_rss_bytes: int | None = _setting(
        _size(1 << 20, "512MiB"),
        None,
        "replace a worker above this memory, between jobs",
        flag="--max-rss",
        key="max_rss",
    )
    heartbeat_s: float = _setting(
        _duration(0.05, 3600, "5s"),
        5.0,
        "pause between two signs of life",
        flag="--heartbeat",
        key="heartbeat",
    )
    stale_s: float = _setting(
        _duration(0.2, 86_400, "30s"), 30.0, "silence after which a host's jobs are rescued", flag="--stale-after",
        key="stale_after",
    )  # fmt: skip
    metrics_port: int | None = _setting(
        _whole(0, 65_535), None, "serve /metrics, /healthz, /readyz; 0: any free port"
    )
    metrics_host: str = _setting(_text, "127.0.0.1", "address the endpoint listens on")
    log_level: str = _setting(
        _one_of("debug", "info", "warning", "error"), "info", "least severe line to log"
    )
    log_format: str = _setting(_one_of("console", "json"), "console", "how log lines look")
    run_dir: str | None = _setting(
        _text, None, "private folder for sockets and pages; a fresh one by default"
    )

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            value = getattr(self, setting.name)
            if value is not None:
                object.__setattr__(self, setting.name, _read(setting, setting.name, value))
        self._check_together()

    def _check_together(self) -> None:
        if self.stale_s < MIN_BEATS * self.heartbeat_s:
            raise ConfigError(
                f"--stale-after {self.stale_s:g}s holds fewer than {MIN_BEATS} heartbeats of {self.heartbeat_s:g}s; "
                f"write --stale-after {MIN_BEATS * self.heartbeat_s:g}s or more, or a shorter --heartbeat"
            )
        if self.listen_dsn is not None and not self.listen:
            raise ConfigError("--listen-dsn has no use with --no-listen; leave one of the two out")
        if self.embedded and self.dsn is not None:
            raise ConfigError(
                "--embedded and an address exclude each other (--dsn or AWA_POOL_DSN; for client.run() also the Client's "
                "own); leave one of the two out"
            )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of `PoolConfig` as people write it."""

    name: str  # field of PoolConfig
    key: str  # name in pyproject.toml and, in capitals, after AWA_POOL_
    flag: str
    about: str
    read: Callable[[object], Any]
    in_file: bool


def _settings() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for item in dataclasses.fields(PoolConfig):
        plain = item.name.removesuffix("_s")
        flag = item.metadata["flag"] or "--" + plain.replace("_", "-")
        found[item.name] = Setting(
            name=item.name, key=item.metadata["key"] or plain, flag=flag, about=item.metadata["about"],
            read=item.metadata["read"], in_file=item.metadata["file"],
        )  # fmt: skip
    return found


SETTINGS: Mapping[str, Setting] = _settings()
_BY_KEY = {setting.key: setting for setting in SETTINGS.values()}
_WITH_UNIT = {
    "drain_timeout_s",
    "kill_grace_s",
    "boot_timeout_s",
    "poll_interval_s",
    "retention_s",
    "dlq_retention_s",
    "heartbeat_s",
    "stale_s",
} | {
    "history_bytes",
    "max_rss_bytes",
}


def flag_of(name: str) -> str:
    """Return the command line flag of a `PoolConfig` field."""
    return SETTINGS[name].flag


def variable_of(name: str) -> str:
    """Return the environment variable of a `PoolConfig` field."""
    return _PREFIX + SETTINGS[name].key.upper()


def _read(setting: Setting, label: str, value: object) -> Any:
    try:
        return setting.read(value)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None


# --- layers ------------------------------------------------------------------------------------------------------


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
        setting = SETTINGS.get(name) or _BY_KEY.get(name)
        if setting is None:
            raise ConfigError(f"{name}: no such setting{_near(name)}")
        if value is not None:
            label = name if in_python else setting.flag
            values[setting.name], sources[setting.name] = _read(setting, label, value), label
    return PoolConfig(**values), sources


def _from_file(path: Path, table: dict[str, Any], values: dict[str, Any], sources: dict[str, str]) -> None:
    for written, value in table.items():
        label = f"{path} [tool.awa-pool] {written}"
        setting = _BY_KEY.get(written.replace("-", "_"))
        if setting is None:
            raise ConfigError(f"{label}: no such setting{_near(written)}")
        if not setting.in_file:
            raise ConfigError(
                f"{label}: an address may hold a password; write it as {variable_of(setting.name)}"
            )
        if setting.name in _WITH_UNIT and not isinstance(value, str):
            raise ConfigError(f'{label}: {value!r} has no unit; write a text such as "25s" or "512MiB"')
        values[setting.name], sources[setting.name] = _read(setting, label, value), label


def _from_environ(environ: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]) -> None:
    for variable, text in environ.items():
        if not variable.startswith(_PREFIX) or not text:
            continue
        key = variable.removeprefix(_PREFIX).lower()
        setting = _BY_KEY.get(key)
        if setting is not None:
            values[setting.name], sources[setting.name] = _read(setting, variable, text), variable
        elif near := difflib.get_close_matches(key, _BY_KEY, 1, 0.6 if len(key) <= 4 else 0.8):
            # Only what looks like a slip: orchestrators put variables of their own behind the same prefix.
            raise ConfigError(f"{variable}: no such setting; write {_PREFIX}{near[0].upper()}")


def _near(written: str) -> str:
    near = difflib.get_close_matches(written.replace("-", "_"), _BY_KEY, 1)
    return f"; did you mean {near[0].replace('_', '-')}?" if near else ""
