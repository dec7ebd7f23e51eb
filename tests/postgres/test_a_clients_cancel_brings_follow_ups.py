"""A cancel by a client that knows the app runs what was registered for it: in its own transaction, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from awa_pool import (
    AsyncClient,
    Client,
    EnqueueRequest,
    FollowUpFailed,
    State,
    TransitionRefused,
    UniqueConflict,
)
from awa_pool.hooks import Cancelled, JobEvent
from awa_pool.job import Job


@dataclass
class Order:
    number: int


@dataclass
class Refund:
    number: int
    why: str = ""


@dataclass
class Plain:
    number: int


def declare(client: Client | AsyncClient) -> list[JobEvent]:
    """Tasks, a spec for a cancelled order, and a hook that writes down what it hears."""
    heard: list[JobEvent] = []

    @client.task(Order, unique_opts={})
    def order(job: Job[Order]) -> None: ...

    client.task(Refund)(_refund)
    client.task(Plain)(_plain)

    @client.on_cancelled_enqueue(Order)
    def refund(args: Order, job: Job[Order], reason: str) -> Any:
        if args.number == 13:
            raise ValueError("no refund for 13")
        if args.number == 0:
            return None
        return EnqueueRequest(Refund(args.number, reason)).unique()

    client.on_event(Order)(heard.append)
    return heard


def _refund(job: Job[Refund]) -> None: ...


def _plain(job: Job[Plain]) -> None: ...


@pytest.fixture
def client(dsn: str):
    with Client(dsn) as client:
        yield client


def refunds(client: Client) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(row.args, row.metadata) for row in reversed(client.list_jobs(kind="refund"))]


def owed(dsn: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn) as conn:
        return [
            row[0]
            for row in conn.execute("select args from awa_pool.jobs where kind = 'awa:outcome' order by id")
        ]


def say_that_a_pool_waits_for(dsn: str, outcomes: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "select awa_pool.register_runtime(gen_random_uuid(), 'host', 1, %s::jsonb)",
            (f'{{"outcomes": {outcomes}}}',),
        )


def test_the_follow_up_and_the_hook_come_with_the_cancel(client: Client, dsn: str) -> None:
    heard = declare(client)
    say_that_a_pool_waits_for(dsn, '{"order": ["cancelled"]}')
    job_id = client.insert(Order(7))
    assert client.cancel(job_id) is State.CANCELLED
    assert refunds(client) == [({"number": 7, "why": "cancelled_by_hand"}, {"awa:parent": job_id})]
    (event,) = heard
    assert isinstance(event, Cancelled)
    assert (event.reason, event.job.id, event.args) == ("cancelled_by_hand", job_id, Order(7))
    assert owed(dsn) == []  # it was told here: no worker has to
    with pytest.raises(TransitionRefused):
        client.cancel(job_id)
    assert len(refunds(client)) == len(heard) == 1


def test_a_spec_that_fails_is_named_and_nothing_has_changed(client: Client) -> None:
    heard = declare(client)
    job_id = client.insert(Order(13))
    with pytest.raises(FollowUpFailed, match=r"refund raised ValueError: no refund for 13") as caught:
        client.cancel(job_id)
    assert caught.value.spec is not None and caught.value.spec.endswith("refund")
    assert isinstance(caught.value.__cause__, ValueError)
    row = client.get_job(job_id)
    assert row is not None and row.state == "available" and heard == []
    with pytest.raises(UniqueConflict):
        client.insert(Order(13))  # its key stands too


def test_a_follow_up_that_the_database_refuses_undoes_the_cancel(client: Client, dsn: str) -> None:
    declare(client)
    job_id = client.insert(Order(5))
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "create function refuse() returns trigger language plpgsql as "
            "$$ begin if new.kind = 'refund' then raise 'not today'; end if; return new; end $$"
        )
        conn.execute(
            "create trigger refuse before insert on awa_pool.jobs_ready for each row execute function refuse()"
        )
    with pytest.raises(FollowUpFailed, match="not today"):
        client.cancel(job_id)
    row = client.get_job(job_id)
    assert row is not None and row.state == "available"


def test_a_spec_without_a_follow_up_and_kinds_without_specs_are_only_cancelled(
    client: Client, dsn: str
) -> None:
    declare(client)
    say_that_a_pool_waits_for(dsn, '{"plain": ["cancelled"], "other": ["cancelled"]}')
    for job_id in (
        client.insert(Order(0)),
        client.insert(Plain(1)),
        client.insert({}, kind="other"),
    ):
        assert client.cancel(job_id) is State.CANCELLED
    assert refunds(client) == []
    assert [args["kind"] for args in owed(dsn)] == ["plain", "other"]  # others' specs are others' to evaluate


def test_in_a_transaction_of_the_caller_all_goes_with_it(client: Client, dsn: str) -> None:
    heard = declare(client)
    say_that_a_pool_waits_for(dsn, '{"order": ["cancelled"]}')
    first, second, bad = (client.insert(Order(number)) for number in (1, 2, 13))
    with psycopg.connect(dsn) as conn:
        client.cancel(first, conn=conn)
        conn.rollback()
    assert refunds(client) == [] and owed(dsn) == []
    with psycopg.connect(dsn) as conn:
        with pytest.raises(FollowUpFailed):
            client.cancel(bad, conn=conn)
        client.cancel(second, conn=conn)  # the transaction is usable
        assert refunds(client) == []  # and nobody has committed it
        conn.commit()
    assert [args for args, _ in refunds(client)] == [{"number": 2, "why": "cancelled_by_hand"}]
    states = {number: client.get_job(job_id).state for number, job_id in ((1, first), (2, second), (13, bad))}
    assert states == {1: "available", 2: "cancelled", 13: "available"}
    assert heard == []  # whether it commits is not ours to know: a worker tells the hooks
    (args,) = owed(dsn)
    assert (args["id"], args["outcomes"], args["specs_told"]) == (second, ["cancelled"], True)


def test_by_its_key_and_a_follow_up_whose_key_is_held_is_skipped(client: Client) -> None:
    heard = declare(client)
    holder = client.insert(Refund(3, "cancelled_by_hand"), unique_opts={})
    job_id = client.insert(Order(3))
    assert client.cancel_by_unique_key("order", args=Order(3)) == job_id
    assert client.cancel_by_unique_key("order", args=Order(3)) is None
    assert [row.id for row in client.list_jobs(kind="refund")] == [holder]
    assert client.unique_skips == 1 and len(heard) == 1


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_hook_that_fails_is_logged_without_args_and_the_others_are_called(
    client: Client, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    def broken(event: JobEvent) -> None:
        raise kind(f"secret {event.args}")

    client.on_event_kind("order")(broken)
    heard = declare(client)
    assert client.cancel(client.insert(Order(4))) == "cancelled"
    assert len(heard) == 1
    (record,) = [record for record in caplog.records if record.name == "awa_pool.hooks"]
    assert "broken failed on Cancelled" in record.getMessage() and "secret" not in caplog.text


def test_the_asynchronous_client_does_the_same(dsn: str) -> None:
    async def main() -> None:
        async with AsyncClient(dsn) as client:
            heard = declare(client)
            good, bad, third = [await client.insert(Order(number)) for number in (1, 13, 3)]
            assert await client.cancel(good) is State.CANCELLED
            with pytest.raises(FollowUpFailed):
                await client.cancel(bad)
            assert await client.cancel_by_unique_key("order", args=Order(3)) == third
            async with await psycopg.AsyncConnection.connect(dsn) as conn:
                with pytest.raises(FollowUpFailed):
                    await client.cancel(bad, conn=conn)
                await conn.execute("select 1")
            assert [row.args["number"] for row in await client.list_jobs(kind="refund")] == [3, 1]
            assert [event.args.number for event in heard] == [1, 3]

    asyncio.run(main())
