"""Deadlines as the database keeps and hands them out: of a job, by every way in, and of its queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from general_rig import Queue

from awa_pool import Client, InsertRequest, ValidationError


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


def claimed(queue: Queue, limit: int = 100) -> list[list[Any]]:
    rows = queue.rows(
        "select bodies from awa_pool.claim(%s, %s, %s, 1 << 26, 63, %s, 1, false) where note = 'receipt'",
        [queue.name], [limit], limit, queue.runtime,
    )  # fmt: skip
    return [json.loads(body) for (bodies,) in rows for body in bodies]


@pytest.mark.parametrize("deadline_s", [0, -1, 0.0099, 31_536_000.5, float("nan"), float("inf")])
def test_a_deadline_out_of_bounds_is_refused_by_sql_whichever_way_it_comes(
    queue: Queue, deadline_s: float
) -> None:
    for run_at in ("null", "'2099-01-01Z'"):
        put = f"select awa_pool.enqueue('k', '{{}}', p_run_at => {run_at}, p_deadline_s => %s)"
        with pytest.raises(psycopg.Error, match="deadline_s: must be 0.01 to 31536000 seconds") as refused:
            queue.rows(put, deadline_s)
        assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW001", "deadline_s")
    with pytest.raises(psycopg.errors.CheckViolation):
        queue.rows(
            "insert into awa_pool.jobs_ready (kind, args, deadline_s) values ('k', '{}', %s)", deadline_s
        )


@pytest.mark.parametrize(
    "written", ["0", "-1", '"soon"', "true", "[]", "1e300", "1e-300", "1e999", "31536001"]
)
@pytest.mark.parametrize("more", ["", ', "run_at": "2099-01-01T00:00:00Z"'])
def test_a_bulk_item_with_a_deadline_that_is_none_is_named(queue: Queue, written: str, more: str) -> None:
    sound = '{"kind": "k", "args": {}, "deadline_s": 2.5}'
    document = f'[{sound}, {{"kind": "k", "args": {{}}, "deadline_s": {written}{more}}}]'
    with pytest.raises(psycopg.Error) as refused:
        queue.rows("select awa_pool.enqueue_many(%s::json)", document)
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW001", "jobs[1].deadline_s")


@pytest.mark.parametrize(
    "deadline", [0, -1, 0.001, float("nan"), float("inf"), 10**400, "30", True, timedelta(days=366)]
)
def test_the_gate_refuses_a_deadline_before_any_sql(deadline: Any) -> None:
    client = Client("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(ValidationError, match="^deadline: expected"):
        client.insert({}, kind="k", deadline=deadline)
    for many in (client.insert_many, client.insert_many_copy):
        with pytest.raises(ValidationError, match=r"^jobs\[1\]\.deadline: expected"):
            many([({}, {"kind": "k"}), InsertRequest(args={}, kind="k", deadline=deadline)])


def test_every_way_in_stores_the_same_deadline_and_a_claim_hands_it_out(dsn: str, queue: Queue) -> None:
    with Client(dsn) as client:
        client.insert({}, kind="k", deadline=timedelta(seconds=2.5))
        client.insert_many([({}, {"kind": "k", "deadline": 2.5, "tags": ["t"]}), ({}, {"kind": "k"})])
        client.insert_many_copy(
            [InsertRequest(args={}, kind="k", deadline=2.5), InsertRequest(args={}, kind="k")]
        )
        past = datetime.now(UTC) - timedelta(seconds=1)
        client.insert_many([InsertRequest(args={}, kind="k", deadline=2.5, run_at=past)])
    given = [(body[6] or {}).get("deadline_s") for body in sorted(claimed(queue))]
    assert given == [2.5, 2.5, None, 2.5, None, 2.5]


def test_a_deadline_stays_with_its_job_over_waiting_returning_and_retrying(dsn: str, queue: Queue) -> None:
    def shown(*states: str) -> None:
        row = client.get_job(waiting)
        assert row is not None and row.state in states and row.deadline_s == 7
        assert client.list_jobs(state=row.state) == [row]
        assert queue.rows("select deadline_s from awa_pool.jobs where id = %s", waiting) == [(7,)]

    with Client(dsn) as client:
        later = datetime.now(UTC) + timedelta(hours=1)
        waiting = client.insert({}, kind="k", deadline=7, run_at=later)
        shown("scheduled")
        client.retry(waiting)
        for outcome in ("return", "retry", "lost"):
            shown("available")
            (attempt,) = queue.claim()
            shown("running")
            queue.finish(attempt.ended(outcome, delay_s=0))
            shown("available", "retryable")
            queue.make_due()
            queue.promote()
        ((body,),) = [claimed(queue)]
        assert body[6]["deadline_s"] == 7
        queue.rows("select awa_pool.move_open_attempts(10, 0)")
        shown("running")


def test_a_job_without_a_deadline_of_its_own_shows_none_in_history_too(dsn: str, queue: Queue) -> None:
    with Client(dsn) as client:
        client.set_queue("default", deadline=30)
        plain, own = client.insert_many([({}, {"kind": "k"}), ({}, {"kind": "k", "deadline": 7})])
        for outcome in ("completed", "fail"):
            for attempt in queue.claim(1):
                queue.finish(attempt.ended(outcome))
        rows = {row.id: (row.state, row.deadline_s) for row in client.list_jobs()}
        assert rows == {plain: ("completed", None), own: ("failed", 7)}


def test_a_queues_deadline_is_handed_out_beside_the_jobs_own(dsn: str, queue: Queue) -> None:
    with Client(dsn) as client:
        client.set_queue("default", deadline=30)
        ids = client.insert_many([
            ({}, {"kind": "plain"}), ({}, {"kind": "own", "deadline": 2.5}), ({"a": "],null]"}, {"kind": "odd"}),
            ({}, {"kind": "tagged", "tags": ['"}]']}),
        ])  # fmt: skip
        first = {body[0]: body[6] for body in claimed(queue, 2)}
        assert first == {
            ids[0]: {"queue_deadline_s": 30},
            ids[1]: {"deadline_s": 2.5, "queue_deadline_s": 30},
        }
        rest = {body[0]: body for body in claimed(queue)}
        assert rest[ids[2]][2] == {"a": "],null]"}
        assert rest[ids[2]][6] == {"queue_deadline_s": 30}
        assert rest[ids[3]][6] == {"tags": ['"}]'], "queue_deadline_s": 30}
        client.set_queue("default", deadline=None)
        client.insert({}, kind="plain")
        ((body,),) = [claimed(queue)]
        assert body[6] is None


def test_a_queues_deadline_holds_for_jobs_that_were_given_back(dsn: str, queue: Queue) -> None:
    queue.enqueue()
    (attempt,) = queue.claim()
    queue.finish(attempt.ended("return"))
    with Client(dsn) as client:
        client.set_queue("default", deadline=0.5)
    ((body,),) = [claimed(queue)]
    assert body[6] == {"queue_deadline_s": 0.5}
