"""Fixtures of the tests on the receiver of callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from receiver_rig import NEXT_SECRET, SECRET, ReceiverProcess, receiver


@pytest.fixture
def server(dsn: str, tmp_path: Path) -> Iterator[ReceiverProcess]:
    """A receiver that knows two secrets and no app."""
    with receiver(
        tmp_path, dsn, "--max-body", "64KiB", "--read-timeout", "2s", secrets=f"{SECRET},{NEXT_SECRET}"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    """A receiver whose database is never asked."""
    with receiver(
        tmp_path_factory.mktemp("quiet"), "host=/nowhere dbname=none", "--max-body", "128KiB"
    ) as found:
        yield found
