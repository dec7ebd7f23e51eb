"""docs/configuration.md and the command line tell the same story."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from awa_pool.cli.commands import COMMANDS, named_set, pool_set
from awa_pool.cli.entry import STATUSES
from awa_pool.cli.options import DEFAULTS
from awa_pool.config.settings import SETTINGS, PoolConfig, variable_of
from awa_pool.receiver.keys import SECRET_VARIABLE

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


def flags_of(command: object) -> set[str]:
    """Every long and short flag of a command and of the commands below it."""
    found: set[str] = set()
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "option":
            found |= {*parameter.opts, *parameter.secondary_opts}
    for below in getattr(command, "commands", {}).values():
        found |= flags_of(below)
    return found


FLAGS = flags_of(typer.main.get_command(pool_set)) | flags_of(typer.main.get_command(named_set))


def test_every_flag_is_documented_and_every_documented_flag_exists() -> None:
    written = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)(?![\w-])", TEXT))
    undocumented = FLAGS - written - {"--help", "-h"}
    assert undocumented == set()
    assert written - FLAGS - {"--help", "-h", "--version"} == set()


def test_every_setting_has_a_flag_and_a_documented_variable() -> None:
    written = set(re.findall(r"AWA_POOL_[A-Z_]+", TEXT))
    assert {setting.flag for setting in SETTINGS.values()} <= FLAGS
    assert {variable_of(name) for name in SETTINGS} | {"AWA_POOL_WORKRES", SECRET_VARIABLE} == written


def test_every_command_and_exit_status_is_documented() -> None:
    for command in COMMANDS:
        assert f"`awa-pool {command}" in TEXT
    statuses = TEXT[TEXT.index("## Exit statuses") :]
    for status, _ in STATUSES:
        assert f"| {status} |" in statuses


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_the_defaults_told_are_the_defaults_used(name: str) -> None:
    setting, told = SETTINGS[name], DEFAULTS[name]
    if told in ("one per core", "those that the app's tasks name", "never", "off"):
        assert getattr(PoolConfig(), name) in (None, 0, (), PoolConfig().workers)
    else:
        assert setting.read(told) == getattr(PoolConfig(), name)
    row = next(
        line for line in TEXT.splitlines() if line.startswith("|") and f"`{variable_of(name)}`" in line
    )
    assert told in row.split("|")[3]
