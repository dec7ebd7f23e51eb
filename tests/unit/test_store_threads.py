"""A store thread answers with events, reconnects by itself, and never blocks its actor."""

from __future__ import annotations

import random
import select
import threading
import time

import pytest

from awa_pool.errors import SchemaMismatch, StoreConflict, StoreUnavailable
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.threads import (
    LONGEST_PAUSE_S,
    Pauses,
    StoreAnswered,
    StoreBack,
    StoreFailed,
    StoreLost,
    StoreThread,
    StoreWithdrawn,
)

DEADLINE_S = 10.0


class FakeStore:
    def __init__(self) -> None:
        self.usable = True
        self.closed = False
        self.ended = False

    def ended_at_rest(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.closed = True


class Server:
    """Hands out fake stores, or refuses with the errors put into `refusals`."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.stores: list[FakeStore] = []

    def connect(self):
        if self.refusals:
            raise self.refusals.pop(0)
        self.stores.append(FakeStore())
        return self.stores[-1]


def collect(box: Mailbox, count: int):
    events, until = [], time.monotonic() + DEADLINE_S
    while len(events) < count:
        left_s = until - time.monotonic()
        assert left_s > 0, f"only {events}"
        select.select([box.fileno()], [], [], left_s)
        events += box.take()
    assert len(events) == count
    return events


@pytest.fixture
def box():
    made = Mailbox()
    yield made
    made.close()


@pytest.fixture
def start(box):
    threads = []

    def make(server, **options):
        threads.append(StoreThread(server.connect, box, name="test", rng=random.Random(1), **options))
        return threads[-1]

    yield make
    for thread in threads:
        assert thread.close(DEADLINE_S)


def fail(error):
    def call(store):
        raise error

    return call


def test_answers_carry_their_tokens_in_order(box, start):
    thread = start(Server())
    for n in range(3):
        assert thread.submit(lambda store, n=n: n * n, ("token", n))
    assert collect(box, 4) == [StoreBack("test"), *(StoreAnswered(("token", n), n * n) for n in range(3))]


def test_an_error_belongs_to_its_call_and_keeps_the_connection(box, start):
    server, error = Server(), StoreConflict("deadlock", sqlstate="40P01")
    thread = start(server)
    thread.submit(fail(error), 1)
    thread.submit(lambda store: "fine", 2)
    assert collect(box, 3)[1:] == [StoreFailed(1, error), StoreAnswered(2, "fine")]
    assert len(server.stores) == 1


def test_a_lost_connection_fails_the_call_under_way_and_the_next_waits_for_a_new_one(box, start):
    server, error = Server(), StoreUnavailable("gone")
    thread = start(server)
    thread.submit(fail(error), 1)
    thread.submit(lambda store: store, 2)
    back, failed, lost, again, answered = collect(box, 5)
    assert {back, again} == {StoreBack("test")}
    assert {type(failed), type(lost)} == {StoreFailed, StoreLost}
    assert answered == StoreAnswered(2, server.stores[1])
    assert server.stores[0].closed


@pytest.mark.parametrize("refusals", [0, 2])
def test_a_connection_that_ended_at_rest_is_an_outage_only_if_there_is_no_other(
    box, start, monkeypatch, refusals
):
    monkeypatch.setattr("awa_pool.store.threads.RESTED_S", 0.0)
    server, error = Server(), StoreUnavailable("refused")
    thread = start(server)
    thread.submit(lambda store: store, 1)
    collect(box, 2)
    server.stores[0].ended = True
    server.refusals = [error] * refusals
    thread.submit(lambda store: store, 2)
    told = [StoreLost("test", error)] if refusals else []
    assert collect(box, 2 + len(told)) == [*told, StoreBack("test"), StoreAnswered(2, server.stores[1])]
    assert server.stores[0].closed


def test_an_absent_database_is_said_once_and_waited_for(box, start):
    error = StoreUnavailable("refused")
    thread = start(Server(error, error, error))
    thread.submit(lambda store: "at last", 1)
    assert collect(box, 3) == [StoreLost("test", error), StoreBack("test"), StoreAnswered(1, "at last")]


def test_connections_on_which_nothing_works_come_with_growing_pauses(box, start):
    server = Server()
    thread = start(server)

    def fails(store: FakeStore) -> None:
        raise StoreUnavailable("no space left on the server")

    began_s, tries = time.monotonic(), 6
    for n in range(tries):
        thread.submit(fails, n)
        while not any(getattr(event, "token", None) == n for event in box.take()):
            select.select([box.fileno()], [], [], DEADLINE_S)
    assert len(server.stores) == tries
    assert time.monotonic() - began_s > sum(
        0.05 * 2**n / 2 for n in range(tries - 1)
    )  # at least half of each pause
    thread.submit(lambda store: "works", "at last")
    while not any(event == StoreAnswered("at last", "works") for event in box.take()):
        select.select([box.fileno()], [], [], DEADLINE_S)
    assert thread._pauses.next_s() <= 0.05


def test_a_schema_that_does_not_fit_fails_what_waits(box, start):
    error = SchemaMismatch("run awa-pool migrate")
    asked = threading.Event()
    server = Server()

    def connect():
        asked.wait(DEADLINE_S)
        raise error

    server.connect = connect
    thread = start(server)
    thread.submit(lambda store: 1, "token")
    asked.set()
    assert set(collect(box, 2)) == {StoreLost("test", error), StoreFailed("token", error)}


def test_the_number_of_waiting_calls_is_bounded(box, start):
    gate = threading.Event()
    thread = start(Server(), waiting=2)
    thread.submit(lambda store: gate.wait(DEADLINE_S), 0)
    collect(box, 1)
    accepted = [thread.submit(lambda store: None, n) for n in range(1, 5)]
    assert accepted.count(True) in (1, 2, 3)
    assert accepted[-1] is False
    gate.set()
    collect(box, 1 + accepted.count(True))
    assert thread.submit(lambda store: None, 9)


def test_close_runs_what_is_queued_and_then_takes_no_more(box):
    thread = StoreThread(Server().connect, box)
    for n in range(10):
        thread.submit(lambda store, n=n: n, n)
    assert thread.close(DEADLINE_S)
    assert len(collect(box, 11)) == 11
    assert not thread.submit(lambda store: None, 11)


def test_close_gives_up_what_waits_for_an_absent_database(box):
    error = StoreUnavailable("refused")
    server = Server(*[error] * 1000)
    thread = StoreThread(server.connect, box)
    thread.submit(lambda store: 1, "token")
    assert thread.close(DEADLINE_S)
    lost, failed = collect(box, 2)
    assert lost == StoreLost("store", error)
    assert isinstance(failed, StoreFailed)
    assert isinstance(failed.error, StoreUnavailable)


def test_a_call_that_has_not_begun_can_be_taken_back_and_one_that_runs_cannot(box, start):
    begun, gate = threading.Event(), threading.Event()
    thread = start(Server())

    def run(store):
        begun.set()
        return gate.wait(DEADLINE_S)

    thread.submit(run, "first")
    thread.submit(fail(AssertionError("it was taken back")), "second")
    assert begun.wait(DEADLINE_S)
    for token in ("first", "second", "unknown"):
        thread.withdraw(token)
    gate.set()
    events = collect(box, 3)
    assert {StoreWithdrawn("second"), StoreAnswered("first", True)} < set(events)


def test_a_call_that_waits_for_an_absent_database_can_be_taken_back(box, start):
    error = StoreUnavailable("refused")
    thread = start(Server(*[error] * 1000))
    thread.submit(lambda store: 1, "token")
    thread.withdraw("token")
    assert set(collect(box, 2)) == {StoreLost("test", error), StoreWithdrawn("token")}


def test_pauses_double_to_a_limit_with_jitter():
    pauses = Pauses(random.Random(3))
    drawn = [pauses.next_s() for _ in range(12)]
    assert 0.025 <= drawn[0] <= 0.05
    assert all(pause <= LONGEST_PAUSE_S for pause in drawn)
    assert drawn[-1] >= LONGEST_PAUSE_S / 2
    pauses.reset()
    assert pauses.next_s() <= 0.05


def test_a_mailbox_wakes_its_reader_and_is_quiet_when_empty(box):
    assert select.select([box.fileno()], [], [], 0)[0] == []
    for n in range(100_000):
        box.put(n)
    assert select.select([box.fileno()], [], [], 0)[0]
    taken = box.take()
    assert taken == list(range(100_000))
    box.take()
    assert select.select([box.fileno()], [], [], 0)[0] == []
