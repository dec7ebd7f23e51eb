"""Unique jobs through the doors of client and SQL: one job a key, an answer to all, and keys that follow their jobs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from general_rig import Attempt, Queue

from awa_pool import (
    AsyncClient,
    Client,
    JobNotFound,
    State,
    TransitionRefused,
    UniqueConflict,
    ValidationError,
)
from awa_pool.store import unique as key_calls

LIVE = 0b10111  # scheduled, available, running, retryable
WAITING = 0b00011  # scheduled, available: free again once the job runs
KEY = bytes(range(16))


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    with Queue(dsn) as found:
        yield found


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        yield found


def put(queue: Queue, states: int = 0b11111, key: bytes = KEY, **named: Any) -> int:
    """Enqueue a job with this key; raises AW007."""
    words = "".join(f", p_{name} => %s" for name in named)
    return queue.one(
        f"select awa_pool.enqueue('k', '{{}}', %s, p_unique_key => %s, p_unique_states => %s{words})",
        queue.name, key, states, *named.values(),
    )  # fmt: skip


def holder(queue: Queue, key: bytes = KEY) -> int | None:
    rows = queue.rows("select job_id from awa_pool.unique_claims where unique_key = %s", key)
    return rows[0][0] if rows else None


def running(queue: Queue, states: int, key: bytes = KEY, **named: Any) -> Attempt:
    job_id = put(queue, states, key, **named)
    (attempt,) = (a for a in queue.claim() if a.job_id == job_id)
    return attempt


def complete(queue: Queue, *attempts: Attempt) -> list[tuple[int, int, int]]:
    """Complete on the batch road; (done, stale, busy) bits for each attempt."""
    rows = queue.rows(
        "select receipt_id, bit_or(done), bit_or(stale), bit_or(busy)"
        " from awa_pool.complete(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[]) group by 1",
        [a.slot for a in attempts], [a.receipt_id for a in attempts], [a.nonce for a in attempts],
        [1 << a.index for a in attempts],
    )  # fmt: skip
    bits = {row[0]: row[1:] for row in rows}
    return [tuple(mask >> a.index & 1 for mask in bits[a.receipt_id]) for a in attempts]


# --- putting in ---------------------------------------------------------------------------------------------


def test_a_second_job_with_the_key_is_refused_and_the_holder_named(client: Client) -> None:
    first = client.insert({"a": 1, "b": 2}, kind="k", unique_opts={})
    with pytest.raises(UniqueConflict, match=f"job {first} ") as refused:
        client.insert({"b": 2, "a": 1}, kind="k", unique_opts={})
    assert refused.value.job_id == first
    assert client.insert({"a": 1}, kind="k", unique_opts={}) != first
    assert client.insert({"a": 1, "b": 2}, kind="k") != first


def test_skip_answers_with_the_holder_and_is_counted_and_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    first = client.insert({}, kind="k", unique_opts={})
    with caplog.at_level(logging.DEBUG, "awa_pool.client"):
        assert client.insert({}, kind="k", unique_opts={}, on_conflict="skip") == first
    assert client.unique_skips == 1
    assert [(record.message, record.holder) for record in caplog.records] == [("unique.skipped", first)]


@pytest.mark.parametrize(
    ("options", "collides"),
    [
        ({}, True),
        ({"by_queue": True}, False),
        ({"by_args": False}, True),
        ({"by_period": 1}, True),
    ],
)
def test_the_parts_of_the_key_are_those_asked_for(
    client: Client, options: dict[str, Any], collides: bool
) -> None:
    first = client.insert({}, kind="k", queue="a", unique_opts=options)
    second = client.insert({}, kind="k", queue="b", unique_opts=options, on_conflict="skip")
    assert (first == second) == collides


def test_a_period_is_a_part_of_the_key(client: Client) -> None:
    ids = {client.insert({}, kind="k", unique_opts={"by_period": n}) for n in (1, 2)}
    assert len(ids) == 2
    assert client.insert({}, kind="k", unique_opts={"by_period": 2}, on_conflict="skip") in ids


def test_a_task_says_what_is_unique_of_its_jobs(client: Client) -> None:
    client.task(dict, kind="k", unique_opts={})(handler)
    first = client.insert({}, kind="k")
    assert client.insert({}, kind="k", on_conflict="skip") == first
    assert client.insert({}, kind="k", unique_opts=False) != first


def handler(job: object) -> None:
    """Nothing to do."""


def test_bulk_calls_name_the_item_and_put_nothing_in(client: Client) -> None:
    held = client.insert({"n": 1}, kind="k", unique_opts={})
    plain = [({}, {"kind": "p"})] * 501
    for call in (client.insert_many, client.insert_many_copy):
        with pytest.raises(UniqueConflict) as refused:
            call([*plain, ({"n": 1}, {"kind": "k", "unique_opts": {}})])
        assert (refused.value.path, refused.value.job_id) == ("jobs[501]", held)
        assert [job.id for job in client.list_jobs()] == [held]


def test_twins_within_one_call_follow_the_same_rule(client: Client) -> None:
    twins = [({"n": n % 2}, {"kind": "k", "unique_opts": {}}) for n in range(4)]
    with pytest.raises(UniqueConflict, match=r"jobs\[2\].* jobs\[0\]") as refused:
        client.insert_many(twins)
    assert (refused.value.path, refused.value.job_id) == ("jobs[2]", None)
    a, b, *rest = client.insert_many(twins, on_conflict="skip")
    assert rest == [a, b]
    assert client.insert_many_copy([*twins, ({}, {"kind": "p"})], on_conflict="skip") == 1
    assert client.unique_skips == 6


def test_ids_of_a_mixed_bulk_call_come_in_order_of_its_items(client: Client) -> None:
    items = [({"n": n}, {"kind": "k", "unique_opts": {} if n % 3 else None}) for n in range(1200)]
    ids = client.insert_many(items)
    assert ids == sorted(ids)
    assert [client.get_job(ids[n]).args for n in (0, 1, 777, 1199)] == [{"n": n} for n in (0, 1, 777, 1199)]


def test_a_conflict_in_the_callers_transaction_leaves_nothing_of_the_call(client: Client, dsn: str) -> None:
    held = client.insert({"n": 1}, kind="k", unique_opts={})
    with psycopg.connect(dsn) as conn:
        with pytest.raises(UniqueConflict), conn.transaction():
            client.insert_many([({"n": n}, {"kind": "k", "unique_opts": {}}) for n in (0, 1)], conn=conn)
        kept = client.insert({"n": 2}, kind="k", unique_opts={}, conn=conn)
        assert client.insert({"n": 1}, kind="k", unique_opts={}, conn=conn, on_conflict="skip") == held
    assert {job.id for job in client.list_jobs()} == {held, kept}


def test_a_rolled_back_job_frees_its_key(client: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        gone = client.insert({}, kind="k", unique_opts={}, conn=conn)
        conn.rollback()
    assert client.insert({}, kind="k", unique_opts={}) != gone


def test_the_asynchronous_door_is_the_same(dsn: str) -> None:
    async def use() -> None:
        async with AsyncClient(dsn) as client:
            first = await client.insert({}, kind="k", unique_opts={})
            assert await client.insert({}, kind="k", unique_opts={}, on_conflict="skip") == first
            pair = ({}, {"kind": "k", "unique_opts": {}})
            with pytest.raises(UniqueConflict) as refused:
                await client.insert_many([pair])
            assert (refused.value.path, refused.value.job_id) == ("jobs[0]", first)
            assert await client.insert_many_copy([pair], on_conflict="skip") == 0
            assert await client.cancel_by_unique_key("k", args={}) == first

    asyncio.run(use())


def test_a_due_time_and_a_key_go_together(client: Client, queue: Queue) -> None:
    from datetime import UTC, datetime

    soon = datetime(2999, 1, 1, tzinfo=UTC)
    first = client.insert({}, kind="k", run_at=soon, unique_opts={})
    assert client.insert({}, kind="k", unique_opts={}, on_conflict="skip") == first
    only_ready = {"states": 0b10}
    ids = client.insert_many(
        [({"n": 1}, {"kind": "k", "run_at": soon, "unique_opts": only_ready})] * 2
        + [({"n": 1}, {"kind": "k", "unique_opts": only_ready})]
    )
    assert len(set(ids)) == 3  # scheduled is not in the mask


# --- other languages ----------------------------------------------------------------------------------------


def test_other_languages_give_key_and_mask(queue: Queue) -> None:
    first = put(queue)
    with pytest.raises(psycopg.Error) as refused:
        put(queue)
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW007", str(first))
    assert put(queue, on_conflict="skip") == first
    item = {"kind": "k", "args": {}, "unique_key": KEY.hex().upper()}
    with pytest.raises(psycopg.Error, match=r"^jobs\[1\]: ") as refused:
        queue.enqueue_many([{"kind": "k", "args": {}}, item])
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW007", str(first))
    skipping = "select awa_pool.enqueue_many(%s::json, p_on_conflict => 'skip')"
    assert queue.one(skipping, json.dumps([item])) == [first]
    hidden = json.dumps([item]).replace("unique_key", "\\u0075nique_key")
    assert queue.one(skipping, hidden) == [first]


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"unique_key": "00"}, "unique_key"),
        ({"unique_key": 5}, "unique_key"),
        ({"unique_key": "zz" * 16}, "unique_key"),
        ({"unique_key": "00" * 16, "unique_states": 0}, "unique_states"),
        ({"unique_key": "00" * 16, "unique_states": 4}, "unique_states"),
        ({"unique_key": "00" * 16, "unique_states": 1.5}, "unique_states"),
        ({"unique_states": 3}, "unique_key"),
    ],
)
def test_a_bad_key_of_another_language_is_refused_by_name(
    queue: Queue, item: dict[str, Any], field: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        queue.enqueue_many([{"kind": "k", "args": {}}, {"kind": "k", "args": {}, **item}])
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW001", f"jobs[1].{field}")
    assert queue.one("select count(*) from awa_pool.jobs_ready") == 0


def test_a_bad_key_or_policy_of_a_single_job_is_refused_by_name(queue: Queue) -> None:
    for named, field in (
        ({"key": b"short"}, "unique_key"),
        ({"states": 0}, "unique_states"),
        ({"states": 4}, "unique_states"),
        ({"key": None}, "unique_key"),
        ({"on_conflict": "ignore"}, "on_conflict"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            put(queue, **named)
        assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("AW001", field)


def test_the_client_and_its_own_key_meet_over_sql(client: Client, queue: Queue) -> None:
    """A job put in by SQL with the documented key is the client's twin."""
    from awa_pool.unique import key_of

    first = put(queue, key=key_of("k", None, b'{"to":"a"}', None))
    assert client.insert({"to": "a"}, kind="k", unique_opts={}, on_conflict="skip") == first


# --- keys follow their jobs ---------------------------------------------------------------------------------


def test_by_default_a_completed_job_keeps_its_key_and_a_failed_one_gives_it_up(queue: Queue) -> None:
    attempt = running(queue, 0b11111)
    assert complete(queue, attempt) == [(1, 0, 0)]
    assert holder(queue) == attempt.job_id
    other = bytes(16)
    failed = running(queue, 0b11111, other)
    queue.finish(failed.ended("fail"))
    assert holder(queue, other) is None


@pytest.mark.parametrize("moved", [False, True], ids=["in the ring", "moved out of it"])
@pytest.mark.parametrize("road", ["complete", "finish"])
def test_a_key_of_live_states_goes_with_the_completion(queue: Queue, road: str, moved: bool) -> None:
    attempt = running(queue, LIVE)
    plain = queue.claimed()
    if moved:
        queue.move(attempt)
    if road == "complete":
        assert complete(queue, attempt, plain) == [(1, 0, 0), (1, 0, 0)]
        assert complete(queue, attempt, plain) == [(0, 1, 0), (0, 1, 0)]
    else:
        assert queue.finish(attempt.ended("completed")) == [("done", "completed")]
    assert queue.state(attempt.job_id) == "completed"
    assert holder(queue) is None


def test_a_receipt_with_and_without_keys_completes_in_one_call(queue: Queue) -> None:
    put(queue, LIVE)
    queue.fill(3)
    put(queue, 0b11111, bytes(16))
    attempts = queue.claim()
    assert len({a.receipt_id for a in attempts}) == 1
    assert complete(queue, *attempts, *attempts) == [(1, 0, 0)] * 10
    assert holder(queue) is None
    assert holder(queue, bytes(16)) == attempts[-1].job_id


def test_a_key_of_waiting_states_goes_with_the_claim_and_comes_back_with_a_retry(queue: Queue) -> None:
    attempt = running(queue, WAITING | 0b10000)
    assert holder(queue) is None
    assert queue.finish(attempt.ended("retry", delay_s=0.0)) == [("done", "retryable")]
    assert holder(queue) == attempt.job_id


@pytest.mark.parametrize("outcome", ["retry", "return", "snooze", "lost"])
@pytest.mark.parametrize("moved", [False, True], ids=["in the ring", "moved out of it"])
def test_a_job_whose_key_another_took_meanwhile_is_cancelled_as_its_duplicate(
    queue: Queue, outcome: str, moved: bool
) -> None:
    attempt = running(queue, WAITING | 0b10000)
    newer = put(queue)
    plain = running(queue, 0b11111, bytes(16))
    if moved:
        queue.move(attempt)
    answers = queue.finish(attempt.ended(outcome, delay_s=9.0), plain.ended(outcome, delay_s=9.0))
    assert answers[0] == ("done", "cancelled")
    assert answers[1][0] == "done" and answers[1][1] != "cancelled"
    assert queue.job(attempt.job_id)["reason"] == f"duplicate of job {newer}"
    assert holder(queue) == newer


def test_a_job_that_ends_keeps_its_end_whoever_holds_its_key(queue: Queue) -> None:
    attempt = running(queue, 0b1010)  # available and completed
    newer = put(queue)
    assert complete(queue, attempt) == [(1, 0, 0)]
    assert queue.state(attempt.job_id) == "completed"
    assert holder(queue) == newer
    free = running(queue, 0b1010, bytes(16))
    assert holder(queue, bytes(16)) is None
    assert complete(queue, free) == [(1, 0, 0)]
    assert holder(queue, bytes(16)) == free.job_id


def test_a_stale_result_changes_no_key(queue: Queue) -> None:
    attempt = running(queue, LIVE)
    queue.finish(attempt.ended("return"))
    assert queue.finish(attempt.ended("fail")) == [("stale", None)]
    assert complete(queue, attempt) == [(0, 1, 0)]
    assert holder(queue) == attempt.job_id
    once = running(queue, WAITING, bytes(16))
    queue.finish(once.ended("completed"))
    assert queue.finish(once.ended("return")) == [("stale", None)]
    assert holder(queue, bytes(16)) is None


def test_cancel_frees_the_key_wherever_the_job_is(queue: Queue) -> None:
    for n, prepare in enumerate((lambda job: None, lambda job: queue.claim(), later(queue))):
        job_id = put(queue)
        prepare(job_id)
        assert holder(queue) == job_id, n
        queue.one("select awa_pool.cancel(%s)", job_id)
        assert holder(queue) is None, n


def later(queue: Queue) -> Any:
    def retried(job_id: int) -> None:
        (attempt,) = queue.claim()
        queue.finish(attempt.ended("retry", delay_s=99.0))

    return retried


def test_cancel_by_key_finds_live_holders_only(client: Client, queue: Queue) -> None:
    options = {"by_queue": True, "by_period": 7}
    job_id = client.insert({"n": 1}, kind="k", queue="q", unique_opts=options)
    assert client.cancel_by_unique_key("k", args={"n": 1}) is None
    assert client.cancel_by_unique_key("k", queue="q", args={"n": 1}, by_period=7) == job_id
    assert client.get_job(job_id).state == State.CANCELLED
    assert client.cancel_by_unique_key("k", queue="q", args={"n": 1}, by_period=7) is None
    client.insert({}, kind="k", unique_opts={"by_args": False})
    (attempt,) = queue.claim()
    complete(queue, attempt)
    assert client.cancel_by_unique_key("k") is None  # its holder has ended
    with pytest.raises(ValidationError):
        client.cancel_by_unique_key("k", by_period="x")


def test_admin_retry_is_refused_while_another_job_holds_the_key(client: Client, queue: Queue) -> None:
    """B164: refused with a message that names the twin, and nothing is changed."""
    attempt = running(queue, 0b11111)
    queue.finish(attempt.ended("fail"))
    newer = put(queue)
    with pytest.raises(UniqueConflict, match=f"job {newer} ") as refused:
        client.retry(attempt.job_id)
    assert refused.value.job_id == newer
    assert queue.state(attempt.job_id) == "failed"
    client.cancel(newer)
    with pytest.raises(TransitionRefused):
        client.cancel(newer)
    assert client.retry(attempt.job_id) == State.AVAILABLE
    assert holder(queue) == attempt.job_id
    with pytest.raises(UniqueConflict):
        client.retry(newer)


def test_rescued_jobs_keep_their_keys_and_duplicates_do_not_stop_the_rescue(queue: Queue) -> None:
    queue.rows("select awa_pool.register_runtime(%s, 'h', 1, '{}')", queue.runtime)
    kept = running(queue, 0b11111)
    loser = running(queue, WAITING | 0b10000, bytes(16))
    plain = queue.claimed()
    newer = put(queue, key=bytes(16))
    queue.rows("select awa_pool.say_goodbye(%s)", queue.runtime)
    rescued = queue.rows("select attempts, failed, cancelled from awa_pool.rescue_stale(3600, 100)")
    assert rescued == [(3, 0, 1)]
    assert [queue.state(a.job_id) for a in (kept, loser, plain)] == ["retryable", "cancelled", "retryable"]
    assert holder(queue) == kept.job_id
    assert holder(queue, bytes(16)) == newer


def test_one_conflict_does_not_stop_the_promotion_of_the_others(queue: Queue) -> None:
    """B133: a retrying job whose twin is ready now is set aside; a hundred due jobs beside it become available."""
    attempt = running(queue, 0b00010)
    queue.finish(attempt.ended("retry", delay_s=0.0))
    newer = put(queue)
    for _ in range(100):
        queue.enqueue(run_at="2999-01-01")
    queue.make_due()
    assert queue.promote()[0] == 100
    assert queue.state(attempt.job_id) == "cancelled"
    assert queue.job(attempt.job_id)["reason"] == f"duplicate of job {newer}"
    assert holder(queue) == newer
    assert queue.one("select count(*) from awa_pool.jobs_deferred") == 0


def test_promotion_gives_and_takes_keys_by_the_mask(queue: Queue) -> None:
    scheduled = put(queue, 0b1, run_at="2999-01-01Z")
    assert holder(queue) == scheduled
    ready = put(queue, 0b10, bytes(16), run_at="2999-01-01Z")
    assert holder(queue, bytes(16)) is None
    queue.make_due()
    assert queue.promote()[0] == 2
    assert holder(queue) is None
    assert holder(queue, bytes(16)) == ready


def test_neglected_jobs_moved_by_maintenance_keep_their_keys(queue: Queue) -> None:
    job_id = put(queue, WAITING)
    slot = queue.one("select slot from awa_pool.slots where state = 'current'")
    queue.one("select awa_pool.rotate(0, null)")
    queue.one("select awa_pool.unload_slot(%s, 100)", slot)
    assert queue.one("select count(*) from awa_pool.jobs_returned") == 1
    assert holder(queue) == job_id
    (attempt,) = queue.claim()
    assert holder(queue) is None
    assert queue.finish(attempt.ended("return")) == [("done", "available")]
    assert holder(queue) == job_id


def test_a_jobs_key_can_be_looked_at(client: Client, queue: Queue) -> None:
    first = client.insert({}, kind="k", unique_opts={})
    attempt = next(a for a in queue.claim() if a.job_id == first)
    queue.finish(attempt.ended("fail"))
    newer = client.insert({}, kind="k", unique_opts={})
    plain = client.insert({}, kind="p")
    with client._store(None) as store:
        seen = [store.run(key_calls.key_state(job_id)) for job_id in (first, newer, plain)]
    assert [(s.states, s.holder) for s in seen[:2]] == [(31, newer), (31, newer)]
    assert seen[0].unique_key == seen[1].unique_key and len(seen[0].unique_key) == 32
    assert seen[2] is None
    with pytest.raises(JobNotFound):
        client.cancel(10**9)
