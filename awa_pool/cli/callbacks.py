"""The command `callbacks`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from awa_pool.config.layers import load
from awa_pool.config.settings import PoolConfig
from awa_pool.errors import ConfigError, ValidationError
from awa_pool.logs import set_up_logging
from awa_pool.registry import Registry
from awa_pool.units import parse_duration, parse_size

from .database import with_database
from .options import LOOK, App, DataDir, Dsn, Embedded, Schema, option

RECEIVER = "Receiver"
_log = logging.getLogger("awa_pool.receiver")


def _flag(name: str, metavar: str, about: str) -> Any:
    return typer.Option(name, help=about, metavar=metavar, rich_help_panel=RECEIVER, show_default=False)


def callbacks(
    port: Annotated[
        str, _flag("--port", "PORT", "Port to listen on; 0: any free one (default: 4000)")
    ] = "4000",
    host: Annotated[
        str, _flag("--host", "ADDRESS", "Address or name to listen on (default: 127.0.0.1)")
    ] = "127.0.0.1",
    prefix: Annotated[
        str, _flag("--prefix", "PATH", "Path that callbacks stand under (default: /api/callbacks)")
    ] = "/api/callbacks",
    secret_file: Annotated[
        str | None,
        _flag(
            "--secret-file",
            "FILE",
            "File with one secret, or two while they change; else AWA_POOL_CALLBACK_SECRET",
        ),
    ] = None,
    allow_unsigned: Annotated[
        bool,
        typer.Option(
            "--allow-unsigned",
            help="Take answers without a signature; only on a loopback address",
            rich_help_panel=RECEIVER,
        ),
    ] = False,
    max_body: Annotated[
        str, _flag("--max-body", "SIZE", "The longest body taken, 1KiB to 16MiB (default: 1MiB)")
    ] = "1MiB",
    read_timeout: Annotated[
        str,
        _flag(
            "--read-timeout", "TIME", "How long headers, and then a body, may take to arrive (default: 10s)"
        ),
    ] = "10s",
    dsn: Dsn = None,
    schema: Schema = None,
    embedded: Embedded = None,
    data_dir: DataDir = None,
    app: App = None,
    log_level: Annotated[str | None, option("log_level", "debug|info|warning|error", LOOK)] = None,
    log_format: Annotated[str | None, option("log_format", "console|json", LOOK)] = None,
) -> int:
    """Take answers to callbacks over HTTP, signed, until it is stopped."""
    from awa_pool.receiver.keys import found_secrets
    from awa_pool.receiver.needs import needed

    needed("starlette", "uvicorn")
    from awa_pool.receiver.app import Options
    from awa_pool.receiver.serving import listening_socket, serve

    given = {
        "dsn": dsn, "schema": schema, "embedded": embedded, "data_dir": data_dir, "app": app,
        "log_level": log_level, "log_format": log_format,
    }  # fmt: skip
    config, sources = load(given, environ=os.environ, start=Path.cwd())
    set_up_logging("callbacks", config.log_level, config.log_format)
    number = _port(port)
    secrets = found_secrets(secret_file, os.environ)
    _check_signing(secrets, allow_unsigned, host)
    try:
        options = Options.checked(
            secrets=secrets, allow_unsigned=allow_unsigned, prefix=prefix, max_body_bytes=_read("--max-body", parse_size, max_body),
            read_timeout_s=_read("--read-timeout", parse_duration, read_timeout), probes=True,
        )  # fmt: skip
    except ValidationError as problem:
        flag = {"max_body_bytes": "--max-body", "read_timeout_s": "--read-timeout"}.get(
            problem.path, "--prefix"
        )
        raise ConfigError(f"{flag}: {str(problem).partition(': ')[2]}") from None
    with with_database(config, sources) as settled, listening_socket(host, number) as listening:
        assert settled.dsn is not None
        return serve(settled.dsn, settled.schema, _registry(settled), options, listening)


def _check_signing(secrets: tuple[str, ...], allow_unsigned: bool, host: str) -> None:
    """Refuse to take answers of anybody. Errors: ConfigError."""
    from awa_pool.receiver.keys import SECRET_VARIABLE
    from awa_pool.receiver.serving import is_loopback

    if secrets and allow_unsigned:
        raise ConfigError("--allow-unsigned: a secret is given too; leave one of them out")
    if secrets:
        return
    if not allow_unsigned:
        raise ConfigError(
            f"no secret to check signatures with: write --secret-file, or set {SECRET_VARIABLE} (`openssl rand -hex 32` makes "
            "one); --allow-unsigned does without on a loopback address"
        )
    if not is_loopback(host):
        raise ConfigError(
            f"--allow-unsigned: other hosts can reach {host!r}, and anybody there could answer; listen on 127.0.0.1, or use a secret"
        )


def _registry(config: PoolConfig) -> Registry | None:
    """Return what the app declares, None without an app. Errors: ConfigError."""
    if config.app is None:
        _log.warning(
            "no --app: what an app registers for answers (follow-ups, hooks) does not run here, with the answer; a worker does it later"
        )
        return None
    from awa_pool.worker.app import load_app

    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return load_app({"app": config.app, "schema": config.schema, "dsn": config.dsn})


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= 65_535):
        raise ConfigError(f"--port: {text[:20]!r} is not possible; write a whole number from 0 to 65535")
    return int(text[:9])


def _read(flag: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ConfigError as problem:
        raise ConfigError(f"{flag}: {problem}") from None
