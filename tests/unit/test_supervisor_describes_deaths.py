from __future__ import annotations

from pathlib import Path

import pytest

from awa_pool.messages import WorkerGone
from awa_pool.page.layout import PLACE, Phase
from awa_pool.page.writing import Page
from awa_pool.supervisor.crash import describe_death, read_account
from awa_pool.supervisor.procfs import _memory_events

MIB = 1 << 20


@pytest.mark.parametrize(
    ("exit_code", "facts", "text"),
    [
        (-9, {"peak_bytes": 812 * MIB, "memory_kills": 1},
         "killed by signal 9 (SIGKILL), peak memory 812 MiB, the kernel killed it for memory"),
        (-9, {"peak_bytes": 26 * MIB},
         "killed by signal 9 (SIGKILL), peak memory 26 MiB, perhaps by the kernel, out of memory"),
        (-9, {"peak_bytes": 26 * MIB, "memory_kills": 1, "killed_for": "was not ready after 30 s"},
         "killed by signal 9 (SIGKILL), was not ready after 30 s, peak memory 26 MiB"),
        (-11, {"peak_bytes": MIB, "memory_kills": 1}, "killed by signal 11 (SIGSEGV), peak memory 1 MiB"),
        (-62, {}, "killed by signal 62 (unknown)"),
        (3, {}, "exited with status 3"),
        (0, {}, "exited with status 0"),
        (None, {}, "vanished without an exit status"),
    ],
)  # fmt: skip
def test_a_death_is_told_with_signal_or_status_peak_and_reason(
    exit_code: int | None, facts: dict[str, object], text: str
) -> None:
    """B001."""
    said, number, status = describe_death(exit_code, **({"peak_bytes": 0} | facts))  # type: ignore[arg-type]
    assert said == text
    assert number == (-exit_code if exit_code is not None and exit_code < 0 else None)
    assert status == (exit_code if exit_code is not None and exit_code >= 0 else None)


def test_the_account_of_a_dead_worker_holds_what_its_page_shows(tmp_path: Path) -> None:
    page = Page.create(str(tmp_path / "page"), kinds=["mail"])
    row = page.sync.open_piece(3, 77, 5)
    page.sync.words[page.sync.started_word(row)] = 0b111
    page.sync.words[page.sync.completed_word(row)] = 0b001
    page.sync.mark_ended(row, 0b010)
    account, view = read_account(page.path, 1, "i1", "killed by signal 9 (SIGKILL)")
    assert account == WorkerGone(1, "i1", "killed by signal 9 (SIGKILL)", [[77, 0b101, 0b001]], "idle")
    assert view is not None and view.running == []


def test_the_account_of_a_dead_worker_names_what_waited(tmp_path: Path) -> None:
    page = Page.create(str(tmp_path / "page"), 4, kinds=["mail"])
    lane = page.async_
    for place, (receipt_id, index) in enumerate([(77, 0), (77, 62), (78, 3), (78, 4)]):
        lane.use_place(place)
        values = (1, receipt_id, 5, index, 7, 1, 0, int(Phase.HANDLER), 1.0, 0.0, 1)
        PLACE.pack_into(lane.buffer, lane.place_offset(place), *values)

    def told() -> tuple[list[list[int]], str]:
        account, _ = read_account(page.path, 1, "i1", "exited with status 1")
        return account.waiting, account.phase

    assert told() == ([], "handler")
    for place in range(3):
        lane.set_phase(place, Phase.WAITING)
    assert told() == ([[77, 1 | 1 << 62], [78, 1 << 3]], "handler")
    lane.set_phase(3, Phase.ASIDE)
    assert told() == ([[77, 1 | 1 << 62], [78, 1 << 3]], "aside")
    lane.set_phase(3, Phase.WAITING)
    assert told()[1] == "waiting"
    for place in range(4):
        lane.set_phase(place, Phase.IDLE)
    assert told() == ([], "idle")


@pytest.mark.parametrize("content", [None, b"", b"x" * 500])
def test_a_page_that_is_missing_or_no_page_tells_that_nothing_was_started(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "page"
    if content is not None:
        path.write_bytes(content)
    account, view = read_account(str(path), 1, "i1", "exited with status 1")
    assert account.started == [] and view is None


def test_kills_for_memory_are_read_of_the_own_group_first(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    own.write_text("0::/system.slice/pool.service\n")
    files = _memory_events(tmp_path, own)
    assert files[0] == tmp_path / "system.slice" / "pool.service" / "memory.events"
    assert files[1] == tmp_path / "memory.events"
    assert _memory_events(tmp_path, tmp_path / "nothing")[0] == tmp_path / "memory.events"
