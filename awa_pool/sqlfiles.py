"""The SQL text of the package: found, ordered and rendered; nothing here talks to a server.

Tokens in a file: `{schema}` is the schema as a quoted identifier, `{schema_text}` the same inside a string
literal, `{schema_name}` its plain name as a string literal, `{version}` the schema version of this package. A
file under `functions/slot/` is a template, rendered once per ring slot with `{slot}`; any other file may hold
`{each_slot}…{slot}…{end_slot}`, repeated for every slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

SLOTS = 24
SCHEMA_VERSION = 6
_EACH_SLOT = re.compile(r"\{each_slot\}(.*?)\{end_slot\}", re.DOTALL)
_UNSAFE = re.compile(r"[\x00-\x1f$%{}\\']")


@dataclass(frozen=True, slots=True)
class SqlFile:
    """A rendered SQL file; `name` is its path below `sql/` without the suffix, `#slot` added for a template."""

    name: str
    text: str

    @property
    def stem(self) -> str:
        """The name of the function it creates."""
        return self.name.rpartition("/")[2].replace("#", "_")


def quoted_schema(schema: str) -> str:
    """Quote a schema's name as an SQL identifier.

    Errors: ConfigError for an empty or overlong name, or one with control characters or any of `$ % { } \\ '`.
    """
    if not schema or len(schema.encode()) > 63 or _UNSAFE.search(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"schema {schema!r}: write a name of 1 to 63 bytes without quotes, $, %, braces or backslash"
        )
    return '"' + schema.replace('"', '""') + '"'


def render(text: str, schema: str, slot: int | None = None) -> str:
    """Fill the tokens of an SQL text."""
    quoted = quoted_schema(schema)
    text = _EACH_SLOT.sub(lambda m: "".join(m[1].replace("{slot}", str(i)) for i in range(SLOTS)), text)
    if slot is not None:
        text = text.replace("{slot}", str(slot))
    return (
        text.replace("{schema}", quoted)
        .replace("{schema_text}", quoted)
        .replace("{schema_name}", f"'{schema}'")
        .replace("{version}", str(SCHEMA_VERSION))
    )


@cache
def _folder() -> Traversable:
    from importlib.resources import files  # 1 MiB that a worker, which reads no SQL, can do without

    return files("awa_pool.sql")


@cache
def read(name: str) -> str:
    """Return the raw text of `sql/<name>.sql`."""
    return (_folder() / f"{name}.sql").read_text(encoding="utf-8")


@cache
def names(folder: str) -> tuple[str, ...]:
    """Return the names of the SQL files of a folder below `sql/`, in order."""
    found = (entry.name for entry in (_folder() / folder).iterdir())
    return tuple(sorted(f"{folder}/{name[:-4]}" for name in found if name.endswith(".sql")))


def query(name: str, schema: str) -> str:
    """Return the rendered text of `sql/queries/<name>.sql`."""
    return render(read(f"queries/{name}"), schema)


def migrations(schema: str) -> tuple[tuple[int, SqlFile], ...]:
    """Return the forward-only schema steps as (version, file), in order."""
    return tuple(
        (int(name.rpartition("/")[2].split("_")[0]), SqlFile(name, render(read(name), schema)))
        for name in names("migrations")
    )


def works_from() -> int:
    """Return the oldest schema version whose release may work on today's: that of the newest breaking step."""
    return max(
        int(name.rpartition("/")[2].split("_")[0])
        for name in names("migrations")
        if read(name).startswith("-- breaking\n")
    )


def functions(schema: str) -> Iterator[SqlFile]:
    """Yield every function file: the per-slot ones first, then functions, then views (`functions/view/`)."""
    for name in names("functions/slot"):
        for slot in range(SLOTS):
            yield SqlFile(f"{name}#{slot}", render(read(name), schema, slot))
    for folder in ("functions", "functions/view"):
        if folder == "functions" or _has(folder):
            for name in names(folder):
                yield SqlFile(name, render(read(name), schema))


def _has(folder: str) -> bool:
    return (_folder() / folder).is_dir()
