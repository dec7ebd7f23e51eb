"""The two command sets: the pool itself, and everything with a name of its own."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from awa_pool.errors import ConfigError

from . import callbacks, dlq, enqueuing, jobs, maintaining, migrating, queues, rebasing, settings, status
from .demo import demo
from .entry import OK, STATUSES
from .pool import pool

_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}

pool_set = typer.Typer(**_SETTINGS)
pool_set.command(help=pool.__doc__)(pool)

named_set = typer.Typer(**_SETTINGS, help="Commands beside the pool itself.")
queue_set = typer.Typer(**_SETTINGS, no_args_is_help=True, help="Pause, resume, count and set up queues.")
dlq_set = typer.Typer(**_SETTINGS, no_args_is_help=True, help="List, retry, purge and move dead jobs.")
_NAMED: dict[str, Callable[..., Any]] = {
    "migrate": migrating.migrate,
    "rebase": rebasing.rebase,
    "maintain": maintaining.maintain,
    "callbacks": callbacks.callbacks,
    "enqueue": enqueuing.enqueue,
    "status": status.status,
    "jobs": jobs.list_jobs,
    "job": jobs.show_job,
    "cancel": jobs.cancel,
    "retry": jobs.retry,
    "config": settings.settings,
    "demo": demo,
}
for _name, _command in _NAMED.items():
    named_set.command(_name)(_command)
_GROUPS: dict[str, tuple[typer.Typer, dict[str, Callable[..., Any]]]] = {
    "queue": (
        queue_set,
        {
            "list": queues.list_queues, "set": queues.set_queue, "pause": queues.pause, "resume": queues.resume,
            "stats": queues.stats,
        },
    ),
    "dlq": (
        dlq_set,
        {"list": dlq.list_dead, "show": dlq.show, "retry": dlq.retry, "purge": dlq.purge, "move": dlq.move},
    ),
}  # fmt: skip
for _name, (_set, _commands) in _GROUPS.items():
    for _below, _command in _commands.items():
        _set.command(_below)(_command)
    named_set.add_typer(_set, name=_name)
COMMANDS = (*_NAMED, *_GROUPS)


def run_words(words: list[str]) -> int:
    """Run a command line given as words; returns its exit status."""
    if "--version" in words[:1] or words[:1] == ["version"]:
        from importlib.metadata import version

        print(f"awa-pool {version('awa-pool')}")
        return OK
    named = bool(words) and words[0] in COMMANDS
    if not named:
        _refuse_misplaced_command(words)
    if len(words) == 1 and words[0] in _GROUPS:
        words = [*words, "--help"]  # what may follow is all there is to say
    chosen = named_set if named else pool_set
    answer = chosen(args=words, prog_name="awa-pool", standalone_mode=False)
    if not named and {"-h", "--help"} & set(words):
        _print_more_help()
    return answer if isinstance(answer, int) else OK


def _refuse_misplaced_command(words: list[str]) -> None:
    """Tell a misspelt or misplaced command from an app, which always has a colon."""
    if words and not words[0].startswith("-") and ":" not in words[0]:
        if "." in words[0] or "/" in words[0]:
            raise ConfigError(
                f"{words[0][:80]!r} names no client; write MODULE:CLIENT with a colon, such as shop.jobs:client"
            )
        near = difflib.get_close_matches(words[0], COMMANDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f" ({', '.join(COMMANDS)})"
        raise ConfigError(f"{words[0][:80]!r} is neither an app, MODULE:CLIENT, nor a command{hint}")


def _print_more_help() -> None:
    out = Console()
    commands = Table.grid(padding=(0, 3))
    abouts = {name: command.__doc__ for name, command in _NAMED.items()}
    for name, about in {**abouts, **{name: group.info.help for name, (group, _) in _GROUPS.items()}}.items():
        commands.add_row(f"  awa-pool {name}", str(about).strip().splitlines()[0])
    statuses = Table.grid(padding=(0, 3))
    for code, meaning in STATUSES:
        statuses.add_row(f"  {code}", meaning)
    out.print("[bold]Commands[/bold] (each has its own --help)")
    out.print(commands)
    out.print("\n[bold]Exit statuses[/bold]")
    out.print(statuses)
    out.print("\nEach flag may also stand in the environment as AWA_POOL_NAME, or in pyproject.toml under [tool.awa-pool].",
              markup=False)  # fmt: skip
