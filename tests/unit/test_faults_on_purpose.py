"""The test facility itself: what AWA_POOL_FAULTS may say, and what it does to messages and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from awa_pool import faults
from awa_pool.errors import ConfigError
from awa_pool.faults import Courier, read_plan


def sent_by(text: str, count: int, clock_s: float = 0.0) -> list[int]:
    """Return which of `count` messages leave, in order."""
    out: list[int] = []
    courier = Courier(read_plan(text), "wire", lambda: clock_s)

    def transmit(frames: list[bytes]) -> bool:
        out.append(int(frames[0]))
        return True

    for number in range(count):
        assert courier.send([str(number).encode()], transmit)
    return out


def test_a_share_of_the_messages_is_lost_and_the_same_ones_for_the_same_seed() -> None:
    kept = sent_by("drop=0.1 seed=5", 2000)
    assert 1700 < len(kept) < 1900
    assert kept == sent_by("drop=0.1 seed=5", 2000) != sent_by("drop=0.1 seed=6", 2000)


def test_messages_are_doubled_and_swapped_but_not_lost() -> None:
    sent = sent_by("double=0.2 reorder=0.2", 1000)
    assert sorted(set(sent)) == sorted({*range(1000)} & set(sent)) and len(set(sent)) >= 999
    assert len(sent) > 1100 and sent != sorted(sent)


def test_late_messages_leave_when_their_time_has_come() -> None:
    now_s = [0.0]
    out: list[bytes] = []
    courier = Courier(read_plan("late=1 late_s=0.5"), "wire", lambda: now_s[0])

    def transmit(frames: list[bytes]) -> bool:
        out.extend(frames)
        return True

    courier.send([b"a"], transmit)
    now_s[0] = 0.4
    courier.send([b"b"], transmit)
    assert out == []
    now_s[0] = 0.5
    courier.release(transmit)
    assert out == [b"a"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drp=0.1", "'drp=0.1' is unknown"),
        ("drop=1%", "a number from 0 to 1"),
        ("drop=0.6 late=0.6", "more than 1"),
        ("marks=/tmp worker.ran=explode", "kill or stop"),
        ("worker.ran=kill", "needs marks=FOLDER"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_naming_the_word(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_plan(text)


def test_without_the_variable_nothing_is_planned() -> None:
    assert faults.PLAN is None and faults.warning() is None
    faults.reach("worker.ran")


def test_one_process_alone_ends_at_a_point_and_leaves_its_id(tmp_path: Path) -> None:
    script = "from awa_pool.faults import reach\nfor n in range(3): reach('worker.ran')\nprint('on')"
    environ = os.environ | {"AWA_POOL_FAULTS": f"marks={tmp_path} worker.ran=kill:3"}
    runs = [
        subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [run.communicate(timeout=30)[0] for run in runs]
    killed = [run.pid for run in runs if run.returncode == -signal.SIGKILL]
    assert [tmp_path / "worker.ran"] == list(tmp_path.iterdir())
    assert killed == [int((tmp_path / "worker.ran").read_text())]
    assert sorted(said) == [b"", b"on\n", b"on\n"]
