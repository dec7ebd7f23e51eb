"""What an answer to a callback with rules comes to is decided by a client that holds its row, and stands or falls as one."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from callbacks_rig import answer, expire, make_overdue, park, register_all, told, wait
from general_rig import Attempt, Queue
from held_sessions import until

from awa_pool import (
    AsyncClient,
    CallbackNotFound,
    Client,
    ConfigError,
    FollowUpFailed,
    State,
    UniqueConflict,
    WaitForCallback,
)
from awa_pool import rules as gate
from awa_pool.hooks import Completed, Exhausted, JobEvent
from awa_pool.job import Job
from awa_pool.testing import work_one

RULES = {
    "filter": "payload.kind == 'final'", "on_complete": "payload.paid", "on_fail": "has(payload.error)",
    "transform": "{'sum': payload.sum}",
}  # fmt: skip
FINAL = {"kind": "final", "sum": 5, "paid": False}


@dataclass
class Pay:
    number: int


@dataclass
class Book:
    what: str


@pytest.fixture
def client(dsn: str) -> Iterator[Client]:
    with Client(dsn) as found:
        yield found


def registered(q: Queue, attempt: Attempt, rules: dict[str, str] | None = None) -> str:
    """Register a callback with rules -> its id."""
    ((status, callback, _),) = register_all(
        q, told(attempt, timeout_s=3600, rules=RULES if rules is None else rules)
    )
    assert status == "done"
    return str(callback)


def waiting(q: Queue, rules: dict[str, str] | None = None, **named: Any) -> tuple[Attempt, str]:
    attempt = q.claimed(**named)
    callback = registered(q, attempt, rules)
    assert wait(q, attempt, callback)[0] == "waiting"
    return attempt, callback


def parked(q: Queue, rules: dict[str, str] | None = None, **named: Any) -> tuple[Attempt, str]:
    attempt = q.claimed(**named)
    callback = registered(q, attempt, rules)
    assert park(q, attempt, callback) == ("done", "waiting_external")
    return attempt, callback


def early(q: Queue, rules: dict[str, str] | None = None, **named: Any) -> tuple[Attempt, str]:
    attempt = q.claimed(**named)
    return attempt, registered(q, attempt, rules)


MAKES = [waiting, parked, early]


def rules_in_row(q: Queue, job_id: int) -> Any:
    return q.one("select callback_rules from awa_pool.leases where job_id = %s", job_id)


@pytest.mark.parametrize("make", MAKES)
def test_each_way_of_resolving_comes_to_its_state(q: Queue, client: Client, make: Any) -> None:
    attempt, callback = make(q)
    before = q.state(attempt.job_id)
    draft = client.resolve_callback(callback, {**FINAL, "kind": "draft", "paid": True}, "complete")
    assert draft == ("ignored", attempt.job_id, 1, before, "filter", None)
    assert client.resolve_callback(callback, FINAL)[::4] == ("ignored", "default_action")
    assert q.state(attempt.job_id) == before and rules_in_row(q, attempt.job_id) == RULES
    done = client.resolve_callback(callback, {**FINAL, "paid": True})
    assert done == ("completed", attempt.job_id, 1, State.COMPLETED, "on_complete", {"sum": 5})
    row = client.get_job(attempt.job_id)
    assert row is not None and row.metadata["awa:callback"] == {"number": 1, "payload": {"sum": 5}}

    attempt, callback = make(q)
    failed = client.resolve_callback(callback, {**FINAL, "error": "no money"}, "complete")
    assert failed == ("failed", attempt.job_id, 1, State.FAILED, "on_fail", None)
    row = client.get_job(attempt.job_id)
    assert row is not None and row.reason == "callback_failed"
    assert row.errors[-1]["error"] == "the payload matched on_fail: has(payload.error)"
    with pytest.raises(CallbackNotFound):
        client.resolve_callback(callback, {**FINAL, "paid": True})

    attempt, callback = make(q)
    assert client.resolve_callback(callback, FINAL, "complete").payload == {"sum": 5}
    attempt, callback = make(q)
    assert client.resolve_callback(callback, FINAL, "fail")[::4] == ("failed", "default_action")
    row = client.get_job(attempt.job_id)
    assert row is not None and "by default" in row.errors[-1]["error"]


def test_resumed_the_job_goes_on_with_what_the_transform_made(q: Queue, client: Client) -> None:
    for make in (waiting, early):
        attempt, callback = make(q)
        resumed = client.resolve_callback(callback, FINAL, "resume")
        assert resumed == ("resumed", attempt.job_id, 1, State.RUNNING, "default_action", {"sum": 5})
        status, payload = wait(q, attempt, callback)
        assert (status, json.loads(payload)) == ("answered", {"sum": 5})
    attempt, callback = parked(q)
    assert client.resolve_callback(callback, FINAL, "resume").state is State.AVAILABLE
    again = q.claim()[0]
    assert again.job_id == attempt.job_id
    row = client.get_job(attempt.job_id)
    assert row is not None and row.metadata["awa:callback"]["payload"] == {"sum": 5}
    attempt, callback = waiting(q, {})
    assert client.resolve_callback(callback, [1], "resume").payload == [1]  # without rules


def test_what_cannot_be_evaluated_fails_open(
    q: Queue, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    attempt, callback = waiting(q, {**RULES, "filter": "payload.kind == 'final'"})
    done = client.resolve_callback(callback, 5, "complete")  # none of the four fits a number
    assert done == ("completed", attempt.job_id, 1, State.COMPLETED, "default_action", 5)
    texts = [record.getMessage() for record in caplog.records if record.name == "awa_pool.rules"]
    assert [text.split(": ")[1].split(" could")[0] for text in texts] == [
        "filter", "on_fail", "on_complete", "transform",
    ]  # fmt: skip
    assert all(callback[:8] in text and callback not in text for text in texts)


def test_a_newer_callback_brings_its_own_rules_or_none(q: Queue, client: Client) -> None:
    attempt, older = early(q)
    newer = registered(q, attempt, {"on_complete": "payload == 1"})
    assert rules_in_row(q, attempt.job_id) == {"on_complete": "payload == 1"}
    with pytest.raises(CallbackNotFound):
        client.resolve_callback(older, {**FINAL, "paid": True})
    assert client.resolve_callback(newer, 2).outcome == "ignored"
    newest = registered(q, attempt, {})
    assert rules_in_row(q, attempt.job_id) is None
    assert client.resolve_callback(newest, 2, "resume").outcome == "resumed"
    attempt, callback = early(q)
    item = told(attempt, timeout_s=60, wanted_id=callback)
    ((status, _, number),) = register_all(q, item)  # said again, it changes nothing
    assert (status, number, rules_in_row(q, attempt.job_id)) == ("done", 1, RULES)


def test_answers_that_say_what_they_mean_take_no_notice_of_rules(q: Queue, client: Client) -> None:
    draft = {"kind": "draft", "error": "x"}
    attempt, callback = waiting(q)
    assert client.resume_external(callback, draft).state is State.RUNNING
    assert json.loads(wait(q, attempt, callback)[1]) == draft
    assert client.complete_external(waiting(q)[1], draft).state is State.COMPLETED
    assert client.fail_external(waiting(q)[1], "no").state is State.FAILED
    assert client.retry_external(waiting(q)[1]).state is State.AVAILABLE


@pytest.mark.parametrize("action", ["complete", "fail", "ignore", "resume"])
def test_sql_refuses_to_resolve_a_callback_with_rules_and_changes_nothing(q: Queue, action: str) -> None:
    attempt, callback = waiting(q)
    with pytest.raises(psycopg.Error, match="it has rules in CEL.*Client.resolve_callback.*cel") as refused:
        answer(q, "resolve_callback", callback, "1", action)
    assert refused.value.sqlstate == "AW001"
    assert q.state(attempt.job_id) == "waiting_external" and rules_in_row(q, attempt.job_id) == RULES


@pytest.mark.parametrize(
    "rules",
    ['"text"', "[]", "5", '{"when": "true"}', '{"filter": 5}', '{"filter": null}',
     '{"filter": "%s"}' % ("x" * 4097), '{"filter": {"filter": "true"}}'],
)  # fmt: skip
def test_sql_refuses_what_are_no_rules(q: Queue, rules: str) -> None:
    attempt = q.claimed()
    sound = q.claimed()
    items = [told(attempt, timeout_s=60, rules=json.loads(rules)), told(sound, timeout_s=60, rules={})]
    assert [status for status, _, _ in register_all(q, *items)] == ["invalid", "done"]
    assert q.state(attempt.job_id) == "running" and rules_in_row(q, sound.job_id) is None


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("commits", [True, False])
def test_of_two_resolvers_the_first_to_hold_the_row_decides(
    q: Queue, client: Client, dsn: str, make: Any, commits: bool
) -> None:
    attempt, callback = make(q)
    paid, broken = {**FINAL, "paid": True}, {**FINAL, "error": "no money"}
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as conn:
        assert client.resolve_callback(callback, paid, conn=conn).outcome == "completed"
        late = pool.submit(client.resolve_callback, callback, broken)
        until(
            lambda: (
                q.one(
                    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
                )
                == 1
            )
        )
        if commits:
            conn.commit()
            with pytest.raises(CallbackNotFound):
                late.result(20)
        else:
            conn.rollback()
            assert late.result(20)[::4] == ("failed", "on_fail")
    assert q.state(attempt.job_id) == ("completed" if commits else "failed")


def test_an_ignored_answer_lets_the_next_resolver_decide_once_it_is_committed(
    q: Queue, client: Client, dsn: str
) -> None:
    attempt, callback = parked(q)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as conn:
        assert client.resolve_callback(callback, {"kind": "draft"}, conn=conn).outcome == "ignored"
        late = pool.submit(client.resolve_callback, callback, {**FINAL, "paid": True})
        until(
            lambda: (
                q.one(
                    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
                )
                == 1
            )
        )
        conn.commit()
        assert late.result(20).outcome == "completed"
    assert q.state(attempt.job_id) == "completed"


def test_many_resolvers_at_once_bring_about_one_outcome(q: Queue, dsn: str) -> None:
    answers = [({**FINAL, "paid": True}, "ignore"), ({**FINAL, "error": "x"}, "ignore"), (FINAL, "resume"),
               ({"kind": "draft"}, "complete")]  # fmt: skip
    callbacks = [parked(q) for _ in range(25)]
    start = threading.Barrier(len(answers))
    with Client(dsn) as client, ThreadPoolExecutor(len(answers)) as pool:

        def resolve(which: int, callback: str) -> str:
            start.wait(20)
            try:
                return client.resolve_callback(callback, *answers[which]).outcome
            except CallbackNotFound:
                return "refused"

        for attempt, callback in callbacks:
            outcomes = list(pool.map(resolve, range(len(answers)), [callback] * len(answers)))
            (won,) = [outcome for outcome in outcomes if outcome not in ("ignored", "refused")]
            assert outcomes.count("refused") >= 2 and outcomes[3] in ("ignored", "refused")
            state = {"completed": "completed", "failed": "failed", "resumed": "available"}[won]
            assert q.state(attempt.job_id) == state


@pytest.mark.parametrize("payload", [{**FINAL, "paid": True}, {**FINAL, "error": "x"}, FINAL])
def test_an_answer_after_the_timeout_is_refused_whatever_the_rules_say(
    q: Queue, client: Client, payload: Any
) -> None:
    attempt, callback = waiting(q)
    make_overdue(q, attempt.job_id)
    assert expire(q) == 1
    with pytest.raises(CallbackNotFound):
        client.resolve_callback(callback, payload, "complete")


def declare(client: Client | AsyncClient) -> list[JobEvent]:
    heard: list[JobEvent] = []

    @client.task(Pay)
    def pay(job: Job[Pay]) -> None: ...

    @client.task(Book)
    def book(job: Job[Book]) -> None: ...

    def follow(args: Pay, job: Job[Pay], *more: Any) -> Book:
        if args.number == 13:
            raise ValueError("not 13")
        return Book(str(more[0] if more else job.resumed and job.resumed.payload))

    client.on_completed_enqueue(Pay, follow)
    client.on_exhausted_enqueue(Pay, follow)
    client.on_event(Pay)(heard.append)
    return heard


def booked(q: Queue) -> list[str]:
    return [
        what
        for (what,) in q.rows("select args ->> 'what' from awa_pool.jobs where kind = 'book' order by id")
    ]


def outcomes_are_told(q: Queue) -> None:
    q.rows(
        "select awa_pool.register_runtime(gen_random_uuid(), 'host', 1, %s::jsonb)",
        '{"outcomes": {"pay": ["completed", "exhausted"]}}',
    )


def test_specs_and_hooks_hear_of_what_the_rules_bring_about(q: Queue, client: Client) -> None:
    outcomes_are_told(q)
    heard = declare(client)
    _, callback = parked(q, kind="pay", args={"number": 7})
    _, other = waiting(q, kind="pay", args={"number": 7})
    assert client.resolve_callback(callback, {"kind": "draft"}).outcome == "ignored"
    assert heard == [] == booked(q)
    client.resolve_callback(callback, {**FINAL, "paid": True})
    client.resolve_callback(other, {**FINAL, "error": "x"})
    assert [type(event) for event in heard] == [Completed, Exhausted]
    assert booked(q) == ["{'sum': 5}", "the payload matched on_fail: has(payload.error)"]
    assert q.one("select count(*) from awa_pool.jobs where kind = 'awa:outcome'") == 0


def test_a_spec_that_fails_undoes_what_the_rules_decided(q: Queue, client: Client, dsn: str) -> None:
    outcomes_are_told(q)
    heard = declare(client)
    attempt, callback = parked(q, kind="pay", args={"number": 13})
    with pytest.raises(FollowUpFailed, match="not 13"):
        client.resolve_callback(callback, {**FINAL, "paid": True})
    assert q.state(attempt.job_id) == "waiting_external" and heard == [] == booked(q)
    with psycopg.connect(dsn) as conn:
        with pytest.raises(FollowUpFailed):
            client.resolve_callback(callback, {**FINAL, "paid": True}, conn=conn)
        assert client.resolve_callback(callback, FINAL, "resume", conn=conn).outcome == "resumed"
    assert q.state(attempt.job_id) == "available"


def test_a_parked_job_whose_key_is_taken_stays_open_for_the_next_answer(q: Queue, client: Client) -> None:
    @client.task(Pay, unique_opts={"by_args": True})
    def pay(job: Job[Pay]) -> None: ...

    first = client.insert(Pay(1))
    (attempt,) = q.claim()
    callback = registered(q, attempt)
    assert park(q, attempt, callback)[0] == "done"
    client.insert(Pay(1))
    with pytest.raises(UniqueConflict):
        client.resolve_callback(callback, FINAL, "resume")
    assert q.state(first) == "waiting_external" and rules_in_row(q, first) == RULES
    assert client.resolve_callback(callback, {**FINAL, "paid": True}).outcome == "completed"


def test_an_async_client_does_the_same_alone_and_in_a_transaction(q: Queue, dsn: str) -> None:
    outcomes_are_told(q)
    attempts = [parked(q, kind="pay", args={"number": 7}) for _ in range(4)]
    callbacks = [callback for _, callback in attempts]

    async def resolve() -> list[JobEvent]:
        async with AsyncClient(dsn) as client, await psycopg.AsyncConnection.connect(dsn) as conn:
            heard = declare(client)
            assert (await client.resolve_callback(callbacks[0], {**FINAL, "paid": True})).payload == {
                "sum": 5
            }
            assert (await client.resolve_callback(callbacks[1], {**FINAL, "error": "x"})).outcome == "failed"
            assert (await client.resolve_callback(callbacks[2], {"kind": "draft"}, "fail")).reason == "filter"
            assert (
                await client.resolve_callback(callbacks[2], FINAL, "resume", conn=conn)
            ).state is State.AVAILABLE
            assert (
                await client.resolve_callback(callbacks[3], {**FINAL, "paid": True}, conn=conn)
            ).outcome == "completed"
            await conn.rollback()
            return heard

    assert [type(event) for event in asyncio.run(resolve())] == [Completed, Exhausted]
    states = [q.state(attempt.job_id) for attempt, _ in attempts]
    assert states == ["completed", "failed", "waiting_external", "waiting_external"]


def test_without_the_extra_rules_are_never_passed_over(
    q: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    attempt, callback = waiting(q)
    with pytest.raises(ConfigError, match=r"pip install 'awa-pool\[cel\]'"):
        client.resolve_callback(callback, FINAL, "complete")
    assert q.state(attempt.job_id) == "waiting_external"
    assert client.resolve_callback(waiting(q, {})[1], FINAL, "complete").outcome == "completed"
    gate._environment.cache_clear()


def test_rules_are_real_for_a_job_that_a_test_works_itself(client: Client) -> None:
    ids: list[str] = []
    got: list[Any] = []

    @client.task(Pay)
    def pay(job: Job[Pay]) -> object:
        if job.resumed is not None:
            return got.append(job.resumed.payload)
        token = job.register_callback(60, **RULES)
        assert token.rules == RULES
        ids.append(token.id)
        return WaitForCallback(token)

    client.insert(Pay(1))
    assert work_one(client, Pay).is_waiting
    assert client.resolve_callback(ids[0], {"kind": "draft"}, "resume").outcome == "ignored"
    assert client.resolve_callback(ids[0], FINAL, "resume").outcome == "resumed"
    assert work_one(client, Pay).is_completed and got == [{"sum": 5}]
