"""A second cluster, and the ways in which a database gets into it: pg_dump and pg_restore, and a logical copy."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import psycopg
import pytest
from servers import Server

_numbers = itertools.count(1)
BURNT = 20_000


def burn_xids(dsn: str, count: int = BURNT) -> None:
    """Let a cluster use up transaction ids, so that they are well beyond those of a fresh one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            f"do $$ begin for i in 1..{int(count)} loop perform pg_current_xact_id(); commit; end loop; end $$"
        )


def next_xid(dsn: str) -> int:
    """The first transaction id that no snapshot of now has seen."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone()
    return int(row[0]) if row else 0


def dump(source: Server, dsn: str, path: Path) -> Path:
    """Take a backup as people do; skips the test where this PostgreSQL comes without the program."""
    if not (source.bin_dir / "pg_dump").exists():
        pytest.skip("no pg_dump beside this PostgreSQL")
    subprocess.run([source.bin_dir / "pg_dump", "-Fc", "-f", path, dsn], check=True)
    return path


def restore(target: Server, backup: Path) -> str:
    """Restore it into a new database of that cluster; returns its DSN."""
    name = f"restored_{next(_numbers)}"
    target.execute(f"create database {name}")
    subprocess.run(
        [target.bin_dir / "pg_restore", "--exit-on-error", "-d", target.dsn(name), backup], check=True
    )
    return target.dsn(name)
