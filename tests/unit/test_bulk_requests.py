"""Bulk calls pass the same gate, name the item, and write JSON and COPY rows that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
import pytest

from awa_pool.errors import PayloadTooLarge, ValidationError
from awa_pool.registry import Registry
from awa_pool.requests import CHUNK_JOBS, InsertRequest, chunks_of, options_of

DUE = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass
class Resize:
    n: object
    name: str = "x"


@dataclass
class Shared:
    n: int


def handle(job):
    return None


def registry() -> Registry:
    made = Registry()
    made.add(Resize, handle, queue="pictures", max_attempts=3, priority=1)
    made.add(Shared, handle, kind="one")
    made.add(Shared, handle, kind="two", queue="second")
    return made


def items_of(*items):
    return [item for chunk in chunks_of(registry(), items) for item in orjson.loads(chunk.json())]


def test_defaults_come_from_the_task_and_what_is_given_wins():
    made = options_of(registry(), InsertRequest(args=Resize(1)))
    assert made[:4] == ("resize", "pictures", 1, 3)
    made = options_of(
        registry(), InsertRequest(args={}, kind="resize", queue="q", priority=4, max_attempts=9)
    )
    assert made[:4] == ("resize", "q", 4, 9)
    assert options_of(registry(), InsertRequest(args={}, kind="unknown"))[:4] == ("unknown", "default", 2, 25)


def test_a_kind_must_be_known_or_given():
    with pytest.raises(ValidationError, match="kind: .*plain dict"):
        options_of(registry(), InsertRequest(args={}))
    with pytest.raises(ValidationError, match="kind: Shared belongs to one, two"):
        options_of(registry(), InsertRequest(args=Shared(1)))
    assert options_of(registry(), InsertRequest(args=Shared(1), kind="two")).queue == "second"


def test_three_ways_to_write_an_item_mean_the_same():
    plain, pair, request = items_of(Resize(1), (Resize(1), {}), InsertRequest(args=Resize(1)))
    assert plain == pair == request
    assert plain == {
        "kind": "resize", "args": {"n": 1, "name": "x"}, "queue": "pictures", "priority": 1, "max_attempts": 3,
    }  # fmt: skip


def test_every_option_is_in_the_document():
    options = {
        "kind": "k",
        "queue": 'a"b',
        "tags": ["t", 'u"'],
        "metadata": {"m": [1]},
        "run_at": DUE,
        "ordering_key": "o",
    }
    (item,) = items_of(({}, options))
    assert item == {
        "kind": "k", "args": {}, "queue": 'a"b', "tags": ["t", 'u"'], "metadata": {"m": [1]},
        "run_at": "2030-01-01T00:00:00+00:00", "ordering_key": "o",
    }  # fmt: skip


def test_options_of_one_item_do_not_reach_the_next():
    first, second, third = items_of(
        ({}, {"kind": "k", "priority": 1}), ({}, {"kind": "k", "tags": ["t"]}), ({}, {"kind": "k"})
    )
    assert first == {"kind": "k", "args": {}, "priority": 1}
    assert second == {"kind": "k", "args": {}, "tags": ["t"]}
    assert third == {"kind": "k", "args": {}}


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (Resize(2**64), "args.n"),
        (Resize(float("nan")), "args.n"),
        (Resize([{"a": "\0"}]), "args.n[0].a"),
        (Resize(object()), "args.n"),
        (({}, {"kind": "k", "priority": 9}), "priority"),
        (({}, {"kind": ["k"]}), "kind"),
        (({}, {"prio": 1}), "prio"),
        (({},), ""),
        ({}, "kind"),
        ("text", "args"),
    ],
)
@pytest.mark.parametrize("index", [0, 500, CHUNK_JOBS + 7])
def test_a_flaw_names_its_item(item, path, index):
    """B061."""
    items = [Resize(i) for i in range(CHUNK_JOBS + 10)]
    items[index] = item
    with pytest.raises(ValidationError) as caught:
        items_of(*items)
    assert caught.value.path == f"jobs[{index}]" + (f".{path}" if path else "")
    assert str(caught.value).startswith(caught.value.path + ": ")


def test_a_flaw_keeps_its_class():
    with pytest.raises(PayloadTooLarge, match=r"jobs\[1\]\.args: "):
        items_of(Resize(1), Resize("x" * (8 * 1024 * 1024)))


def test_copy_rows_are_escaped():
    odd = 'a\\b\t"\n\r'
    options = {"kind": odd, "queue": odd, "tags": [odd, "{,}"], "metadata": {"m": odd}, "ordering_key": odd}
    (chunk,) = chunks_of(registry(), [({"x": odd}, options), Resize(1)])
    rows = chunk.copy_rows()
    assert not rows.plain
    first, second = rows.text.decode().splitlines() if b"\r" not in rows.text else ("", "")
    assert first.split("\t")[0] == 'a\\\\b\\t"\\n\\r'
    assert first.split("\t")[1] == '{"x":"a\\\\\\\\b\\\\t\\\\"\\\\n\\\\r"}'
    assert len(first.split("\t")) == len(second.split("\t")) == 9
    assert second == 'resize\t{"n":1,"name":"x"}\tpictures\t1\t3\t\\N\t\\N\t\\N\t\\N'


def test_jobs_without_rare_options_leave_their_columns_out_of_copy():
    (chunk,) = chunks_of(registry(), [Resize(1), ({"x": 2}, {"kind": "k", "queue": "q", "tags": []})])
    assert chunk.copy_rows() == (b'resize\t{"n":1,"name":"x"}\tpictures\t1\t3\nk\t{"x":2}\tq\t2\t25\n', True)


def test_jobs_with_a_due_time_are_parted_from_the_rest():
    items = [Resize(1), (Resize(2), {"run_at": DUE}), Resize(3)]
    (chunk,) = chunks_of(registry(), items)
    assert chunk.has_documents()
    now, later = chunk.split()
    assert [item["args"]["n"] for item in orjson.loads(now.json())] == [1, 3]
    assert [item["args"]["n"] for item in orjson.loads(later.json())] == [2]
    assert chunk.queues() == {"pictures"}


def test_chunks_cover_the_call_in_order():
    chunks = list(chunks_of(registry(), [Resize(i) for i in range(CHUNK_JOBS * 2 + 1)]))
    assert [(chunk.first, len(chunk)) for chunk in chunks] == [
        (0, CHUNK_JOBS),
        (CHUNK_JOBS, CHUNK_JOBS),
        (2 * CHUNK_JOBS, 1),
    ]
    assert list(chunks_of(registry(), [])) == []


def test_a_request_is_not_taken_for_args() -> None:
    with pytest.raises(ValidationError, match=r"args: an InsertRequest is no args: give it to insert_many"):
        InsertRequest(args=InsertRequest(args={}, kind="k"))
