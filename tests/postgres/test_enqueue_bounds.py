"""What the public SQL functions accept and refuse, alone and in bulk; other languages have no other gate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from general_rig import Queue

MIB = 1 << 20
ARGS_CAP = 8 * MIB
NUL, HALF = "\x00", "\ud800"

REFUSED: list[tuple[str, Any]] = [
    ("kind", ""), ("kind", None), ("kind", "k" * 201),
    ("queue", ""), ("queue", "q" * 201),
    ("priority", 0), ("priority", 5), ("priority", -1), ("priority", 2**31 - 1),
    ("max_attempts", 0), ("max_attempts", 1001), ("max_attempts", -5),
    ("args", None), ("args", []), ("args", "text"), ("args", 5),
    ("args", {"a": NUL}), ("args", {"a": [1, {"b": NUL}]}), ("args", {NUL: 1}), ("args", {"a": HALF}),
    ("args", {"a": "x" * (ARGS_CAP - 8)}),
    ("args", {"a": 2**63}), ("args", {'a"1': ["2", {"b": -(2**63) - 1}]}), ("metadata", {"a": 10**40}),  # B061
    ("metadata", []), ("metadata", "text"), ("metadata", {"awa:parent": 1}), ("metadata", {"x": NUL}),
    ("metadata", {"a": "x" * (64 * 1024)}),
    ("tags", ["t"] * 21), ("tags", [""]), ("tags", ["t" * 201]), ("tags", [None]),
    ("run_at", "infinity"), ("run_at", "-infinity"), ("run_at", "0001-01-01T00:00:00+00 BC"),
    ("run_at", "10000-01-01T00:00:00+00"),
    ("ordering_key", ""), ("ordering_key", "o" * 201),
]  # fmt: skip

ACCEPTED: list[tuple[str, Any]] = [
    ("kind", "k" * 200), ("kind", "Ж" * 200), ("kind", "a b/'\"%s{}"),
    ("queue", "q" * 200), ("queue", "ящик/ with 'quotes' %"),
    ("priority", 1), ("priority", 4), ("max_attempts", 1), ("max_attempts", 1000),
    ("args", {}), ("args", {"a": "\\u0000 spelt out"}), ("args", {"a": "\U0001f600"}),
    ("args", {"a": "x" * (ARGS_CAP - 9)}),
    ("args", {"a": 2**63 - 1, "b": -(2**63), '"2': "18446744073709551616\\"}), ("args", {"a": 0.12345678901234567e-7}),
    ("metadata", {"a": [2**63 - 1, "9" * 30]}),
    ("metadata", {}), ("metadata", None), ("metadata", {"awa": 1, "a": "awa:x"}),
    ("tags", []), ("tags", ["t" * 200] * 20), ("tags", None),
    ("run_at", "9999-12-31T23:59:59+00"), ("run_at", "0001-01-01T00:00:00+00"), ("run_at", None),
    ("ordering_key", "o" * 200),
]  # fmt: skip


def _name(case: tuple[str, Any]) -> str:
    return f"{case[0]}={json.dumps(case[1])[:24]}"


@pytest.fixture(scope="module")
def queue(pg_server: Any, _template: str) -> Iterator[Queue]:
    """One database for all cases of this module: they only add."""
    pg_server.execute("create database enqueue_bounds template awa_template")
    with Queue(pg_server.dsn("enqueue_bounds")) as found:
        yield found
    pg_server.execute("drop database enqueue_bounds with (force)")


def _count(q: Queue) -> int:
    return q.one(
        "select (select count(*) from awa_pool.jobs_ready) + (select count(*) from awa_pool.jobs_deferred)"
    )


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_a_single_request_out_of_bounds_is_refused_naming_the_field(
    queue: Queue, case: tuple[str, Any]
) -> None:
    field, value = case
    before = _count(queue)
    with pytest.raises(psycopg.Error) as refused:
        queue.enqueue(**{field: value})
    assert refused.value.sqlstate == "AW001"
    assert str(refused.value).startswith(f"{field}: ")
    assert refused.value.diag.message_detail == field
    assert _count(queue) == before


@pytest.mark.parametrize("case", REFUSED, ids=_name)
def test_a_bulk_with_one_item_out_of_bounds_is_refused_whole_naming_item_and_field(
    queue: Queue, case: tuple[str, Any]
) -> None:
    field, value = case
    before = _count(queue)
    sound = {"kind": "k", "args": {}}
    with pytest.raises(psycopg.Error) as refused:
        queue.enqueue_many([sound, sound, {**sound, field: value}, sound])
    assert refused.value.sqlstate == "AW001"
    assert refused.value.diag.message_detail == f"jobs[2].{field}"
    assert _count(queue) == before


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        (5, "jobs[1]: item"), (None, "jobs[1]: item"), ([], "jobs[1]: item"),
        ({"kind": "k"}, "jobs[1].args"), ({"args": {}}, "jobs[1].kind"),
        ({"kind": "k", "args": {}, "priority": "high"}, "jobs[1].priority"),
        ({"kind": "k", "args": {}, "priority": 2.5}, "jobs[1].priority"),
        ({"kind": "k", "args": {}, "max_attempts": 2**40}, "jobs[1].max_attempts"),
        ({"kind": "k", "args": {}, "tags": "t"}, "jobs[1].tags"),
        ({"kind": "k", "args": {}, "run_at": "2030-01-01T00:00:00"}, "jobs[1].run_at"),
        ({"kind": "k", "args": {}, "run_at": "2030-13-01T00:00:00Z"}, "jobs[1].run_at"),
        ({"kind": "k", "args": {}, "run_at": "tomorrow"}, "jobs[1].run_at"),
        ({"kind": "k", "args": {}, "deadline": 5}, "jobs[1].deadline"),
        ({"kind": "k", "args": {}, "Priority": None}, "jobs[1].Priority"),
        ({"kind": "k", "args": {}, "run_at": "2099-01-01T00:00:00Z", "tag": []}, "jobs[1].tag"),
    ],
)  # fmt: skip
def test_a_bulk_item_of_the_wrong_shape_is_refused(queue: Queue, item: Any, detail: str) -> None:
    before = _count(queue)
    with pytest.raises(psycopg.Error) as refused:
        queue.enqueue_many([{"kind": "k", "args": {}}, item])
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW001", detail)
    assert _count(queue) == before


@pytest.mark.parametrize("document", ["{}", "5", "null", '"text"'])
def test_a_bulk_document_that_is_no_array_is_refused(queue: Queue, document: str) -> None:
    with pytest.raises(psycopg.Error, match="jobs: must be an array") as refused:
        queue.rows("select awa_pool.enqueue_many(%s::json)", document)
    assert refused.value.sqlstate == "AW001"


@pytest.mark.parametrize("case", ACCEPTED, ids=_name)
@pytest.mark.parametrize("way", ["single", "bulk"])
def test_a_request_at_its_bounds_comes_out_as_it_went_in(
    queue: Queue, case: tuple[str, Any], way: str
) -> None:
    field, value = case
    if way == "single":
        job_id = queue.enqueue(**{field: value})
    else:
        (job_id,) = queue.enqueue_many([{"kind": "k", "args": {}, field: value}])
    job = queue.job(job_id) or {}
    if field != "run_at":
        assert job[field] == value
    elif value is not None and value.startswith("9999"):
        assert job["run_at"] == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    else:
        assert job["state"] == "available"


def test_a_past_due_time_means_now_and_a_coming_one_is_scheduled(queue: Queue) -> None:
    now = queue.one("select clock_timestamp()")
    past, coming = queue.enqueue_many(
        [{"kind": "k", "args": {}, "run_at": (now + timedelta(hours=h)).isoformat()} for h in (-1, 1)]
    )
    assert (queue.state(past), queue.state(coming)) == ("available", "scheduled")
    assert (queue.job(coming) or {})["run_at"] == now + timedelta(hours=1)


def test_a_hundred_thousand_jobs_go_in_by_one_call_with_ids_in_order(queue: Queue) -> None:
    """B101."""
    ids = queue.enqueue_many([{"kind": "k", "args": {"n": n}, "queue": "bulk"} for n in range(100_000)])
    assert ids == list(range(ids[0], ids[0] + 100_000))
    rows = queue.rows(
        "select job_id, args ->> 'n' from awa_pool.jobs_ready where queue = 'bulk' order by job_id limit 3"
    )
    assert rows == [(ids[n], str(n)) for n in range(3)]


def test_a_bulk_with_due_times_keeps_the_order_of_its_ids(queue: Queue) -> None:
    jobs = [
        {"kind": "k", "args": {}, **({"run_at": "2099-01-01T00:00:00Z"} if n % 3 else {})} for n in range(999)
    ]
    ids = queue.enqueue_many(jobs)
    assert ids == sorted(ids)
    assert [queue.state(i) for i in ids[:4]] == ["available", "scheduled", "scheduled", "available"]


def test_an_empty_bulk_gives_no_ids(queue: Queue) -> None:
    assert queue.enqueue_many([]) == []


def test_a_due_time_in_bulk_means_the_same_in_every_session_zone(queue: Queue) -> None:
    """B126; distilled 28."""
    for zone in ("UTC", "Asia/Tokyo"):
        queue.rows("select set_config('timezone', %s, false)", zone)
        (job_id,) = queue.enqueue_many([{"kind": "k", "args": {}, "run_at": "2099-06-01T12:00:00+02:00"}])
        assert (queue.job(job_id) or {})["run_at"] == datetime(2099, 6, 1, 10, tzinfo=UTC)
    queue.rows("reset timezone")


def test_waiting_dispatchers_hear_of_a_job_once_and_nobody_is_told_when_none_waits(queue: Queue) -> None:
    """B103, B129."""
    with psycopg.connect(queue.dsn, autocommit=True) as listener:
        listener.execute("listen awa_pool")
        queue.enqueue(queue="silent")
        queue.enqueue_many([{"kind": "k", "args": {}, "queue": "silent"}])
        queue.rows("insert into awa_pool.queue_waiters values ('heard', clock_timestamp() + interval '1 h')")
        queue.rows("insert into awa_pool.queue_waiters values ('lapsed', clock_timestamp() - interval '1 s')")
        queue.enqueue(queue="lapsed")
        queue.enqueue(queue="heard")
        queue.enqueue_many([{"kind": "k", "args": {}, "queue": "heard"}] * 50_000)
        queue.rows("select awa_pool.notify_waiters(array['silent', 'heard'])")
        queue.rows("select pg_notify('awa_pool', 'the end')")
        heard = [n.payload for n in listener.notifies(timeout=20, stop_after=4)]
    assert heard == ["", "", "", "the end"]


def test_an_enqueue_lives_and_dies_with_the_callers_transaction(queue: Queue) -> None:
    """B129."""
    before = _count(queue)
    with pytest.raises(RuntimeError), queue.conn.transaction():
        queue.enqueue()
        queue.enqueue_many([{"kind": "k", "args": {}}])
        raise RuntimeError
    assert _count(queue) == before


def test_the_args_come_out_digit_by_digit(queue: Queue) -> None:
    text = '{"a": 1e16, "b": -0.0, "c": 1234567890123456789, "e": 12345678901234567890.5, "d": 0.10, "a": "again"}'
    job_id = queue.one("select awa_pool.enqueue('k', %s::json)", text)
    assert queue.one("select args::text from awa_pool.job(%s)", job_id) == text
