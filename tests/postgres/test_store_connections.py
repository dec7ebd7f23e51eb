"""Connections: checked when new, replaced when lost, and silent about their password."""

from __future__ import annotations

import asyncio
import logging
import random
import select
import socket
import time
import uuid
import warnings
from functools import partial
from pathlib import Path

import psycopg
import pytest
from client_rig import DEADLINE_S, end_sessions, wait_for

from awa_pool import Client
from awa_pool.errors import (
    ConfigError,
    SchemaMismatch,
    StoreConflict,
    StoreRefused,
    StoreUnavailable,
    ValidationError,
)
from awa_pool.logs import ConsoleFormatter
from awa_pool.store import inspecting
from awa_pool.store import statements as do
from awa_pool.store.asynchronous import connect_async
from awa_pool.store.connection import PREPARE_AFTER, connect, target
from awa_pool.store.listener import Listener, ListenerBack, ListenerLost, Notified
from awa_pool.store.mailbox import Mailbox
from awa_pool.store.migrate import migrate
from awa_pool.store.threads import StoreAnswered, StoreBack, StoreThread

SECRET = "hunter2-Straße"


@pytest.fixture
def box():
    made = Mailbox()
    yield made
    made.close()


def run(dsn, statement):
    with psycopg.connect(dsn, autocommit=True) as conn:
        return conn.execute(statement)


def test_a_connection_carries_its_role_and_our_settings_and_those_of_the_dsn_win(dsn):
    conninfo = target(dsn + " keepalives_idle=99", "dispatcher").conninfo
    assert "application_name='awa-pool dispatcher'" in conninfo
    assert "keepalives_idle=99" in conninfo
    assert "tcp_user_timeout" in conninfo
    store = connect(dsn, role="dispatcher")
    assert store.conn.autocommit
    assert store.conn.prepare_threshold == PREPARE_AFTER
    store.close()


def test_a_missing_schema_names_the_command(empty_dsn):
    with pytest.raises(SchemaMismatch, match="run: awa-pool migrate --schema awa_pool"):
        connect(empty_dsn)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("update awa_pool.meta set version = 0", "has version 0.*awa-pool migrate"),
        (
            "update awa_pool.meta set version = 99, works_from = 99",
            "newer than this awa-pool.*pip install --upgrade",
        ),
        ("update awa_pool.meta set system_identifier = 1", "another PostgreSQL cluster.*--accept-system-id"),
        ("delete from awa_pool.meta", "awa-pool migrate"),
        ("drop schema awa_pool cascade; create schema awa_pool", "awa-pool migrate"),
        (
            "drop schema awa_pool cascade; create schema awa_pool; create table awa_pool.meta (x int)",
            "awa-pool migrate",
        ),
    ],
)
def test_a_schema_that_is_not_this_one_is_refused_by_each_new_connection(dsn, change, words):
    run(dsn, change)
    with pytest.raises(SchemaMismatch, match=words):
        connect(dsn)
    with Client(dsn) as client, pytest.raises(SchemaMismatch, match=words):
        client.insert({}, kind="k")


@pytest.mark.parametrize("wrong", ["port=99999999", "port=0", "sslmode=bogus", "target_session_attrs=bogus"])
def test_an_address_that_can_never_work_is_refused_and_not_waited_for(dsn, wrong):
    with pytest.raises(ConfigError) as refused:
        connect(f"{dsn} {wrong} password=s3cr3t")
    assert "bogus" in str(refused.value) or "port" in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_server_that_says_nothing_is_named_by_its_address():
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel takes the connection, nobody answers
        port = frozen.getsockname()[1]
        dsn = f"host=127.0.0.1 port={port} user=me password=s3cr3t dbname=x connect_timeout=2"
        for attempt in (lambda: connect(dsn), lambda: migrate(dsn), lambda: asyncio.run(connect_async(dsn))):
            with pytest.raises(StoreUnavailable, match=f"no answer from 127.0.0.1 port {port}: ") as caught:
                attempt()
            assert "s3cr3t" not in str(caught.value)


def test_the_reason_of_an_outage_stands_on_one_line_in_errors_and_logs(tmp_path):
    dsn = f"host={tmp_path} user=me dbname=x"  # libpq asks on a second line whether a server runs there
    for attempt in (lambda: connect(dsn), lambda: migrate(dsn), lambda: asyncio.run(connect_async(dsn))):
        with pytest.raises(StoreUnavailable, match="Is the server running") as caught:
            attempt()
        record = logging.LogRecord("awa_pool", logging.WARNING, "", 0, "away: %s", (str(caught.value),), None)
        line = ConsoleFormatter("dispatcher").format(record)
        assert "Is the server" in line and "\\n" not in line and "\\t" not in line and "\n" not in line


def test_the_servers_codes_become_our_errors(dsn):
    store = connect(dsn)
    with pytest.raises(ValidationError, match=r"^jobs\[1\]\.priority: ") as caught:
        store.run(do.enqueue_many('[{"kind":"k","args":{}},{"kind":"k","args":{},"priority":9}]'))
    assert caught.value.path == "jobs[1].priority"
    with pytest.raises(StoreRefused):
        store.run(do.enqueue_many("not json"))
    store.conn.execute("set default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable) as away:
        store.run(do.enqueue("k", "{}", "q", 2, 25, None, None, None, None))
    assert away.value.sqlstate == "25006"
    store.conn.execute("set default_transaction_read_only = off")
    store.conn.execute("set default_transaction_isolation = 'serializable'")
    with pytest.raises(StoreRefused) as wrong:
        store.claim(["q"], [1], 1, 1 << 20, 1, uuid.uuid4(), 1, False)
    assert wrong.value.sqlstate == "AW002"
    store.conn.execute("set default_transaction_isolation = 'read committed'")
    store.conn.execute("set statement_timeout = 1")
    with pytest.raises(StoreConflict):
        store.run(do.enqueue_many("[" + ",".join(['{"kind":"k","args":{}}'] * 50_000) + "]"))
    store.close()


def test_the_store_claims_and_completes_what_a_client_put_in(dsn):
    runtime = uuid.uuid4()
    with Client(dsn) as client:
        ids = client.insert_many([({"n": n}, {"kind": "k", "tags": ["t"]}) for n in range(5)])
    store = connect(dsn)
    store.register_runtime(runtime, "here", 1, "{}")
    assert store.heartbeat(runtime, "{}") == "alive"
    claimed = store.claim(["default", "other"], [10, 10], 20, 1 << 20, 63, runtime, 7, False)
    assert claimed.notes == {"other": "empty"}
    (receipt,) = claimed.receipts
    assert receipt.job_ids == ids
    assert receipt.kinds == ["k"] * 5
    assert receipt.bodies[0].startswith(f"[{ids[0]},")
    assert [o.open_mask for o in store.open_attempts(runtime)] == [0b11111]
    done = store.complete([receipt.slot], [receipt.receipt_id], [receipt.nonce], [0b01111])
    assert done == [do.Closed(receipt.receipt_id, 0b01111, 0, 0)]
    item = (
        f'[{{"slot":{receipt.slot},"receipt_id":{receipt.receipt_id},"nonce":{receipt.nonce},"index":4,'
        f'"job_id":{ids[4]},"run_lease":1,"outcome":"fail","error":{{"error":"x","type":"E"}}}}]'
    )
    assert store.finish(item.encode()) == [do.Finished(0, "done", "failed")]
    assert store.work_left(["default"]) == inspecting.WorkLeft(0, 0, 0, 0)
    assert store.promote(10).promoted == 0
    assert store.rescue_stale(30.0, 10) == []
    assert store.lead("maintenance", runtime, 10.0)
    store.step_down("maintenance", runtime)
    for step in (
        store.exhaust_slots,
        store.sweep,
        store.trim_cursors,
        store.check_cluster,
        store.prove_alive,
    ):
        step()
    store.rotate(0.0, 1)
    store.prune(0.0, 0)
    store.move_open_attempts(10)
    assert [r.runtime_id for r in store.runtimes()] == [runtime]
    assert [q.queue for q in store.queues()] == [q.queue for q in store.queue_stats()] == ["default"]
    assert len(store.queue_depths()) <= 1
    store.say_goodbye(runtime)
    store.close()


def test_a_store_thread_outlives_the_end_of_its_session(dsn, box):
    thread = StoreThread(partial(connect, dsn, role="actor"), box, rng=random.Random(1))
    for round_ in range(3):
        thread.submit(lambda store: store.prove_alive(), round_)
        wait_for(box, lambda event, n=round_: event == StoreAnswered(n, None))
        assert end_sessions(dsn, "awa-pool actor") == 1
        thread.submit(lambda store: store.prove_alive(), "lost")  # on the dead session
        events = wait_for(box, lambda event: isinstance(event, StoreBack))
        assert any(getattr(event, "token", None) == "lost" for event in events)
    assert thread.close(DEADLINE_S)


def test_a_store_sees_that_its_session_has_ended_without_asking_anything(dsn):
    store = connect(dsn, role="rester")
    assert not store.ended_at_rest()
    store.prove_alive()
    assert not store.ended_at_rest()
    assert end_sessions(dsn, "awa-pool rester") == 1
    assert select.select([store.conn.fileno()], [], [], DEADLINE_S)[0]
    assert store.ended_at_rest()
    store.close()
    assert store.ended_at_rest()


def test_closing_cancels_a_statement_that_runs(dsn, box):
    thread = StoreThread(partial(connect, dsn, role="actor"), box)
    thread.submit(lambda store: store.conn.execute("select pg_sleep(300)"), "long")
    wait_for(box, lambda event: isinstance(event, StoreBack))
    with psycopg.connect(dsn, autocommit=True) as conn:
        until = time.monotonic() + DEADLINE_S
        running = "select count(*) from pg_stat_activity where query like 'select pg_sleep(300)%' and state = 'active'"
        while conn.execute(running).fetchone() == (0,):
            assert time.monotonic() < until
        assert thread.close(0.1)
        while conn.execute(running).fetchone() != (0,):
            assert time.monotonic() < until


def test_a_listener_hears_and_comes_back_after_each_end_of_its_session(dsn, box):
    """B077."""
    listener = Listener(dsn, box, rng=random.Random(1))
    events = wait_for(box, lambda event: isinstance(event, ListenerBack))
    assert events == [ListenerBack(pooled=False)]
    for _ in range(3):
        run(dsn, "select pg_notify('awa_pool', ''), pg_notify('awa_pool', 'cancel 1 2 3')")
        events = wait_for(box, lambda event: event == Notified("cancel 1 2 3"))
        assert Notified("") in events
        assert end_sessions(dsn, "awa-pool listener") == 1
        events = wait_for(box, lambda event: isinstance(event, ListenerBack))
        assert sum(isinstance(event, ListenerLost) for event in events) == 1
    assert listener.close(DEADLINE_S)


def test_a_listener_proves_that_it_is_alive(dsn, box):
    listener = Listener(dsn, box, proof_every_s=0.01)
    with psycopg.connect(dsn, autocommit=True) as conn:
        until = time.monotonic() + DEADLINE_S
        proof = "select count(*) from pg_stat_activity where application_name = 'awa-pool listener' and query like '%as alive%'"
        while conn.execute(proof).fetchone() == (0,):
            assert time.monotonic() < until
    run(dsn, "select pg_notify('awa_pool', 'x')")
    wait_for(box, lambda event: event == Notified("x"))
    assert listener.close(DEADLINE_S)


def test_a_waiting_pool_hears_of_a_bulk_load_once(dsn, box):
    """B103; distilled 24."""
    listener = Listener(dsn, box)
    wait_for(box, lambda event: isinstance(event, ListenerBack))
    store = connect(dsn)
    store.claim(["default"], [1], 1, 1 << 20, 1, uuid.uuid4(), 1, True)
    with Client(dsn) as client:
        client.insert_many_copy([({}, {"kind": "k"})] * 5_000)
        assert wait_for(box, lambda event: event == Notified("")) == [Notified("")]
        client.insert_many([({}, {"kind": "k"})] * 5_000)
        assert wait_for(box, lambda event: event == Notified("")) == [Notified("")]
        client.insert({}, kind="k", queue="nobody waits here")
        run(dsn, "select pg_notify('awa_pool', 'end')")
        assert wait_for(box, lambda event: event == Notified("end")) == [Notified("end")]
    store.close()
    assert listener.close(DEADLINE_S)


@pytest.mark.parametrize(
    "bad",
    [
        f"postgresql://awa:{SECRET}@127.0.0.1:1/x?connect_timeout=2",
        f"host=127.0.0.1 port=1 user=awa password={SECRET} connect_timeout=2",
        f"host=127.0.0.1 port=x user=awa password={SECRET}",
        f"postgresql://awa:{SECRET}@127.0.0.1:{SECRET}/x",
        f"user awa password {SECRET}",
        f"password='{SECRET}",
    ],
    ids=[
        "url",
        "words",
        "bad port",
        "bad url port",
        "no form",
        "open quote",
    ],  # the id becomes a process title
)
def test_no_error_log_or_title_shows_a_password(bad, caplog):
    caplog.set_level(logging.DEBUG)
    shown = []
    for attempt in (lambda: connect(bad), lambda: Client(bad).insert({}, kind="k"), lambda: migrate(bad)):
        with pytest.raises((StoreUnavailable, ConfigError)) as caught:
            attempt()
        problem: BaseException | None = caught.value
        while problem is not None:
            shown.append(str(problem))
            problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
    shown += [caplog.text, repr(Client(bad)), Path("/proc/self/cmdline").read_text()]
    assert not [text for text in shown if SECRET in text or "hunter2" in text]


def test_an_open_client_leaves_no_warning_when_it_is_dropped(dsn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client = Client(dsn)
        client.insert({}, kind="k")
        del client
    end_sessions(dsn, "awa-pool client")
