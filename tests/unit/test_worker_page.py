"""The shared page: what a writer stores and what a reader makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from awa_pool.errors import AwaError
from awa_pool.page.layout import PLACE, Phase
from awa_pool.page.reading import PageReader, PieceMarks, read_page
from awa_pool.page.writing import LanePage, Page


def page_at(tmp_path: Path, capacity: int = 3, journal: int = 8) -> Page:
    return Page.create(str(tmp_path / "page"), capacity, ["a", "ü" * 200], journal)


def store(
    lane: LanePage,
    place: int,
    index: int,
    kind: int = 0,
    version: int = 1,
    last: int | None = None,
    deadline_s: float = 0.0,
) -> None:
    lane.use_place(place)
    PLACE.pack_into(
        lane.buffer, lane.place_offset(place), version, 5, -6, index, 7, 8, kind, int(Phase.HANDLER), 1.5,
        deadline_s, version if last is None else last,
    )  # fmt: skip


def test_a_fresh_page_shows_nothing(tmp_path: Path) -> None:
    page = page_at(tmp_path)
    view = read_page(page.path)
    assert view is not None
    assert (view.pid, view.jobs_done, view.running, view.started()) == (os.getpid(), 0, [], [])
    page.close()


def test_no_page_is_none_and_another_file_is_refused(tmp_path: Path) -> None:
    assert read_page(str(tmp_path / "page")) is None
    (tmp_path / "page").write_bytes(b"x" * 200)
    with pytest.raises(AwaError, match="not a worker's page"):
        read_page(str(tmp_path / "page"))


def test_masks_and_places_of_both_lanes_are_told_apart(tmp_path: Path) -> None:
    page = page_at(tmp_path)
    for lane, receipt_id in ((page.sync, 11), (page.async_, 12)):
        row = lane.open_piece(3, receipt_id, -(1 << 63))
        lane.words[lane.started_word(row)] = (1 << 63) - 1
        lane.words[lane.completed_word(row)] = 1 << 62
        lane.set_jobs_done(receipt_id)
    store(page.sync, 0, 4, kind=1)
    store(page.async_, 2, 62, kind=-1)
    view = read_page(page.path)
    assert view is not None and view.jobs_done == 23
    assert view.lanes["sync"].journal == [PieceMarks(3, 11, -(1 << 63), (1 << 63) - 1, 1 << 62)]
    assert view.started() == [[11, (1 << 63) - 1, 1 << 62], [12, (1 << 63) - 1, 1 << 62]]
    assert [(running.index, running.kind) for running in view.running] == [(4, "ü" * 200), (62, "")]
    assert (view.running[0].job_id, view.running[0].run_lease, view.running[0].started_s) == (7, 8, 1.5)
    page.sync.set_phase(0, Phase.IDLE)
    reader = PageReader(page.path)
    assert reader.running("sync") == [] and len(reader.running("async")) == 1
    reader.close()
    page.close()


def test_pieces_of_one_receipt_are_told_as_one(tmp_path: Path) -> None:
    page = page_at(tmp_path)
    for mask in (0b01, 0b10):
        row = page.sync.open_piece(3, 11, 1)
        page.sync.words[page.sync.started_word(row)] = mask
    view = read_page(page.path)
    assert view is not None and view.started() == [[11, 0b11, 0]]
    page.close()


def test_a_row_is_taken_again_only_after_its_release(tmp_path: Path) -> None:
    page = page_at(tmp_path, journal=8)
    rows = [page.sync.open_piece(3, receipt_id, 1) for receipt_id in range(1, 9)]
    assert page.sync.full and len(set(rows)) == 8
    page.sync.release_piece(rows[4])
    assert not page.sync.full
    view = read_page(page.path)
    assert view is not None and [marks[0] for marks in view.started()] == [1, 2, 3, 4, 6, 7, 8]
    assert page.sync.open_piece(3, 99, 1) == rows[4]
    page.close()


def test_an_entry_whose_writer_died_within_it_is_not_shown(tmp_path: Path) -> None:
    page = page_at(tmp_path)
    store(page.sync, 0, 4, version=7, last=6)
    view = read_page(page.path)
    assert view is not None and view.running == []
    page.close()


def test_a_reader_of_an_earlier_incarnation_keeps_its_page(tmp_path: Path) -> None:
    first = page_at(tmp_path)
    first.sync.set_jobs_done(5)
    reader = PageReader(first.path)
    second = page_at(tmp_path)
    assert reader.view().jobs_done == 5
    view = read_page(second.path)
    assert view is not None and view.jobs_done == 0
    assert os.listdir(tmp_path) == ["page"]
    reader.close()
    first.close()
    second.close()
