"""Connections to the database that are cut, frozen, slow or refused: nothing is lost, no attempt is used up."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from ledger import Ledger
from pool_rig import pool, wait_until
from proxy import Proxy, proxy
from servers import Server

from awa_pool.store.connection import connect
from awa_pool.store.listener import Listener, ListenerBack, ListenerLost, Notified
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.threads import StoreAnswered, StoreBack, StoreFailed, StoreThread
from awa_pool.supervisor.heartbeat import DatabaseAway, DatabaseBack, Pulse

ANSWER_S = 0.5


@pytest.fixture
def between(pg_server: Server) -> Iterator[Proxy]:
    with proxy(pg_server) as running:
        yield running


def heard(mailbox: Mailbox, kind: type) -> object:
    """Wait for an event of that kind."""
    found: list[object] = []

    def look() -> bool:
        found.extend(event for event in mailbox.take() if isinstance(event, kind))
        return bool(found)

    wait_until(f"a {kind.__name__}", look, 20.0)
    return found[0]


def test_answers_that_are_cut_off_after_the_commit_lose_nothing_and_use_no_attempt(
    tmp_path: Path, dsn: str, between: Proxy
) -> None:
    """B072, B089: what has committed unseen, a claim or a completion, is found again."""
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, between.dsn(dsn)) as running:
        running.ready()
        for question in (b".claim(", b".complete(", b".claim(", b".complete("):
            seen = between.cuts
            between.swallow_answers(question)
            ledger.put(150)
            wait_until("an answer is swallowed", lambda seen=seen: between.cuts > seen)
        ledger.await_ends()
        ledger.judge()
        assert ledger.attempts() == {1: 600}
        assert set(ledger.starts().values()) == {1}


def test_connections_cut_refused_and_frozen_under_load_end_no_process_and_use_no_attempt(
    tmp_path: Path, dsn: str, between: Proxy
) -> None:
    ledger = Ledger(tmp_path / "ledger", dsn)
    with pool(tmp_path, between.dsn(dsn), log_level="info") as running:
        running.logged("connected to the database")
        ledger.put(2000, "spin", 0.002)
        wait_until("jobs run", lambda: len(ledger.starts()) > 100)
        before = set(running.children())
        for _ in range(3):
            between.cut()
            running.logged("store.back")
        between.delay_s = 0.02
        between.freeze()
        wait_until("workers run dry", lambda: stands_still(ledger))
        between.thaw()
        between.delay_s = 0.0
        between.refuse()
        between.cut()
        running.logged("the database is away")
        wait_until("workers run dry", lambda: stands_still(ledger))
        between.accept()
        ledger.await_ends()
        ledger.judge()
        assert ledger.attempts() == {1: 2000}
        assert before <= set(running.children())
        assert running.log.count("\n") < 50, running.log


def stands_still(ledger: Ledger) -> bool:
    before = sum(ledger.starts().values())
    time.sleep(0.3)  # the measure itself
    return sum(ledger.starts().values()) == before


def test_a_call_on_a_frozen_connection_ends_and_the_next_works_on_a_new_one(dsn: str, between: Proxy) -> None:
    mailbox = Mailbox()
    thread = StoreThread(lambda: connect(between.dsn(dsn), role="test", answer_s=ANSWER_S), mailbox)
    try:
        heard(mailbox, StoreBack)
        between.freeze()
        assert thread.submit(lambda store: store.promote(1), "asked")
        failed = heard(mailbox, StoreFailed)
        assert isinstance(failed, StoreFailed) and "no answer" in str(failed.error)
        between.thaw()
        assert thread.submit(lambda store: store.promote(1), "asked again")
        answered = heard(mailbox, StoreAnswered)
        assert isinstance(answered, StoreAnswered) and answered.token == "asked again"
    finally:
        thread.close()
        mailbox.close()


def test_a_listener_notices_that_its_connection_is_frozen_and_looks_when_it_is_back(
    dsn: str, between: Proxy
) -> None:
    """B077: the listener proves that it is alive."""
    mailbox = Mailbox()
    listener = Listener(
        dsn,
        mailbox,
        proof_every_s=0.2,
        connect=lambda: connect(between.dsn(dsn), role="listener", answer_s=ANSWER_S),
    )
    try:
        heard(mailbox, ListenerBack)
        between.freeze()
        heard(mailbox, ListenerLost)
        between.thaw()
        heard(mailbox, ListenerBack)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("notify awa_pool, ''")
        heard(mailbox, Notified)
    finally:
        listener.close()
        mailbox.close()


def test_a_heartbeat_on_a_frozen_connection_says_that_the_database_is_away(dsn: str, between: Proxy) -> None:
    pulse = Pulse(
        lambda: connect(between.dsn(dsn), role="supervisor", answer_s=ANSWER_S),
        "00000000-0000-0000-0000-000000000001",
        heartbeat_s=0.1,
        info={},
    )

    def beat_until(kind: type) -> None:
        def news() -> bool:
            pulse.tick(time.monotonic(), want_depths=False)
            return any(isinstance(item, kind) for item in pulse.take(time.monotonic()))

        wait_until(f"a {kind.__name__}", news, 20.0)

    def beats_since_s() -> float:
        def since() -> tuple[float, float] | None:
            pulse.tick(time.monotonic(), want_depths=False)
            pulse.take(time.monotonic())
            return pulse.unbroken

        wait_until("it beats", since)  # later than DatabaseBack, which a connection is enough for
        assert pulse.unbroken is not None
        return pulse.unbroken[0]

    try:
        beat_until(DatabaseBack)
        since_s = beats_since_s()
        between.freeze()
        beat_until(DatabaseAway)
        assert pulse.unbroken is None
        between.thaw()
        beat_until(DatabaseBack)
        assert beats_since_s() > since_s
    finally:
        pulse.say_goodbye(5.0)


def test_no_job_waits_for_longer_than_the_poll_interval_when_notifications_are_cut(
    tmp_path: Path, dsn: str, pg_server: Server
) -> None:
    """B077: the listening session is terminated again and again."""
    ledger = Ledger(tmp_path / "ledger", dsn)
    listeners = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "
        "where application_name = 'awa-pool listener' and datname = current_database()"
    )
    with (
        pool(tmp_path, dsn, poll_interval_s=1.0) as running,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        running.ready()
        waits: list[float] = []
        for number in range(8):
            wait_until("the listener is there", lambda: conn.execute(listeners).fetchone() != (0,))
            began_s = time.monotonic()
            ledger.put(1)
            wait_until("the job ran", lambda number=number: len(ledger.starts()) > number)
            waits.append(time.monotonic() - began_s)
        assert max(waits) < 3.0, waits  # the interval of one second, on a busy machine
        assert 0 < running.log.count("listener.lost") <= 8
        running.logged("listener.back")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_pool_that_ends_during_a_slow_claim_leaves_no_session_behind(
    tmp_path: Path, dsn: str, how: signal.Signals
) -> None:
    """B079: the claim waits for a lock that is never released."""
    active = (
        "select count(*) from pg_stat_activity where application_name = 'awa-pool dispatcher' "
        "and datname = current_database() and state <> 'idle'"
    )
    with pool(tmp_path, dsn, drain_timeout_s=1.0) as running:
        running.ready()
        with psycopg.connect(dsn) as locker, psycopg.connect(dsn, autocommit=True) as conn:
            locker.execute("lock table awa_pool.queues in access exclusive mode")
            wait_until("the claim waits", lambda: conn.execute(active).fetchone() == (1,))
            running.signal(how)
            running.ended(40.0)
            wait_until("no session is active", lambda: conn.execute(active).fetchone() == (0,), 15.0)


def test_the_pool_needs_no_more_connections_than_its_budget_however_many_workers(
    tmp_path: Path, dsn: str
) -> None:
    """B081: 8 at most, not one of them a worker's."""
    most = [0]
    over = threading.Event()
    with psycopg.connect(dsn, autocommit=True) as conn:

        def watch() -> None:
            while not over.wait(0.05):
                row = conn.execute(
                    "select count(*) from pg_stat_activity where datname = current_database() and "
                    "application_name like 'awa-pool %' and application_name <> 'awa-pool client'"
                ).fetchone()
                assert row is not None
                most[0] = max(most[0], int(row[0]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            ledger = Ledger(tmp_path / "ledger", dsn)
            with pool(tmp_path, dsn, workers=12) as running:
                running.ready(12)
                ledger.put(500)
                ledger.await_ends()
                os.kill(running.children("dispatcher")[0], signal.SIGKILL)
                running.logged("dispatcher is ready", count=2)
        finally:
            over.set()
            watcher.join()
    assert 4 <= most[0] <= 8, most
